"""Errors and warnings of the command line: bad data, options and missing packages."""

import importlib
import re
import socket
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import baryflow
from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.cli.console import report_errors
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.model_selection import evaluate
from tests.test_container import rewrite

HOW = ["--label", "y", "--domain-from-file", "--jobs", 1]
P = make_domains(n_sources=3, n_classes=3, n_features=3, n_per_class=12, random_state=0)
CLASSES = np.array(["normal", "worn", "broken"])


def call(*arguments, code=0):
    """Run a command in this process, with warnings as a user gets them."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, f"{result.stdout}\n{result.stderr}\n{result.exception!r}"
    assert "Traceback" not in result.stderr
    return result


def frame(source, y=None, columns=("a", "b", "c")):
    mine = P.domain == source
    rows = pd.DataFrame(P.X[mine], columns=list(columns))
    return rows.assign(y=CLASSES[P.y[mine]] if y is None else y)


@pytest.fixture
def sources(tmp_path):
    """Files of three sources."""
    paths = [tmp_path / f"pump{source}.csv" for source in (1, 2, 3)]
    for source, path in zip((1, 2, 3), paths, strict=True):
        frame(source).to_csv(path, index=False)
    return paths


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that has followed a target."""
    path = tmp_path_factory.mktemp("model") / "m.bary"
    X = pd.DataFrame(P.X, columns=list("abc"))
    fitted = OnlineDaDiL(classifier="linear", random_state=0, validate=False).fit(
        X, CLASSES[P.y], P.domain
    )
    fitted.partial_fit(pd.DataFrame(P.X_target[:32], columns=list("abc"))).save(path)
    return path


# -- text from files --------------------------------------------------------------------------------

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
TITLE, BACKWARDS, CSI = "\x1b]0;pwned\x07", "\u202eabc", "\x9b31m"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "h.bary"
    X = pd.DataFrame(P.X, columns=[f"flow{TITLE}", f"level{BACKWARDS}", f"speed{CSI}"])
    y = np.array([f"normal{TITLE}", f"worn{BACKWARDS}", f"broken{CSI}"])[P.y]
    plants = np.array(["", f"north{TITLE}", f"south{BACKWARDS}", f"west{CSI}"])[P.domain]
    OnlineDaDiL(classifier="linear", random_state=0, validate=False).fit(X, y, plants).save(path)
    return path


def test_escape_codes_in_a_model_are_escaped(hostile, tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,c\n1,2,3\n")
    shown = [
        call("inspect", hostile),
        call("report", hostile),
        call("run", hostile, tmp_path / "rows.csv", code=1),  # has other columns
    ]
    for result in shown:
        assert not UNSAFE.search(result.stdout + result.stderr)
        assert r"\x1b]0;pwned\x07" in result.stdout + result.stderr


def test_escape_codes_in_a_manifest_are_escaped(model, tmp_path):
    path = tmp_path / "k.bary"
    path.write_bytes(model.read_bytes())
    rewrite(path, lambda manifest: manifest | {"version": f"1{TITLE}\ud800", "date": f"now{CSI}"})
    result = call("inspect", path)
    assert not UNSAFE.search(result.stdout)
    assert r"baryflow 1\x1b]0;pwned\x07\ud800" in result.stdout
    rewrite(path, lambda manifest: manifest | {"kind": f"kind{TITLE}"})
    assert not UNSAFE.search(call("inspect", path, code=1).stderr)


def test_escape_codes_in_labelled_files_are_escaped(sources, tmp_path):
    frame(1, columns=("a", "b", "c")).replace("normal", f"normal{TITLE}").to_csv(sources[0], index=False)
    result = call("fit", *sources, *HOW, "-o", tmp_path / "m.bary")
    assert not UNSAFE.search(result.stdout + result.stderr)
    assert r"normal\x1b]0;pwned\x07" in result.stderr


def test_warnings_are_printed_without_their_place_in_the_code(capsys):
    with warnings.catch_warnings(), report_errors():
        warnings.simplefilter("always")
        warnings.warn(f"random_state is odd{TITLE}", UserWarning, stacklevel=1)
        warnings.warn("division by zero", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err.splitlines() == [
        r"warning: --seed is odd\x1b]0;pwned\x07", "warning: division by zero"
    ]  # fmt: skip


# -- labelled files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet", "npz"])
@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_a_file_without_rows_is_an_error(sources, tmp_path, command, kind):
    empty, nothing = tmp_path / f"empty.{kind}", frame(1).iloc[:0]
    if kind == "csv":
        nothing.to_csv(empty, index=False)
    elif kind == "ndjson":
        empty.touch()
    elif kind == "parquet":
        pytest.importorskip("pyarrow")
        nothing.to_parquet(empty)
    else:
        np.savez(empty, **{name: nothing[name].to_numpy(dtype="f8") for name in nothing})
    output = ["-o", tmp_path / "m.bary"] if command == "fit" else []
    result = call(command, *sources, empty, *HOW, *output, code=1)
    assert str(empty) in result.stderr


def test_labels_that_differ_in_case_are_pointed_out_and_outer_blanks_do_not_count(sources, tmp_path):
    frame(1).replace("worn", "WORN").to_csv(sources[0], index=False)
    path = tmp_path / "pump4.ndjson"
    frame(2).replace("normal", "normal ").to_json(path, orient="records", lines=True)
    result = call("fit", *sources, path, *HOW, "-o", tmp_path / "m.bary")
    assert "warning: 'WORN' (12) and 'worn' (36) differ only in case or spaces" in result.stderr
    warned = "".join(line for line in result.stderr.splitlines() if "warning" in line)
    assert "broken" not in warned
    assert "normal" not in warned
    assert len(baryflow.load(tmp_path / "m.bary").classes_) == 4


def with_labels(path, y):
    rng = np.random.default_rng(0)
    pd.DataFrame({"a": rng.normal(size=len(y)), "y": y}).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.random.default_rng(0).normal(size=300).round(3), "measurement.*--label"),
        (np.tile(np.arange(60) / 10, 20), "measurement.*60 distinct values in 2,400 rows"),
        (np.random.default_rng(0).integers(0, 400, size=1000), "measurement.*0, 1, 2"),
        ([f"2024-01-{day:02d}" for day in range(1, 31)], "most occur once"),
        (["normal"] * 40, r"only one class \('normal'\); at least two are needed"),
    ],
    ids=["readings", "rounded readings", "whole readings", "dates", "one class"],
)
@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_labels_that_cannot_be_classes_are_refused(tmp_path, command, labels, words):
    files = [with_labels(tmp_path / f"{name}.csv", labels) for name in "ab"]
    if "once" in words:
        with_labels(files[1], [f"{label} noon" for label in labels])
    output = ["-o", tmp_path / "m.bary"] if command == "fit" else []
    assert re.search(words, call(command, *files, *HOW, *output, code=1).stderr)


