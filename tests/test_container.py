import contextlib
import json
import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest

import baryflow
from baryflow import Mixture, container
from baryflow.exceptions import FileFormatError


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "m.bary"
    Mixture([0.5, 0.5], [[0.0], [1.0]], [[1.0], [1.0]], np.eye(2), mass=7).save(path)
    return path


def rewrite(path, change):
    """Change the manifest of a saved file."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    manifest = json.loads(header["__metadata__"]["baryflow"])
    header["__metadata__"]["baryflow"] = json.dumps(change(manifest))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size :])


def test_the_same_content_is_the_same_bytes(saved, tmp_path):
    baryflow.load(saved).save(tmp_path / "again.bary")
    assert (tmp_path / "again.bary").read_bytes() == saved.read_bytes()


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        baryflow.load(tmp_path / "nothing.bary")


def test_every_truncation_is_one_clear_error(saved):
    raw = saved.read_bytes()
    for length in range(len(raw)):
        saved.write_bytes(raw[:length])
        with pytest.raises(FileFormatError, match=r"m\.bary"):
            baryflow.load(saved)


def test_random_damage_is_an_error_or_a_valid_mixture(saved):
    raw = saved.read_bytes()
    rng = random.Random(0)
    for _ in range(1500):
        damaged = bytearray(raw)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(raw))] = rng.randrange(256)
        saved.write_bytes(bytes(damaged))
        with contextlib.suppress(FileFormatError):
            assert isinstance(baryflow.load(saved), Mixture)


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
        lambda _: {"schema": 1},
        lambda m: m | {"schema": "1"},
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


def test_saved_files_have_ordinary_permissions(saved):
    umask = os.umask(0)
    os.umask(umask)
    assert saved.stat().st_mode & 0o777 == 0o666 & ~umask


def test_values_that_are_not_json_are_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        container.write(tmp_path / "x.bary", "mixture", {"mass": float("nan")}, {})
