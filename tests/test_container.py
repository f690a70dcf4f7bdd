import json
import os
import random
import socket
import struct
import subprocess
import sys
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import baryflow
from baryflow import Mixture, MixtureClassifier, OnlineDaDiL, container
from baryflow.cli import main
from baryflow.datasets import make_domains
from baryflow.exceptions import FileFormatError
from tests.files import reseal


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "m.bary"
    Mixture([0.5, 0.5], [[0.0], [1.0]], [[1.0], [1.0]], np.eye(2), mass=7).save(path)
    return path


def rewritten(path, change):
    """Return a saved file with another manifest."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    manifest = json.loads(header["__metadata__"]["baryflow"])
    header["__metadata__"]["baryflow"] = json.dumps(change(manifest))
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + raw[8 + size :]


def rewrite(path, change):
    """Change the manifest of a saved file, with a checksum that fits."""
    path.write_bytes(reseal(rewritten(path, change)))


def test_the_same_content_is_the_same_bytes(saved):
    one = baryflow.load(saved)
    assert one.to_bytes() == one.to_bytes() == Mixture.from_bytes(one.to_bytes()).to_bytes()
    assert container.from_bytes(one.to_bytes()).date == ""


def test_a_file_says_which_release_wrote_it_and_when(saved):
    content = container.read(saved)
    assert content.name == str(saved)
    assert content.kind == "mixture"
    assert content.version == baryflow.__version__
    written = datetime.fromisoformat(content.date)
    assert abs((datetime.now(UTC) - written).total_seconds()) < 600.0


def test_only_the_date_sets_a_file_apart_from_bytes(saved):
    content, plain = container.read(saved), baryflow.load(saved).to_bytes()
    assert saved.read_bytes() != plain
    dated = container.to_bytes(content.kind, content.values, content.arrays, date=content.date)
    assert dated == saved.read_bytes()
    assert container.to_bytes(content.kind, content.values, content.arrays) == plain


def test_a_file_of_an_older_schema_is_refused_because_it_has_no_checksum(saved):
    def age(manifest):
        return {name: manifest[name] for name in ("kind", "values", "version")} | {"schema": 1}

    raw = bytearray(rewritten(saved, age))
    for flipped in (0, 0xFF):
        raw[-1] ^= flipped
        saved.write_bytes(raw)
        with pytest.raises(FileFormatError, match="no checksum"):
            baryflow.load(saved)


def test_a_file_without_a_checksum_is_refused(saved):
    saved.write_bytes(rewritten(saved, lambda m: {k: v for k, v in m.items() if k != "checksum"}))
    with pytest.raises(FileFormatError, match="checksum"):
        baryflow.load(saved)


# -- memory -----------------------------------------------------------------------------------------


def peak_of_loading(model, change):
    """Return the peak memory in bytes of reading a model with other values, which is refused."""
    content = container.from_bytes(model.to_bytes())
    change(content.values["fields"])
    data = container.to_bytes(content.kind, content.values, content.arrays)
    assert len(data) < 500_000
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match="damaged"):
            type(model).from_bytes(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def classifier():
    rng = np.random.default_rng(0)
    return MixtureClassifier(random_state=0).fit(rng.normal(size=(40, 2)), np.repeat(["a", "b"], 20))


@pytest.mark.parametrize(
    "names",
    [
        {"names": {"list": ["a"] * 5_000}, "dtype": "<U262144"},  # 5 GB
        {"names": {"list": ["a" * 40_000, *"b" * 10_000]}, "dtype": "<U40000"},  # 1.6 GB
        {"names": {"list": ["a" * 40_000, *"b" * 10_000]}, "dtype": "<U0"},  # likewise
        {"names": {"list": [0, 1]}, "dtype": "<U262144"},
        {"empty": [0, 2**40], "dtype": "<f8"},
        {"empty": [0], "dtype": "V2000000000"},
        {"names": {"array": "mixture.means"}, "dtype": "|O"},
    ],
    ids=[
        "short names, wide",
        "one long name",
        "one long name, no width",
        "numbers",
        "columns",
        "V",
        "array",
    ],
)
def test_a_small_file_cannot_take_gigabytes_for_names(classifier, names):
    peak = peak_of_loading(classifier, lambda fields: fields.update(classes=names))
    assert peak < 2**26


def test_many_wide_names_together_cannot_take_gigabytes(classifier):
    wide = {"names": {"list": ["a"]}, "dtype": "<U262144"}  # 1 MB each

    def change(fields):
        fields["shell"]["fields"]["parameters"] = {"dict": [[f"p{n}", wide] for n in range(3_000)]}

    assert peak_of_loading(classifier, change) < 2**26


def test_an_array_of_a_file_is_used_once(classifier):
    again = {"array": "mixture.means"}

    def change(fields):
        fields["shell"]["fields"]["parameters"] = {"dict": [["copies", {"list": [again] * 3_000}]]}

    assert peak_of_loading(classifier, change) < 2**26


def test_a_claimed_number_of_columns_does_not_take_gigabytes():
    p = make_domains(n_sources=2, n_classes=2, n_features=2, n_per_class=20, random_state=0)
    model = OnlineDaDiL(classifier="linear", random_state=0, validate=False).fit(p.X, p.y, p.domain)

    def change(fields):
        fields["shell"]["fields"]["n_features"] = 2 * 10**8

    assert peak_of_loading(model, change) < 2**26


def test_one_long_name_among_many_short_ones_is_saved_and_loaded():
    y = np.array([f"class {n}" for n in range(60)] * 2)
    y[y == "class 7"] = "7" * 1_000
    X = np.random.default_rng(0).normal(size=(len(y), 1)) + np.arange(len(y))[:, None] % 60
    model = MixtureClassifier(random_state=0, max_components=60).fit(X, y)
    again = MixtureClassifier.from_bytes(model.to_bytes())
    assert again.classes_.tolist() == model.classes_.tolist()


# -- what is no file --------------------------------------------------------------------------------


@pytest.fixture
def special(tmp_path):
    """Return what is in the place of a model: a device, a pipe nobody writes to, a socket, a folder."""
    os.mkfifo(tmp_path / "pipe.bary")
    (tmp_path / "link.bary").symlink_to("/dev/zero")
    (tmp_path / "folder.bary").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket.bary"))
        yield {
            "pipe": tmp_path / "pipe.bary",
            "device": tmp_path / "link.bary",
            "folder": tmp_path / "folder.bary",
            "socket": tmp_path / "socket.bary",
        }


def test_devices_pipes_sockets_and_folders_are_refused_at_once(special):
    for kind, path in {**special, "device ": "/dev/zero"}.items():
        with pytest.raises(FileFormatError, match=f"{path}: it is a {kind.strip()}"):
            baryflow.load(path)


def test_commands_refuse_devices_and_pipes_as_models_at_once(special, tmp_path):
    (tmp_path / "rows.csv").write_text("a\n1\n")
    for kind in ("pipe", "device"):
        path = str(special[kind])
        for words in (["run", path, str(tmp_path / "rows.csv")], ["inspect", path], ["serve", path]):
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 1
            assert f"Error: cannot read {path}: it is a {kind}" in done.stderr


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?"])
def test_arrays_of_every_shape_come_back(shape, dtype):
    array = np.arange(6)[: int(np.prod(shape))].reshape(shape).astype(dtype)
    (again,) = container.from_bytes(container.to_bytes("x", {}, {"a": array})).arrays.values()
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert np.array_equal(again, array)


def test_arrays_of_every_layout_come_back():
    array = np.arange(24.0).reshape(2, 3, 4)
    for strange in (array.T, array[:, ::-1], array[..., 1], np.asfortranarray(array)):
        content = container.from_bytes(container.to_bytes("x", {}, {"a": strange}))
        assert np.array_equal(content.arrays["a"], strange)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        baryflow.load(tmp_path / "nothing.bary")


def test_every_truncation_is_one_clear_error(saved):
    raw = saved.read_bytes()
    for length in range(len(raw)):
        saved.write_bytes(raw[:length])
        with pytest.raises(FileFormatError, match=r"m\.bary"):
            baryflow.load(saved)


def test_every_damaged_byte_is_an_error(saved):
    raw = saved.read_bytes()
    rng = random.Random(0)
    for position in range(len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= rng.randrange(1, 256)
        with pytest.raises(FileFormatError):
            Mixture.from_bytes(bytes(damaged))


def test_a_damaged_schema_does_not_switch_the_checksum_off(saved):
    raw = saved.read_bytes()
    for other in (b'\\"schema\\": 1', b'\\"schema\\":-2'):
        damaged = raw.replace(b'\\"schema\\": 2', other)
        assert damaged != raw
        with pytest.raises(FileFormatError, match="checksum"):
            Mixture.from_bytes(damaged)


def test_damage_that_the_checksum_does_not_tell_is_an_error_or_a_valid_mixture(saved):
    raw = saved.read_bytes()
    rng = random.Random(0)
    refused = 0
    for _ in range(1500):
        damaged = bytearray(raw)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            assert isinstance(Mixture.from_bytes(reseal(bytes(damaged))), Mixture)
        except FileFormatError:
            refused += 1
    assert 700 < refused < 1500


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04zip", b"\x80\x04\x95pickle", b"\xff" * 64])
def test_foreign_files(tmp_path, content):
    path = tmp_path / "m.bary"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="not a readable"):
        baryflow.load(path)


def test_a_foreign_safetensors_file(tmp_path):
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, tmp_path / "x.bary")
    with pytest.raises(FileFormatError, match="not one that baryflow wrote"):
        baryflow.load(tmp_path / "x.bary")


def test_a_newer_file(saved):
    rewrite(saved, lambda manifest: manifest | {"schema": 99})
    with pytest.raises(FileFormatError, match=r"newer baryflow .schema 99.*upgrade"):
        baryflow.load(saved)


def test_an_unknown_kind(saved):
    rewrite(saved, lambda manifest: manifest | {"kind": "teapot"})
    with pytest.raises(FileFormatError, match="holds a 'teapot'"):
        baryflow.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda _: [],
        lambda _: {"schema": 2},
        lambda m: m | {"schema": "2"},
        lambda m: m | {"values": 3},
    ],
)
def test_a_damaged_manifest(saved, change):
    rewrite(saved, change)
    with pytest.raises(FileFormatError, match="damaged manifest"):
        baryflow.load(saved)


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        baryflow.load(saved).with_labels(None).save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["m.bary"]


def killed_while_writing(path):
    """Write a file in a process that is killed before the file has its name."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from baryflow import container\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "container.write_bytes(sys.argv[1], b'half')\n"
    )
    assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == -9


