"""From a user's files to predictions, on the command line."""

import csv
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import baryflow
from baryflow.cli import main

PUMPS = Path(__file__).parents[2] / "examples" / "pumps"
LABELLED = [str(PUMPS / f"pump_{name}.csv") for name in "abcd"]
TARGET = str(PUMPS / "pump_e.csv")
HOW = ["--label", "condition", "--domain-from-file", "--time", "time"]
CHEAP = ["--classifier", "linear", "--jobs", "1"]


def call(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.stderr + str(result.exception)
    return result


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    path = tmp_path_factory.mktemp("fitted") / "pumps.bary"
    return path, call("fit", *LABELLED, *HOW, *CHEAP, "-o", path)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Every sixth row of three pumps."""
    files = [tmp_path_factory.mktemp("short") / Path(name).name for name in LABELLED[:3]]
    for whole, thinned in zip(LABELLED, files, strict=False):
        lines = Path(whole).read_text(encoding="utf-8").splitlines()
        thinned.write_text("\n".join([lines[0], *lines[1::6]]), encoding="utf-8")
    return files


@pytest.fixture(scope="module")
def truth():
    with (PUMPS / "pump_e_labels.csv").open(newline="") as file:
        return np.array([row["condition"] for row in csv.DictReader(file)])


def test_fit_prints_what_it_reads_leaves_out_and_learns(fitted):
    path, result = fitted
    for words in (
        "3,600 rows, 12 columns: speed_rpm",
        "4 domains: pump_a (900)",
        "6 classes: bearing wear (366)",
        "left out: shift",
    ):
        assert words in result.stderr
    assert "Decision: " in result.stdout
    model = baryflow.load(path)
    assert model.feature_names_in_[0] == "speed_rpm"
    assert model._kept is None  # the rows stay where they are


def test_run_is_better_than_not_adapting_and_than_standardising(fitted, truth, tmp_path):
    out, after = tmp_path / "out.ndjson", tmp_path / "after.bary"
    result = call("run", fitted[0], TARGET, "--time", "time", "-o", out, "--save", after)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert "900 rows = 900 predicted + 0 quarantined" in result.stderr
    assert [r["position"] for r in records] == list(range(1, 901))
    assert records[1]["time"] == "2024-03-04T02:00:00"
    right = float(np.mean([r["label"] == t for r, t in zip(records, truth, strict=True)]))
    # Of these rows the pooled classifier is right about 79 %, standardising each pump about 86 %.
    assert right > 0.86 + 0.03
    words = call("report", after).stdout
    assert "900 target rows seen" in words
    call("plot", after, "-o", tmp_path / "after.png")
    assert (tmp_path / "after.png").stat().st_size > 10_000


def test_labels_of_rows_are_learned_from(fitted, truth, tmp_path):
    numbers = list(range(3, 900, 25))
    with Path(TARGET).open(newline="", encoding="utf-8") as file:
        times = [row["time"] for row in csv.DictReader(file)]
    lines = [f"{times[i]};{truth[i]}" for i in reversed(numbers)]
    (tmp_path / "labels.csv").write_text("\n".join(["time;label", *lines, ""]))
    out, after = tmp_path / "out.ndjson", tmp_path / "after.bary"
    labels = ["--labels", tmp_path / "labels.csv", "--labels-certify"]
    result = call("run", fitted[0], TARGET, "--time", "time", "-o", out, "--save", after, *labels)
    assert "900 rows = 900 predicted + 0 quarantined; 36 labels used" in result.stderr
    model = baryflow.load(after)
    assert (model.n_labels_, model.certificate_.n) == (36, 36)


def test_labels_of_aws_lookout_are_spans_of_time(fitted, tmp_path):
    spans = [
        {"StartTime": "2024-03-04T00:00:00Z", "EndTime": "2024-03-04T09:00:00Z", "Rating": "NO_ANOMALY"},
        {
            "StartTime": "2024-03-06T00:00:00+00:00", "EndTime": "2024-03-06T02:00:00+00:00",
            "Rating": "ANOMALY", "FaultCode": "impeller crack",
        },
    ]  # fmt: skip
    (tmp_path / "labels.json").write_text(json.dumps({"LabelSummaries": spans}))
    how = ["--time", "time", "-o", tmp_path / "out.ndjson", "--save", tmp_path / "after.bary"]
    labels = ["--labels", tmp_path / "labels.json", "--labels-normal", "normal"]
    result = call("run", fitted[0], TARGET, *how, *labels)
    assert "7 labels used" in result.stderr  # a row every two hours
    assert "new class impeller crack" in result.stderr
    assert baryflow.load(tmp_path / "after.bary").classes_[-1] == "impeller crack"
    result = call("run", fitted[0], TARGET, *how, *labels[:2])
    assert "name the normal class" in result.stderr


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
def test_every_output_format_has_the_same_records(fitted, kind, tmp_path):
    with Path(TARGET).open(newline="", encoding="utf-8") as file:
        rows = [line for _, line in zip(range(41), file, strict=False)]
    (tmp_path / "rows.csv").write_text("".join(rows), encoding="utf-8")
    out = tmp_path / f"out.{kind}"
    call("run", fitted[0], tmp_path / "rows.csv", "-o", out)
    if kind == "parquet":
        pq = pytest.importorskip("pyarrow.parquet")
        labels = pq.read_table(out).column("label").to_pylist()
    elif kind == "csv":
        with out.open(newline="") as file:
            labels = [row["label"] for row in csv.DictReader(file)]
    else:
        labels = [json.loads(line)["label"] for line in out.read_text().splitlines()]
    assert len(labels) == 40
    assert set(labels) <= set(baryflow.load(fitted[0]).classes_)


def test_bad_rows_are_quarantined_and_counted(fitted, tmp_path):
    lines = Path(TARGET).read_text(encoding="utf-8").splitlines()[:61]
    lines[5] = lines[5].replace(",", ";")  # one cell
    lines[9] += ",more"  # one cell too many
    lines[20] = ",".join(["2024", "fast", *lines[20].split(",")[2:]])  # a word
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = {name: tmp_path / f"{name}.ndjson" for name in ("out", "events", "aside")}
    result = call(
        "run", fitted[0], tmp_path / "rows.csv", "-o", files["out"],
        "--events", files["events"], "--quarantine", files["aside"],
    )  # fmt: skip
    assert "60 rows = 57 predicted + 3 quarantined" in result.stderr
    aside = [json.loads(line) for line in files["aside"].read_text().splitlines()]
    assert [row["position"] for row in aside] == [5, 9, 20]
    assert all(row["reason"] and row["raw"] for row in aside)
    kinds = [json.loads(line)["event"] for line in files["events"].read_text().splitlines()]
    assert kinds.count("quarantine") == 3
    assert kinds.count("batch") == 2


def test_the_report_page_shows_drift(fitted, tmp_path):
    other = Path(LABELLED[1]).read_text(encoding="utf-8").splitlines()[1:]
    rows = Path(TARGET).read_text(encoding="utf-8").splitlines()
    rows[1:] = np.random.default_rng(0).permutation(rows[1:]).tolist()  # in no particular order
    rows += [line.rsplit(",", 1)[0] for line in np.random.default_rng(0).permutation(other)[:300]]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    paths = {name: tmp_path / name for name in ("out.csv", "events.ndjson", "after.bary", "page.html")}
    how = ["--events", paths["events.ndjson"], "--save", paths["after.bary"]]
    result = call("run", fitted[0], tmp_path / "rows.csv", "-o", paths["out.csv"], *how)
    assert "the target has changed" in result.stderr
    drifts = [e for e in map(json.loads, paths["events.ndjson"].read_text().splitlines())
              if e["event"] == "drift"]  # fmt: skip
    assert 900 < drifts[0]["position"] <= 1100
    alone = call("report", paths["after.bary"], "--events", paths["events.ndjson"], code=1)
    assert "--events needs --html" in alone.stderr
    page = ["--html", paths["page.html"], "--events", paths["events.ndjson"]]
    call("report", paths["after.bary"], *page)
    text = paths["page.html"].read_text(encoding="utf-8")
    assert "<svg" in text
    assert "the target has changed" in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_rows_from_standard_input(fitted):
    text = "".join(Path(TARGET).read_text(encoding="utf-8").splitlines(keepends=True)[:11])
    found = subprocess.run(
        [sys.executable, "-m", "baryflow", "run", str(fitted[0]), "-"],
        input=text.encode(),
        capture_output=True,
        check=True,
    )
    assert len(found.stdout.splitlines()) == 10
    assert b"10 rows = 10 predicted + 0 quarantined" in found.stderr


def test_evaluate_compares_the_domains_and_tries_what_is_known_of_a_target(short, tmp_path):
    figure = tmp_path / "figure.png"
    known = ["--baseline-rows", 10, "--normal-class", "normal", "--labels", 2]
    more = ["--scoring", "balanced_accuracy", "--labels-per-class", 3, "--figure", figure]
    result = call("evaluate", *short, *HOW, *CHEAP, *known, *more)
    accuracy, labels = result.stdout.split("Verdict: ")[:2]
    for name in ("pump_a", "pump_c", "mean"):
        assert name in accuracy
        assert name in labels
    assert "18 labels" in result.stdout
    assert result.stdout.count("up to 1 point count") == 2
    assert figure.stat().st_size > 10_000
    assert "balanced accuracy of settings" in result.stdout
    for words in ("10 baseline rows, 2 labels", "Recommended: "):
        assert words in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", *LABELLED, "--label", "state", "--domain-from-file"], "state"),
        (["fit", *LABELLED, "--label", "condition"], "--domain-from-file"),
        (["fit", *LABELLED, *HOW, "--domain", "shift"], "--domain-from-file"),
        (["fit", *LABELLED, *HOW, "--class-prior", "normal"], "CLASS=SHARE"),
        (["fit", *LABELLED, *HOW, "--class-prior", "well=0.5"], "bearing wear"),
        (["fit", *LABELLED, *HOW, "--ignore", "speeed"], "speeed"),
    ],
)
def test_fit_refuses_wrong_options_before_it_learns(arguments, words, tmp_path):
    result = call(*arguments, "-o", tmp_path / "m.bary", code=1)
    assert words in result.stderr
    assert not (tmp_path / "m.bary").exists()


def test_run_refuses_wrong_inputs_before_it_follows(fitted, tmp_path):
    (tmp_path / "rows.csv").write_text("speed_rpm,flow_m3_h\n1,2\n")
    assert "seal_temp_C" in call("run", fitted[0], tmp_path / "rows.csv", code=1).stderr
    same = ["-o", tmp_path / "x.ndjson", "--events", tmp_path / "x.ndjson"]
    assert "two outputs" in call("run", fitted[0], TARGET, *same, code=1).stderr
    kept = ["--checkpoint", tmp_path / "kept"]
    assert "standard output" in call("run", fitted[0], TARGET, *kept, code=1).stderr
    baryflow.Mixture([1.0], [[0.0]], [[1.0]]).save(tmp_path / "mixture.bary")
    assert "baryflow fit" in call("run", tmp_path / "mixture.bary", TARGET, code=1).stderr
    assert "does not adapt" in call("report", tmp_path / "mixture.bary", code=1).stderr
    assert "not followed" in call("plot", fitted[0], "-o", tmp_path / "p.png", code=1).stderr


@pytest.mark.parametrize("option", ["-o", "--quarantine", "--events", "--save"])
def test_run_never_overwrites_its_inputs(fitted, tmp_path, option):
    rows = tmp_path / ("rows.bary" if option == "--save" else "rows.ndjson")
    rows.write_text("nothing to lose\n")
    more = [] if option == "-o" else ["-o", tmp_path / "out.ndjson"]
    result = CliRunner().invoke(main, ["run", *map(str, [fitted[0], rows, *more, option, rows])])
    assert result.exit_code == 1
    assert "overwritten" in result.stderr
    assert rows.read_text() == "nothing to lose\n"
    saved = fitted[0].read_bytes()
    same = CliRunner().invoke(main, ["run", str(fitted[0]), TARGET, "--save", str(fitted[0])])
    assert "overwritten" in same.stderr
    assert fitted[0].read_bytes() == saved


def test_fit_writes_a_bary_file_and_nothing_else(tmp_path):
    result = CliRunner().invoke(main, ["fit", TARGET, "--label", "x", "--domain", "y", "-o", TARGET])
    assert result.exit_code == 2
    assert ".bary" in result.stderr


def test_model_and_input_in_the_wrong_order(fitted):
    result = CliRunner().invoke(main, ["run", TARGET, str(fitted[0])])
    assert result.exit_code == 1
    assert ".bary" in result.stderr


def test_fit_and_evaluate_point_out_a_counter_by_name_once(tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        flow = rng.normal(size=40) + 4 * (np.arange(40) % 2)
        lines = [f"{100 + i},{flow[i]:.3f},{'ok' if i % 2 else 'worn'}" for i in range(40)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["record_id,flow,condition", *lines]) + "\n")
    files = [tmp_path / "a.csv", tmp_path / "b.csv", "--label", "condition", "--domain-from-file"]
    for command in (["fit", *files, *CHEAP, "-o", tmp_path / "m.bary"], ["evaluate", *files, *CHEAP]):
        found = call(*command).stderr
        assert found.count("rises") == 1
        assert "--ignore record_id" in found
        assert "rises" not in call(*command, "--ignore", "record_id").stderr


def test_what_evaluate_recommends_is_one_command(short, tmp_path):
    how = ["--class-proportions", "normal=0.85", "--seeds", 1, "--write", tmp_path / "found.toml"]
    result = call("evaluate", *short, *HOW, *CHEAP, *how)
    text = result.stdout.split("Recommended: ")[1]
    found = tomllib.loads((tmp_path / "found.toml").read_text(encoding="utf-8"))
    assert found["fit"] | {"label": "condition", "domain-from-file": True} == found["fit"]
    assert found["fit"]["class-prior"] == ["normal=0.85"]
    assert "--class-prior normal=0.85 -o model.bary" in text
    assert all(str(file) in text for file in short)
    model = tmp_path / "m.bary"
    call("--config", tmp_path / "found.toml", "fit", *short, "-o", model)
    assert baryflow.load(model).class_prior == {"normal": 0.85}
    assert "exists" in call("evaluate", *short, *HOW, *CHEAP, *how, code=1).stderr


def test_fit_can_only_standardise(short, tmp_path):
    result = call("fit", *short, *HOW, *CHEAP, "--adapt", "standardise", "-o", tmp_path / "m.bary")
    assert "standardised by its own mean" in result.stdout
    assert baryflow.load(tmp_path / "m.bary").adapt == "standardise"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--baseline-rows", 30], "--normal-class"),
        (["--baseline-rows", 30, "--normal-class", "normal", "--window", 5], "--normal-rows"),
        (["--class-proportions", "normal"], "--class-proportions must be CLASS=SHARE"),
        (["--class-proportions", "well=0.5"], "bearing wear"),
        (["--class-proportions", "normal=0.8", "--class-proportions", "cavitation=0.8"], "sum"),
        (["--normal-class", "normal"], "--window"),
    ],
)
def test_evaluate_refuses_knowledge_that_makes_no_sense(short, options, words):
    assert words in call("evaluate", *short, *HOW, *CHEAP, *options, code=1).stderr