@pytest.mark.parametrize(("n_classes", "each", "doubt"), [(12, 3, False), (101, 10, True)])
def test_numbers_that_are_classes_are_taken(tmp_path, monkeypatch, n_classes, each, doubt):
    path = with_labels(tmp_path / "a.csv", np.repeat(np.arange(n_classes), each))
    seen = {}

    def stop(self, X, y, sample_domain=None):
        seen.update(y=y)
        raise InvalidInputError("far enough")

    monkeypatch.setattr(OnlineDaDiL, "fit", stop)
    result = call("fit", path, *HOW, "-o", tmp_path / "m.bary", code=1)
    assert "far enough" in result.stderr
    assert ("measurement" in result.stderr) == doubt
    assert len(np.unique(seen["y"])) == n_classes


def test_a_domain_without_a_value_in_a_column_is_named(sources, tmp_path):
    frame(2).assign(b=None).to_csv(sources[1], index=False)
    result = call("fit", *sources, *HOW, "-o", tmp_path / "m.bary", code=1)
    assert "pump2 has no value in column 'b'" in result.stderr
    assert "--ignore b" in result.stderr


def test_one_class_is_an_error_in_python(tmp_path):
    y, target = np.repeat("normal", len(P.y)), np.full(len(P.X_target), -1)
    with pytest.raises(InvalidInputError, match=r"only one class \('normal'\); at least two"):
        OnlineDaDiL().fit(P.X, y, P.domain)
    X = np.concatenate([P.X, P.X_target])
    with pytest.raises(InvalidInputError, match=r"only one class \('normal'\); at least two"):
        baryflow.DaDiL().fit(X, np.repeat("normal", len(X)), np.concatenate([P.domain, target]))
    with pytest.raises(InvalidInputError, match=r"only one class \('normal'\); at least two"):
        evaluate(OnlineDaDiL(), P.X, y, P.domain)


# -- options ----------------------------------------------------------------------------------------


def test_errors_of_the_library_name_options():
    for raised, words in {
        "sample_domain must name two domains": "--domain must name two domains",
        "the shares of class_prior must sum to 1": "the shares of --class-prior must sum to 1",
        "batch_size must be at least 1; n_jobs, too": "--batch-size must be at least 1; --jobs, too",
        "there is no column 'batch_size'": "there is no column 'batch_size'",
    }.items():
        with pytest.raises(Exception, match=re.escape(words)), report_errors():
            raise InvalidInputError(raised)


