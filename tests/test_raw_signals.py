"""From raw signals in files to a model that takes raw rows, on the command line."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import baryflow
from baryflow.cli import main
from baryflow.cli.evaluate import give_verdict
from baryflow.exceptions import InvalidInputError
from baryflow.features import OnnxEncoder, SignalModel, windows
from baryflow.model_selection import DomainScore, Evaluation, PlainScore

FANS = Path(__file__).parent.parent / "examples" / "fans"
LABELLED = [str(FANS / f"fan_{name}.csv") for name in "abcd"]
HOW = ["--label", "condition", "--domain-from-file", "--time", "seconds"]
CUT = ["--window", "60", "--step", "30"]
CHEAP = ["--classifier", "linear", "--jobs", "1"]
CHANNELS = ["acceleration_g", "current_A", "gearbox_temp_C"]


def call(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.stderr + str(result.exception)
    return result


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    path = tmp_path_factory.mktemp("fitted") / "fans.bary"
    return path, call("fit", *LABELLED, *HOW, *CUT, *CHEAP, "-o", path)


@pytest.fixture(scope="module")
def target():
    """Return windows of the fan without labels, with the true condition of each."""
    truth = pd.read_csv(FANS / "fan_e_labels.csv")["condition"]
    return windows(pd.read_csv(FANS / "fan_e.csv")[CHANNELS], 60, 30, label=truth.to_numpy())


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return two files of two machines each, 30 rows in turn of both, and a network for them."""
    folder, rng = tmp_path_factory.mktemp("small"), np.random.default_rng(0)
    for name in ("one", "two"):
        machine = np.repeat(["left", "right"] * 4, 30)
        state = np.repeat(["ok", "worn"], 120)
        frame = pd.DataFrame({"machine": machine, "state": state})
        frame[["x", "z"]] = rng.normal(size=(240, 2)) * np.where(state == "ok", 1, 5)[:, None]
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_fit_says_how_many_windows_and_what_they_count_as(fitted):
    _, result = fitted
    for words in (
        "24,000 rows, 3 columns: acceleration_g, current_A, gearbox_temp_C",
        "796 windows of 60 rows, one every 30; in 12% the class changes",
    ):
        assert words in result.stderr
    assert "windows of 60 rows, one every 30; each becomes 32 features from 3 channels" in result.stdout
    assert "Decision: " in result.stdout


def test_features_on_the_fly_are_those_offline(fitted, target):
    pair = baryflow.load(fitted[0])
    assert isinstance(pair, SignalModel)
    assert pair.columns == CHANNELS
    stream, offline = pair.stream(), pair.features.transform(target)
    pushed = [found for found in map(stream.push, target.signals[:600]) if found is not None]
    np.testing.assert_array_equal(pushed, offline[: len(pushed)])
    assert len(pushed) == 19


def test_what_looks_at_a_model_looks_at_the_one_inside(fitted, target, tmp_path):
    pair = baryflow.load(fitted[0])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        pair.model.partial_fit(pair.features.transform(target.where(np.arange(64))))
    pair.save(tmp_path / "it.bary")
    words = call("report", tmp_path / "it.bary").stdout
    assert words.startswith("Raw signals are cut into windows of 60 rows")
    assert "64 target rows seen" in words
    seen = call("inspect", tmp_path / "it.bary").stdout
    assert "3: acceleration_g, current_A, gearbox_temp_C" in seen
    assert "of 60 rows, one every 30" in seen
    assert "32 of each window, by statistics" in seen
    assert "windows seen  64 of the target" in seen
    call("plot", tmp_path / "it.bary", "-o", tmp_path / "it.png")
    assert (tmp_path / "it.png").stat().st_size > 10_000
    (tmp_path / "events.ndjson").write_text(json.dumps({"event": "batch", "position": 32}) + "\n")
    page = ["--html", tmp_path / "it.html", "--events", tmp_path / "events.ndjson"]
    call("report", tmp_path / "it.bary", *page)
    text = (tmp_path / "it.html").read_text(encoding="utf-8")
    assert "Raw signals are cut into windows of 60 rows" in text
    assert "No drift was reported along the stream." in text


def test_windows_never_cross_files_or_machines(small, tmp_path):
    files = [small / "one.csv", small / "two.csv"]
    how = ["--label", "state", "--domain", "machine", "--window", "50", "--step", "5", *CHEAP]
    result = call("fit", *files, *how, "-o", tmp_path / "m.bary")
    # A machine has 120 rows in a file: 15 windows, of two machines in two files.
    assert "60 windows of 50 rows, one every 5" in result.stderr
    assert "2 domains: left (240), right (240)" in result.stderr
    both = pd.concat([pd.read_csv(path) for path in files])
    both.to_csv(tmp_path / "both.csv", index=False)  # one file: one history of each machine
    result = call("fit", tmp_path / "both.csv", *how, "-o", tmp_path / "m.bary")
    assert "78 windows of 50 rows" in result.stderr