def test_what_a_killed_writer_left_is_swept_away_and_nothing_else(saved):
    before = saved.read_bytes()
    (saved.parent / ".hidden").write_bytes(b"of somebody")
    killed_while_writing(saved)
    names = {path.name for path in saved.parent.iterdir()}
    assert names > {"m.bary", ".hidden"}  # something is left, and says what it is
    assert all(
        name.startswith(".m.bary.") and name.endswith(".unfinished")
        for name in names - {"m.bary", ".hidden"}
    )
    container.sweep(saved.parent)
    assert {path.name for path in saved.parent.iterdir()} == {"m.bary", ".hidden"}
    assert saved.read_bytes() == before
    container.sweep(saved.parent / "nowhere")


def test_a_writer_who_is_taken_for_dead_writes_again(tmp_path, monkeypatch):
    sweeps, chmod = iter(range(2)), Path.chmod

    def interrupted(path, mode):
        if next(sweeps, None) is not None:
            container.sweep(tmp_path)
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", interrupted)
    container.write_bytes(tmp_path / "a", b"whole")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"whole")]


def test_a_writer_who_is_swept_away_for_ever_says_so(tmp_path, monkeypatch):
    chmod = Path.chmod
    monkeypatch.setattr(Path, "chmod", lambda path, mode: (container.sweep(tmp_path), chmod(path, mode)))
    with pytest.raises(FileNotFoundError, match=r"cannot write .*a: No such file"):
        container.write_bytes(tmp_path / "a", b"whole")
    assert not list(tmp_path.iterdir())


def test_saved_files_have_ordinary_permissions(saved):
    umask = os.umask(0)
    os.umask(umask)
    assert saved.stat().st_mode & 0o777 == 0o666 & ~umask


def test_values_that_are_not_json_are_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        container.write(tmp_path / "x.bary", "mixture", {"mass": float("nan")}, {})