def test_a_class_prior_that_does_not_sum_to_one_is_refused_by_the_name_of_its_option(sources, tmp_path):
    shares = ["--class-prior", "normal=0.9", "--class-prior", "worn=0.9"]
    result = call("fit", *sources, *HOW, *shares, "-o", tmp_path / "m.bary", code=1)
    assert "--class-prior must sum to" in result.stderr
    assert "class_prior" not in result.stderr


def test_class_proportions_need_not_be_estimated(sources, tmp_path):
    path = tmp_path / "m.bary"
    result = call("fit", *sources, *HOW, "--classifier", "linear", "--no-label-shift", "-o", path)
    assert "other class proportions" not in result.stdout
    assert not baryflow.load(path).label_shift


def test_evaluate_of_one_domain_names_options(sources):
    result = call("evaluate", sources[0], *HOW, code=1)
    assert "two or more" in result.stderr
    assert "--domain-from-file" in result.stderr
    assert "sample_domain" not in result.stderr


def test_numbers_agree_with_their_nouns(model, tmp_path, sources):
    one = tmp_path / "one.csv"
    frame(1).iloc[:1].drop(columns="y").to_csv(one, index=False)
    assert "1 row = 1 predicted" in call("run", model, one, "-o", tmp_path / "o.csv").stderr
    for path in sources:
        frame(1)[["a", "y"]].to_csv(path, index=False)
    result = call("fit", sources[0], *HOW, "-o", tmp_path / "m.bary")
    assert "36 rows, 1 column: a" in result.stderr
    assert "1 domain: pump1" in result.stderr


@pytest.mark.parametrize("name", ["z.xyz", "z", "z.bary"])
def test_a_figure_of_another_kind_is_refused_with_the_kinds_there_are(model, sources, tmp_path, name):
    for arguments in (
        ["plot", model, "-o", tmp_path / name],
        ["evaluate", *sources, *HOW, "--figure", tmp_path / name],
    ):
        assert ".svg" in call(*arguments, code=2).stderr
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_ports_that_do_not_exist_are_refused(model, port):
    for arguments in (["demo", "--live", "--port", port], ["serve", model, "--port", port]):
        assert "65535" in call(*arguments, code=2).stderr


def test_a_port_that_is_taken_is_an_error(model, monkeypatch):
    pytest.importorskip("starlette")
    showing = importlib.import_module("baryflow.cli.demo")
    from baryflow.datasets import load_tep
    from baryflow.live.replay import Replay

    data = load_tep(runs=3, faults=[0, 1, 2])
    monkeypatch.setattr(showing, "_replay", lambda seed: Replay.fit(data, seed, lambda *_: None))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for arguments in (["serve", model], ["demo", "--live", "--no-browser"]):
            result = call(*arguments, "--port", port, code=1)
            assert f"cannot listen at 127.0.0.1:{port}" in result.stderr


# -- damaged files and missing packages -------------------------------------------------------------


