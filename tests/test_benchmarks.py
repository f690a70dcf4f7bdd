"""The runner of the benchmarks: what is kept, what is run again, and what the table says."""

import json
import sys

import pytest

from benchmarks import __main__ as runner
from benchmarks import cases, harness, report
from benchmarks.harness import Curve, Outcome, Result, judge


@pytest.mark.parametrize(
    ("ours_s", "bar", "quality", "ok"),
    [
        (1.0, 2.0, {}, True),
        (1.1, 2.0, {}, False),
        (1.1, None, {}, True),
        (1.0, 2.0, {"ok": False}, False),
    ],
)
def test_a_result_is_held_against_its_bar_and_its_quality(ours_s, bar, quality, ok):
    assert judge("case", ours_s, "rival", 2.0, bar, quality).ok is ok


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A place for results, and cases that only count how often they were run."""
    runs = []

    def alone(case):
        runs.append(case)
        return Outcome([judge(case, 1.0, "rival", 2.0, 1.0)], [], harness.environment())

    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(cases, "CASES", {"one": None, "two-a": None, "two-b": None})
    monkeypatch.setattr(runner, "run_alone", alone)
    monkeypatch.setattr(report, "write", len)
    return runs


def test_an_interrupted_run_resumes_where_it_stopped(results, monkeypatch):
    assert runner.main(["one"]) == 0
    assert runner.main([]) == 0
    assert results == ["one", "two-a", "two-b"]
    monkeypatch.setattr(harness, "_digest", lambda: "changed")
    assert runner.main([]) == 0
    assert results[3:] == ["one", "two-a", "two-b"]


def test_named_cases_run_again_and_names_may_be_beginnings(results):
    runner.main(["two"])
    runner.main(["two-b"])
    assert results == ["two-a", "two-b", "two-b"]
    with pytest.raises(SystemExit):
        runner.main(["three"])


def test_outcomes_survive_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results.json")
    curve = Curve("rows", "rows", "seconds", [1, 10], {"ours": [0.1, None]})
    outcome = Outcome([Result("a", 1.0, "b", 2.0, 2.0, None, ok=True)], [curve], harness.environment())
    harness.write({"case": outcome})
    assert harness.read() == {"case": outcome}
    assert {"baryflow", "numpy", "cpus"} <= json.loads(harness.RESULTS.read_text())["case"][
        "environment"
    ].keys()


def test_a_case_runs_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert runner.run_alone("import") is None