def test_what_is_normal_can_be_told_and_the_target_gets_it_later(small, tmp_path):
    how = ["--label", "state", "--domain", "machine", "--window", "20", "--step", "5", *CHEAP]
    result = call("fit", small / "one.csv", *how, "--normal-class", "ok", "-o", tmp_path / "m.bary")
    assert "deviations from 'ok'" in result.stderr
    assert "--baseline" in result.stderr
    pair = baryflow.load(tmp_path / "m.bary")
    assert pair.features.normal_.names == ["left", "right"]
    # A machine that shakes as much when it is well as the others do when they are worn.
    rows = np.random.default_rng(1).normal(5.0, 5.0, size=(100, 2))

    def share_of_ok():
        found = pair.features.transform(windows(rows, 20, 5))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            return np.mean(pair.model.predict(found) == "ok")

    assert share_of_ok() < 0.2
    pair.learn_normal(rows[:60])
    assert share_of_ok() > 0.8
    call("fit", small / "one.csv", *how, "-o", tmp_path / "m.bary")
    with pytest.raises(InvalidInputError, match="without saying which windows"):
        baryflow.load(tmp_path / "m.bary").learn_normal(rows)


def test_a_network_stands_in_the_same_place(small, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from tests.features.test_encoder import network

    (tmp_path / "e.onnx").write_bytes(network())
    how = ["--label", "state", "--domain", "machine", "--window", "20", "--jobs", "1"]
    encoder = ["--encoder", tmp_path / "e.onnx"]
    call("fit", small / "one.csv", *how, *encoder, "-o", tmp_path / "m.bary")
    pair = baryflow.load(tmp_path / "m.bary")
    assert isinstance(pair.features, OnnxEncoder)
    assert pair.step == 5  # a quarter of a window
    assert "by a network" in call("inspect", tmp_path / "m.bary").stdout
    result = call("evaluate", small / "one.csv", *how, *encoder)
    assert "Verdict: " in result.stdout
    # One for two channels, where there are three of them.
    result = call("fit", *LABELLED, *HOW, *CUT, *encoder, "-o", tmp_path / "no.bary", code=1)
    assert "failed on windows of length 60 with 3 channels" in result.stderr
    assert not (tmp_path / "no.bary").exists()


def test_a_network_without_what_computes_it(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (tmp_path / "e.onnx").write_bytes(b"anything")
    how = ["--label", "nothing", "--domain-from-file", "--window", "20"]
    result = call(
        "fit",
        small / "one.csv",
        *how,
        "--encoder",
        tmp_path / "e.onnx",
        "-o",
        tmp_path / "m.bary",
        code=1,
    )
    assert "pip install 'baryflow[encode]'" in result.stderr  # before the files are looked at


def test_evaluate_answers_with_a_table_and_a_verdict():
    told = ["--normal-class", "normal", "--normal-rows", "180"]
    result = call("evaluate", *LABELLED[:3], *HOW, *CUT, *told, *CHEAP)
    assert "597 windows of 60 rows" in result.stderr
    for name in ("fan_a", "fan_c", "mean"):
        assert name in result.stdout
    assert any(line.startswith("Verdict: ") for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([*HOW, "--window", "7000"], 1, "6,000"),
        ([*HOW, "--window", "60", "--step", "0"], 2, "--step"),
        ([*HOW, "--window", "1"], 2, "--window"),
        ([*HOW, "--step", "10"], 1, "--window"),
        ([*HOW, *CUT, "--normal-class", "well"], 1, "'well'"),
        ([*HOW, *CUT, "--encoder", "none.onnx"], 2, "'none.onnx' does not exist"),
        ([*HOW, *CUT, "--encoder", LABELLED[0], "--normal-class", "normal"], 1, "--normal-class"),
    ],
)
def test_what_cannot_be_cut_is_told_at_once(arguments, code, words, tmp_path):
    result = call("fit", *LABELLED, *arguments, "-o", tmp_path / "m.bary", code=code)
    assert words in result.stderr
    assert not (tmp_path / "m.bary").exists()


def test_a_domain_without_normal_operation_is_named(small, tmp_path):
    frame = pd.read_csv(small / "one.csv")
    frame[(frame.machine == "left") | (frame.state == "worn")].to_csv(tmp_path / "x.csv", index=False)
    how = ["--label", "state", "--domain", "machine", "--window", "20", "--normal-class", "ok"]
    result = call("fit", tmp_path / "x.csv", *how, "-o", tmp_path / "m.bary", code=1)
    assert "no window of 'right' is 'ok', so what is normal there is not known" in result.stderr


def evaluation(*figures):
    scores = (
        DomainScore(name, 0, 10, source, own, own, ours, ours, ours, 0.0)
        for name, (source, own, ours) in zip("abc", figures, strict=False)
    )
    return Evaluation(tuple(scores))


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (
            [(0.5, 0.6, 0.8), (0.5, 0.7, 0.7)],
            "adapting helps, by 10.0 points over standardising",
        ),
        (
            [(0.5, 0.9, 0.8), (0.5, 0.9, 0.7)],
            "standardising each domain separately is better than adapting, by 15.0 points",
        ),
        ([(0.9, 0.6, 0.8), (0.9, 0.6, 0.9)], "not adapting is better than adapting, by 5.0 points"),
        ([(0.9, 0.6, 0.9)], "adapting and not adapting are about equally good on average; on 1 of 1"),
    ],
)
def test_a_verdict_is_fair(figures, words):
    assert f"Verdict: while rows flow, {words}" in give_verdict(evaluation(*figures))