@pytest.mark.parametrize("damage", ["truncated", "text", "pages"])
def test_a_damaged_parquet_file_is_one_sentence(model, tmp_path, damage):
    pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    frame(1).drop(columns="y").to_parquet(path)
    raw = bytearray(path.read_bytes())
    if damage == "truncated":
        raw = raw[: len(raw) // 2]
    elif damage == "text":
        raw = bytearray(b"a,b,c\n1,2,3\n")
    else:
        raw[4:400] = b"\xff" * 396
    path.write_bytes(raw)
    result = call("run", model, path, "-o", tmp_path / "out.csv", code=1)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert line.startswith(f"Error: {path} cannot be read as Parquet, it is damaged or incomplete")


#: What imports packages that are not always there.
IMPORTERS = ("client", "mqtt", "kafka", "opcua", "service", "live", "distributed")
TAGS = ["--tags", "TAGS", "--sample-interval", "1s"]
OUT, KEY = ["-o", "OUT.bary"], ["--key", "k", "--checkpoint", "S"]


@contextmanager
def without(package):
    """Make a package look as if it were not installed; afterwards all modules are as they were."""

    def concerned():
        return {
            name: module
            for name, module in sys.modules.items()
            if name.partition(".")[0] == package
            or (name.startswith("baryflow.") and any(part in name for part in IMPORTERS))
        }

    def forget(names):
        for name in names:
            module, (parent, _, child) = sys.modules.pop(name), name.rpartition(".")
            if module is not None and vars(sys.modules.get(parent, sys)).get(child) is module:
                links.append((sys.modules[parent], child, module))
                delattr(sys.modules[parent], child)

    links = []
    before = concerned()
    forget(reversed(before))  # what is inside first
    kept = list(links)
    sys.modules[package] = None
    try:
        yield
    finally:
        forget(reversed(concerned()))
        sys.modules.update(before)
        for parent, child, module in kept:
            setattr(parent, child, module)


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("httpx", ["forward", "ROWS", "http://127.0.0.1:1/pump"], "client"),
        ("paho", ["run", "MODEL", "mqtt://127.0.0.1/topic"], "mqtt"),
        ("paho", ["run", "MODEL", "ROWS", "-o", "mqtt://127.0.0.1/topic"], "mqtt"),
        ("confluent_kafka", ["run", "MODEL", "kafka://127.0.0.1/topic"], "kafka"),
        ("asyncua", ["run", "MODEL", "opc.tcp://127.0.0.1:4840", *TAGS], "opcua"),
        ("starlette", ["serve", "MODEL"], "serve"),
        ("uvicorn", ["serve", "MODEL"], "serve"),
        ("starlette", ["demo", "--live"], "serve"),
        ("pyarrow", ["run", "MODEL", "rows.parquet"], "parquet"),
        ("pyarrow", ["run", "MODEL", "ROWS", "-o", "OUT.parquet"], "parquet"),
        ("dask", ["fit", "FOLDER", "--label", "y", "--domain", "d", "--dask", "local", *OUT], "dask"),
        ("distributed", ["backfill", "MODEL", "FOLDER", *KEY, *OUT], "dask"),
        ("prometheus_client", ["run", "MODEL", "ROWS", "--metrics-port", 0], "serve"),
        ("matplotlib", ["plot", "MODEL", "-o", "OUT.png"], "plot"),
    ],
)  # fmt: skip
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    model, tmp_path, monkeypatch, package, arguments, extra
):
    rows = tmp_path / "rows.csv"
    frame(1).drop(columns="y").to_csv(rows, index=False)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    (tmp_path / "tags.csv").write_text("address,column\nns=2;s=a,a\n")
    monkeypatch.chdir(tmp_path)
    places = {"MODEL": model, "ROWS": rows, "FOLDER": tmp_path, "TAGS": tmp_path / "tags.csv"}
    with without(package):
        result = call(*(places.get(one, one) for one in arguments), code=1)
    assert f"pip install 'baryflow[{extra}]'" in result.stderr


# -- progress ---------------------------------------------------------------------------------------


class Warns(OnlineDaDiL):
    """A model that warns whenever it is fitted, from deep inside."""

    def fit(self, X, y, sample_domain=None):
        warnings.warn("a solver is slow", RuntimeWarning, stacklevel=1)
        return super().fit(X, y, sample_domain)


def test_evaluate_shows_each_domain_and_prints_a_warning_once(sources, monkeypatch):
    labelled = importlib.import_module("baryflow.cli.evaluate")

    monkeypatch.setattr(labelled, "OnlineDaDiL", Warns)
    result = call("evaluate", *sources, *HOW, "--classifier", "linear")
    told = [line for line in result.stderr.splitlines() if line.startswith("evaluate ")]
    assert [re.search(r"(\d) of 3 domains", line)[1] for line in told] == ["0", "1", "2", "3"]
    assert all("left" in line for line in told[1:3])
    assert {line.split(": ")[1].split(",")[0] for line in told[1:]} == {"pump1", "pump2", "pump3"}
    assert result.stderr.count("warning: a solver is slow") == 1
    assert ".py" not in result.stderr
    assert "takes about" not in result.stderr


def test_evaluate_names_column_and_domain(sources):
    other = pd.read_csv(sources[1])
    column = next(name for name in other.columns if other[name].dtype == float)
    other[column] += 1e6  # another unit
    other.to_csv(sources[1], index=False)
    result = call("evaluate", *sources, *HOW, "--classifier", "linear")
    warned = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    mine = [line for line in warned if line.startswith(f"warning: pump2: column {column!r}: ")]
    assert any("offset +1000000" in line and "converted" in line for line in mine)
    assert ".py" not in result.stderr


def test_evaluate_calls_back_for_each_domain():
    heard = []
    model = OnlineDaDiL(classifier="linear", random_state=0, validate=False)
    evaluate(model, P.X, P.y, P.domain, verbose=lambda *words: heard.append(words))
    assert heard == [(1, 3, "1"), (2, 3, "2"), (3, 3, "3")]


# -- files of a plant ----------------------------------------------------------------------------------


