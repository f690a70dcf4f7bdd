from pathlib import Path

import numpy as np
import pytest

from benchmarks import pages
from experiments.drift import __main__ as drift

PAGE = Path(pages.ROOT / "docs" / "drift.md")


def committed(**wanted):
    return [r for r in drift.read() if all(r[name] == value for name, value in wanted.items())]


def test_it_runs_at_reduced_size_and_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(drift, "ORDERS", ("shuffled",))
    monkeypatch.setattr(drift, "BEFORE", 400)
    monkeypatch.setattr(drift, "DETECTORS", ("ours", "ours, not calibrated"))
    path = tmp_path / "drift.csv"
    given = ["--sets", "made", "--seeds", "1", "--rows", "640", "--results", str(path)]
    drift.main(given)
    first = path.read_text()
    rows = drift.read(path)
    assert [r["alarms"] for r in rows] == ["0"] * 4
    assert all(0 < int(r["delay"]) <= 64 for r in rows if r["stream"] == "changing")
    assert "| made | shuffled | ours | 1 of 1 |" in capsys.readouterr().out
    drift.main(given)
    assert path.read_text() == first


def test_a_detector_is_counted_before_and_after_the_change():
    table = np.full((60, 4), np.nan)
    table[:, 0] = (np.random.default_rng(0).permutation(60) + 0.5) / 60
    table[40:, 0] = 0.001
    found = drift.count(table, [drift.BettingDetector(100.0) for _ in range(4)], 40)
    assert found[:2] == (40, 0)
    assert 1 <= found[2] <= 10


def test_the_page_shows_the_committed_results():
    text, rows = PAGE.read_text(), drift.read()
    for stream in drift.STREAMS:
        assert pages.filled(text, stream, drift.table(rows, stream)) == text


@pytest.mark.parametrize("order", ["shuffled", "runs"])
@pytest.mark.parametrize("name", ["made", "tep"])
def test_the_committed_results_reach_their_bars(name, order):
    mine = {"set": name, "order": order, "detector": "ours"}
    still, changing = (committed(**mine, stream=stream) for stream in drift.STREAMS)
    assert len(still) == len(changing) == 10
    n_rows, alarms = (sum(int(r[field]) for r in still) for field in ("rows", "alarms"))
    assert n_rows >= 10_000
    assert alarms / n_rows <= 1e-4
    assert sum(r["delay"] != "" and int(r["delay"]) <= 200 for r in changing) >= 9