def test_a_verdict_states_its_tolerance():
    words = give_verdict(evaluation((0.5, 0.8, 0.798), (0.5, 0.8, 0.785)))
    assert words.count("equally good on average; on 1 of 2 domains") == 2
    assert "up to 1 point count" in words


def test_a_verdict_says_how_often():
    words = give_verdict(evaluation((0.5, 0.6, 0.8), (0.5, 0.9, 0.8)))
    assert words.count("on 1 of 2 domains adapting is at least as good") == 2


def test_the_verdict_is_on_what_flows_first_and_against_the_best_plain_classifier():
    plain = PlainScore("extra trees", 0.9, 0.7)
    score = DomainScore("a", 0, 10, 0.5, 0.6, 0.6, 0.8, 0.8, 0.0, plain=(plain,))
    flowing, end = give_verdict(Evaluation((score,))).split("After the stream")
    assert "extra trees is better than adapting, by 10.0 points" in flowing
    assert "adapting helps, by 10.0 points over extra trees" in end


def test_without_figures_while_rows_flow_the_verdict_is_on_the_end():
    score = DomainScore("a", 0, 10, 0.5, 0.6, 0.6, float("nan"), 0.8, 0.0)
    words = give_verdict(Evaluation((score,)))
    assert "adapting helps, by 20.0 points" in words
    assert "flow" not in words


def test_run_takes_raw_rows_and_says_of_windows_what_they_are(fitted, target, tmp_path):
    out = tmp_path / "out.ndjson"
    result = call(
        "run",
        fitted[0],
        FANS / "fan_e.csv",
        "--time",
        "seconds",
        "-o",
        out,
        "--save",
        tmp_path / "e.bary",
    )
    found = [json.loads(line) for line in out.read_bytes().splitlines()]
    n_rows = len(pd.read_csv(FANS / "fan_e.csv"))
    assert [r["position"] for r in found] == list(range(60, n_rows + 1, 30))
    assert f"{n_rows:,} rows = {n_rows:,} in {len(found):,} windows predicted" in result.stderr
    # Each window, before it was learned from, as in Python.
    pair, labels = baryflow.load(fitted[0]), []
    rows = pair.features.transform(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start in range(0, len(rows), 32):
            labels += pair.model.predict(rows[start : start + 32]).tolist()
            pair.model.partial_fit(rows[start : start + 32])
    assert [r["label"] for r in found] == labels
    saved = baryflow.load(tmp_path / "e.bary")
    assert isinstance(saved, SignalModel)
    assert saved.model.n_samples_seen_ == len(rows)


def test_run_can_be_told_what_is_normal_on_the_machine(fitted, tmp_path):
    told = tmp_path / "told.bary"
    call("fit", *LABELLED[:2], *HOW, *CUT, "--normal-class", "normal", *CHEAP, "-o", told)
    lines = (FANS / "fan_e.csv").read_text().splitlines(keepends=True)
    (tmp_path / "normal.csv").write_text("".join(lines[:181]))
    outputs = [tmp_path / "untold.ndjson", tmp_path / "told.ndjson"]
    for out, more in zip(outputs, ([], ["--baseline", tmp_path / "normal.csv"]), strict=True):
        call("run", told, FANS / "fan_e.csv", "-o", out, *more)
    assert outputs[0].read_bytes() != outputs[1].read_bytes()
    pair = baryflow.load(told)
    pair.learn_normal(pd.read_csv(tmp_path / "normal.csv")[CHANNELS])
    first = next(
        x
        for x in map(pair.stream().push, pd.read_csv(FANS / "fan_e.csv")[CHANNELS].to_numpy())
        if x is not None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chance = pair.model.predict_proba(first[None]).max()
    assert json.loads(outputs[1].read_bytes().splitlines()[0])["probability"] == round(chance, 6)
    result = call("run", fitted[0], FANS / "fan_e.csv", "--baseline", tmp_path / "normal.csv", code=1)
    assert "--normal-class CLASS" in result.stderr
