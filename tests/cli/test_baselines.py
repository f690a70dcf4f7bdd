"""Rows known to be normal, on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

import baryflow
from tests.cli.test_own_files import CHEAP, HOW, LABELLED, TARGET, call

NORMAL = ["--normal-class", "normal"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    path = tmp_path_factory.mktemp("fitted") / "pumps.bary"
    call("fit", *LABELLED[:2], *HOW, *CHEAP, *NORMAL, "-o", path)
    return path


@pytest.fixture(scope="module")
def forgetful(fitted):
    """Return a model that remembers no normal class."""
    model = baryflow.load(fitted)
    del model.normal_class_
    path = fitted.with_name("forgetful.bary")
    model.save(path)
    return path


@pytest.fixture
def files(tmp_path):
    """Return the header and first lines of the target."""
    lines = Path(TARGET).read_text().splitlines()
    rows, first = tmp_path / "rows.csv", tmp_path / "first.csv"
    rows.write_text("\n".join([lines[0], *lines[1:121], ""]))
    first.write_text("\n".join([lines[0], *lines[1:31], ""]))
    return rows, first, lines


def run(model, rows, out, *more):
    call("run", model, rows, "--time", "time", "-o", out, "--save", out.with_suffix(".bary"), *more)
    (baseline,) = baryflow.load(out.with_suffix(".bary")).state_.baselines
    return baseline, [json.loads(line) for line in out.read_text().splitlines()]


def test_fit_remembers_the_normal_class(fitted):
    assert baryflow.load(fitted).normal_class_ == "normal"


def test_first_rows_rows_until_a_time_and_a_file_are_the_same_baseline(fitted, files, tmp_path):
    rows, first, lines = files
    until = lines[30].split(",")[lines[0].split(",").index("time")]
    by_number, _ = run(fitted, rows, tmp_path / "a.ndjson", "--baseline-rows", 30)
    by_time, _ = run(fitted, rows, tmp_path / "b.ndjson", "--normal-until", until)
    by_file, records = run(fitted, rows, tmp_path / "c.ndjson", "--baseline", first)
    assert [one.n_rows for one in (by_number, by_time, by_file)] == [30, 30, 30]
    np.testing.assert_array_equal(by_number.mean, by_time.mean)
    np.testing.assert_allclose(by_number.mean, by_file.mean)
    assert len(records) == 120


def test_labels_with_a_column_baseline(fitted, files, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("position,label,baseline\n1,normal,true\n2,normal,yes\n3,normal,no\n")
    baseline, _ = run(fitted, files[0], tmp_path / "a.ndjson", "--labels", labels)
    assert baseline.n_rows == 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--baseline-rows", "30"], "--normal-class"),
        (["--baseline-rows", "30", "--normal-class", "fine"], "'fine'"),
        (["--baseline-rows", "30", "--normal-until", "2026-01-01", *NORMAL], "exclude"),
        (["--normal-until", "noon", *NORMAL], "'noon'"),
        (["--baseline", TARGET, "--key", "machine", *NORMAL], "--baseline-rows"),
    ],
)
def test_what_does_not_fit_is_refused(forgetful, tmp_path, more, words):
    result = call("run", forgetful, TARGET, "--time", "time", "-o", tmp_path / "o.csv", *more, code=1)
    assert words in result.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--baseline-rows", 30], "30 rows used as a baseline"),
        (["--baseline-rows", 300], "--baseline-rows 300: only 120 rows came"),
        (["--normal-until", "2020-01-01"], "no row has a time up to --normal-until 2020-01-01"),
    ],
)
def test_how_many_rows_were_a_baseline_is_shown(fitted, files, tmp_path, more, words):
    result = call("run", fitted, files[0], "--time", "time", "-o", tmp_path / "o.csv", *more)
    assert words in result.stderr
    assert "label" not in result.stderr


def test_a_file_of_normal_rows_and_its_units_are_named(fitted, files, tmp_path):
    rows, first, lines = files
    column = lines[0].split(",").index("discharge_pressure_bar")
    for path in (rows, first):
        cells = [line.split(",") for line in path.read_text().splitlines()]
        for one in cells[1:]:
            one[column] = str(14.5038 * float(one[column]))
        path.write_text("".join(",".join(one) + "\n" for one in cells))
    more = ["--baseline", first, "-o", tmp_path / "o.csv"]
    result = call("run", fitted, rows, "--time", "time", *more)
    assert "baseline: 30 rows of normal" in result.stderr
    assert "baseline: column 'discharge_pressure_bar': about ×14.5" in result.stderr


def test_a_resumed_run_has_the_same_options(fitted, files, tmp_path):
    out = tmp_path / "o.ndjson"
    how = ["--time", "time", "-o", out, "--checkpoint", tmp_path / "state"]
    given = ["--batch-size", 32, "--baseline-rows", 30, *NORMAL]
    call("run", fitted, files[0], *how, *given)
    written = out.read_bytes()
    for other, words in (
        (["--batch-size", 32, "--baseline-rows", 40, *NORMAL], "--baseline-rows 40"),
        (["--batch-size", 32, *NORMAL], "without --baseline-rows"),
        (["--batch-size", 32, "--baseline-rows", 30], "without --normal-class"),
        (["--baseline-rows", 30, *NORMAL], "without --batch-size"),
        ([*given, "--baseline", files[1]], "--baseline"),
    ):
        assert words in call("run", fitted, files[0], *how, *other, code=1).stderr
        assert out.read_bytes() == written
    call("run", fitted, files[0], *how, *given)
    assert out.read_bytes() == written
