from pathlib import Path

import pytest

from benchmarks import pages
from experiments.drift import __main__ as drift

PAGE = Path(pages.ROOT / "docs" / "method" / "drift.md")


def committed(**wanted):
    return [r for r in drift.read() if all(r[name] == value for name, value in wanted.items())]


def test_it_runs_at_reduced_size_and_resumes_where_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(drift.ROWS, "made", 800)
    monkeypatch.setattr(drift, "BEFORE", 640)
    path = tmp_path / "drift.csv"
    how = ["--sets", "made", "--orders", "shuffled", "--detectors", "ours", "--seeds", "1"]
    drift.main([*how, "--results", str(path)])
    first = path.read_text()
    rows = drift.read(path)
    assert [r["alarms"] for r in rows] == ["0", "0"]
    assert [0 < int(r["delay"]) <= 64 for r in rows if r["stream"] == "changing"] == [True]
    assert "| made | shuffled | ours | 1 of 1 | 1 | 1 |" in capsys.readouterr().out
    drift.main([*how, "--results", str(path)])
    assert path.read_text() == first


def test_the_page_shows_the_committed_results():
    text, rows = PAGE.read_text(), drift.read()
    for stream in drift.STREAMS:
        assert pages.filled(text, stream, drift.table(rows, stream)) == text


def test_there_are_hardly_any_false_alarms():
    still = committed(detector="ours", stream="stationary")
    watched, alarms = (sum(int(r[field]) for r in still) for field in ("watched", "alarms"))
    assert watched >= 100_000
    assert alarms <= watched / 100_000


@pytest.mark.parametrize("name", drift.SETS)
def test_one_class_after_the_other_is_not_watched_and_the_reason_is_given(name):
    rows = committed(set=name, order="class", detector="ours", stream="stationary")
    assert len(rows) == 10
    assert sum(int(r["watched"]) for r in rows) <= 0.02 * sum(int(r["rows"]) for r in rows)
    assert all(r["reason"] for r in rows)


@pytest.mark.parametrize("name", ["made", "tep", "pumps", "gas", "cwru4", "digits4"])
def test_changes_of_shuffled_streams_are_found_soon(name):
    rows = committed(set=name, order="shuffled", detector="ours", stream="changing")
    assert len(rows) == 10
    assert sum(r["delay"] != "" and int(r["delay"]) <= drift.SOON for r in rows) >= 9
