"""Rows on which the model raises are quarantined by a backfill, and the target continues."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from baryflow import OnlineDaDiL
from baryflow.distributed import backfill, open_target
from baryflow.runtime import Session
from tests.distributed import fleets

MODEL = fleets.fit()
#: The injected model raises on rows with this value.
FATAL = 17.25


def with_fatal_rows(table, rows):
    """Return the table with the fatal value in some rows."""
    flow = table["flow"].to_numpy().copy()
    flow[rows] = FATAL
    return table.set_column(table.schema.get_field_index("flow"), "flow", pa.array(flow))


def run(client, folder, **options):
    options = {"key": "pump", "time": "when", "batch_size": 16, "epoch_rows": 40} | options
    places = {name: folder / name for name in ("output", "state", "events")}
    return backfill(MODEL, folder / "in", client=client, **places, **options)


def break_method(monkeypatch, name):
    """Let a method of all models raise on batches that contain the fatal value."""
    original = getattr(OnlineDaDiL, name)

    def broken(self, X, *more, **named):
        if (np.asarray(getattr(X, "values", X)) == FATAL).any():
            raise ArithmeticError("injected failure")
        return original(self, X, *more, **named)

    monkeypatch.setattr(OnlineDaDiL, name, broken)


def quarantined(folder, target):
    return [json.loads(line) for line in fleets.events(folder / "output/_quarantine", target)]


def events_of(folder, target, kind):
    found = [json.loads(line) for line in fleets.events(folder / "events", target)]
    return [event for event in found if event["event"] == kind]


def assert_balance(folder, summary):
    assert summary.rows == summary.used + summary.quarantined
    files = list((folder / "output/_quarantine").rglob("*.ndjson"))
    assert summary.quarantined == sum(len(file.read_text().splitlines()) for file in files)
    assert summary.predicted == pq.read_table(folder / "output").num_rows


@pytest.mark.parametrize("layout", [fleets.by_folder, fleets.mixed])
@pytest.mark.parametrize("failing", [range(20, 21), range(16, 32), range(30, 50)])
def test_rows_on_which_the_model_raises_are_quarantined(client, tmp_path, monkeypatch, layout, failing):
    """One row, a whole batch, and rows of two epochs."""
    break_method(monkeypatch, "assess")
    failing = list(failing)
    bad, good = fleets.rows_of(2, 100), fleets.rows_of(0, 70)
    layout(tmp_path / "in", tables={"bad": with_fatal_rows(bad, failing), "good": good})
    summary = run(client, tmp_path)
    assert summary.failed == {}
    assert (summary.rows, summary.quarantined) == (170, len(failing))
    assert_balance(tmp_path, summary)
    positions = [row + 1 for row in failing]
    rows = quarantined(tmp_path, "bad")
    assert [row["position"] for row in rows] == positions
    assert all("injected failure" in row["reason"] for row in rows)
    assert all(str(FATAL) in row["raw"] for row in rows)
    assert [event["position"] for event in events_of(tmp_path, "bad", "quarantine")] == positions
    # The rest is predicted and learned from as if these rows did not exist.
    kept = bad.take(np.setdiff1d(np.arange(100), failing))
    expected, _ = fleets.alone(MODEL, kept, tmp_path, batch_size=16)
    found = fleets.read(tmp_path / "output", "bad")
    assert [row["position"] for row in found] == [n for n in range(1, 101) if n not in positions]
    assert [row | {"position": 0} for row in found] == [row | {"position": 0} for row in expected]
    assert (
        fleets.read(tmp_path / "output", "good") == fleets.alone(MODEL, good, tmp_path, batch_size=16)[0]
    )


def test_later_calls_continue_after_a_failing_batch(client, tmp_path, monkeypatch):
    break_method(monkeypatch, "assess")
    fleets.by_folder(
        tmp_path / "in", tables={"7": with_fatal_rows(fleets.rows_of(0, 40), slice(24, 40))}
    )
    first = run(client, tmp_path)
    assert (first.used, first.quarantined, first.failed) == (24, 16, {})
    before = fleets.content(tmp_path / "output")
    assert run(client, tmp_path) == first  # the batch is not tried again
    assert fleets.content(tmp_path / "output") == before
    fleets.by_folder(tmp_path / "in", 2, {"7": fleets.rows_of(0, 40, skip=40)})
    second = run(client, tmp_path)
    assert (second.used, second.quarantined, second.failed) == (64, 16, {})
    assert_balance(tmp_path, second)
    assert open_target(tmp_path / "state", "7").n_samples_seen_ == 64


def test_batches_from_which_the_model_cannot_learn_are_reported(client, tmp_path, monkeypatch):
    """Their rows are predicted, so they count as used; the model stays as it was before the batch."""
    break_method(monkeypatch, "absorb")
    fleets.mixed(tmp_path / "in", tables={"7": with_fatal_rows(fleets.rows_of(0, 80), [20])})
    summary = run(client, tmp_path)
    assert (summary.used, summary.predicted, summary.unlearned, summary.failed) == (80, 80, 16, {})
    assert_balance(tmp_path, summary)
    (warning,) = events_of(tmp_path, "7", "warning")
    assert "injected failure" in json.dumps(warning)
    assert warning["rows"] == 16
    assert open_target(tmp_path / "state", "7").n_samples_seen_ == 64


def test_epochs_on_which_the_session_raises_are_quarantined(client, tmp_path, monkeypatch):
    """An error outside of the model would repeat in every call, so its whole epoch is quarantined."""
    apply = Session.apply

    def broken(self, rows, labels=None):
        result = apply(self, rows, labels)  # the session has changed when it fails
        if (rows.values == FATAL).any():
            raise ArithmeticError("injected failure")
        return result

    monkeypatch.setattr(Session, "apply", broken)
    table = fleets.rows_of(2, 120)
    fleets.mixed(tmp_path / "in", tables={"7": with_fatal_rows(table, [50]), "8": fleets.rows_of(1)})
    summary = run(client, tmp_path)
    assert (summary.rows, summary.used, summary.quarantined, summary.failed) == (153, 113, 40, {})
    assert_balance(tmp_path, summary)
    rows = quarantined(tmp_path, "7")
    assert [row["position"] for row in rows] == list(range(41, 81))
    assert all("injected failure" in row["reason"] for row in rows)
    kept = table.take(np.r_[0:40, 80:120])
    expected, _ = fleets.alone(MODEL, kept, tmp_path, batch_size=16)
    found = fleets.read(tmp_path / "output", "7")
    assert [row | {"position": 0} for row in found] == [row | {"position": 0} for row in expected]
    assert run(client, tmp_path) == summary