def test_a_measurement_with_decimal_commas_is_refused_as_a_label(tmp_path):
    lines = [f"{i % 7},5;{i // 2},5" for i in range(120)] + ["1,5;Bad"]
    (tmp_path / "pump.csv").write_text("\n".join(["a;y", *lines, *lines]) + "\n")
    result = call("fit", tmp_path / "pump.csv", *HOW, "-o", tmp_path / "m.bary", code=1)
    assert "looks like a measurement" in result.stderr


def test_a_file_without_a_header_is_recognised(sources, model, tmp_path):
    lines = sources[0].read_text().splitlines(keepends=True)
    sources[0].write_text("".join(lines[1:]))
    result = call("fit", *sources, *HOW, "-o", tmp_path / "m.bary", code=1)
    assert "pump1.csv has no header" in result.stderr
    assert "has no header" in call("run", model, sources[0], code=1).stderr


def test_numbered_columns_are_a_header(tmp_path):
    path = tmp_path / "pump.csv"
    frame(1, columns=("0", "1", "2")).to_csv(path, index=False)
    result = call("fit", path, "--label", "Y", *HOW[2:], "-o", tmp_path / "m.bary", code=1)
    assert "did you mean 'y'?" in result.stderr


def test_only_columns_that_are_not_used_are_suggested(sources, tmp_path):
    names = ("vib_de_mm", "vib_nde_mm", "c")
    frame(1, columns=names).to_csv(sources[0], index=False)
    fitted = OnlineDaDiL(classifier="linear", validate=False)
    fitted.fit(pd.DataFrame(P.X, columns=list(names)), CLASSES[P.y], P.domain)
    fitted.save(tmp_path / "m.bary")
    frame(1, columns=("c", "vib_nde_mm", "other")).to_csv(tmp_path / "rows.csv", index=False)
    result = call("run", tmp_path / "m.bary", tmp_path / "rows.csv", code=1)
    assert "did you mean" not in result.stderr


def test_a_model_of_other_columns_is_refused_with_advice(model, tmp_path):
    frame(1, columns=("u", "v", "w")).to_csv(tmp_path / "rows.csv", index=False)
    result = call("run", model, tmp_path / "rows.csv", code=1)
    assert "use a model that was fitted on these columns" in result.stderr


def test_a_folder_is_not_a_file(model, sources, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "folder is a folder" in call("run", model, folder, code=1).stderr
    assert "folder is a folder" in call("run", model, sources[0], "-o", folder, code=1).stderr


def test_a_spreadsheet_must_be_saved_as_csv(model, tmp_path):
    (tmp_path / "rows.xlsx").write_bytes(b"PK")
    assert "as CSV" in call("run", model, tmp_path / "rows.xlsx", code=1).stderr


@pytest.mark.parametrize("command", ["run", "predict"])
def test_the_first_quarantined_row_is_reported(model, tmp_path, command):
    rows = frame(1).astype(object)
    rows.loc[[3, 5], "b"] = "fast"
    rows.to_csv(tmp_path / "rows.csv", index=False)
    out = ["-o", tmp_path / "out.csv"]
    result = call(command, model, tmp_path / "rows.csv", *out)
    assert result.stderr.count("quarantined row") == 1
    assert re.search("quarantined row 4: .*'fast'.*--quarantine FILE", result.stderr)
    result = call(command, model, tmp_path / "rows.csv", *out, "--quarantine", tmp_path / "q.ndjson")
    assert "quarantined row 4: " in result.stderr
    assert "--quarantine" not in result.stderr


@pytest.mark.parametrize("command", ["run", "predict"])
def test_a_command_fails_if_all_rows_are_quarantined(model, tmp_path, command):
    frame(1)[:5].assign(b="fast").to_csv(tmp_path / "rows.csv", index=False)
    out = ["-o", tmp_path / "out.csv", "--quarantine", tmp_path / "q.parquet"]
    result = call(command, model, tmp_path / "rows.csv", *out, code=1)
    assert "all 5 rows were quarantined" in result.stderr
    assert len(pd.read_parquet(tmp_path / "q.parquet")) == 5  # outputs are complete all the same
    rows = frame(1)[:5].astype(object)
    rows.loc[1:, "b"] = "fast"
    rows.to_csv(tmp_path / "rows.csv", index=False)
    call(command, model, tmp_path / "rows.csv", *out)  # one row was used


def test_fit_names_constant_columns_and_a_single_domain(sources, tmp_path):
    frame(1).assign(standby=0, b=1.5).to_csv(sources[0], index=False)
    result = call("fit", sources[0], *HOW, "--classifier", "linear", "-o", tmp_path / "m.bary")
    assert "constant: b, standby:" in result.stderr
    assert "only one domain" in result.stderr
    assert "--domain COLUMN" in result.stderr
