"""Events of each target of a backfill."""

import json

import distributed
import numpy as np
import pyarrow as pa
import pytest

from baryflow.distributed import backfill
from baryflow.exceptions import InvalidInputError
from tests.distributed import fleets

MODEL = fleets.fit()
HOW = {"batch_size": 16, "drift": "report"}


def do(client, folder, **how):
    places = {name: folder / name for name in ("output", "state", "events")}
    how = {"key": "pump", "time": "when", "epoch_rows": 24, **HOW, **places} | how
    return backfill(MODEL, folder / "in", client=client, **how)


def changing(number, n=900):
    """Return the rows of a target with an outlier, which drifts after 700 rows."""
    table = fleets.rows_of(number, n)
    values = np.stack([table[name].to_numpy() for name in fleets.COLUMNS])
    values[:, 700:] = 3.0 * values[::-1, 700:]
    values[2, 20 * number] = 1e6
    return pa.table({"when": table["when"], **dict(zip(fleets.COLUMNS, values, strict=True))})


@pytest.mark.parametrize("layout", [fleets.by_folder, fleets.mixed])
def test_events_are_those_of_a_runner(client, tmp_path, layout):
    tables = {
        "1": fleets.rows_of(0),
        "a/b .": changing(2),
        "": fleets.rows_of(3),
        "few": fleets.rows_of(3),
    }
    layout(tmp_path / "in", tables=tables)
    summary = do(client, tmp_path)
    found = {key: fleets.events(tmp_path / "events", key) for key in ("1", "a/b .")}
    for key, lines in found.items():
        assert lines == fleets.events_alone(MODEL, tables[key], tmp_path, key, **HOW)
    events = [json.loads(line) for lines in found.values() for line in lines]
    assert {event["event"] for event in events} == {"batch", "drift", "watch", "column"}
    drifts = [event for event in events if event["event"] == "drift"]
    assert summary.drifts == len(drifts)
    assert min(event["position"] for event in drifts) > 700
    # Five rows complete no batch: no events, no file, no folder.
    assert len(list((tmp_path / "events").iterdir())) == 2


def test_quarantined_rows_have_events_at_their_positions(client, tmp_path):
    table = fleets.rows_of(0)
    flow = table["flow"].to_numpy().copy()
    flow[[3, 40, 41]] = np.inf
    table = table.set_column(1, "flow", pa.array(flow))
    fleets.mixed(tmp_path / "in", tables={"7": table, "8": fleets.rows_of(1)})
    do(client, tmp_path)
    found = [json.loads(line) for line in fleets.events(tmp_path / "events", "7")]
    assert [(event["event"], event["position"]) for event in found] == [
        ("quarantine", 4), ("batch", 17), ("batch", 33), ("quarantine", 41), ("quarantine", 42),
        ("batch", 51), ("batch", 67),
    ]  # fmt: skip
    # A runner reports them while it reads, without the target.
    alone = [json.loads(line) for line in fleets.events_alone(MODEL, table, tmp_path, "7", **HOW)]
    bad = [event for event in alone if event["event"] == "quarantine"]
    named = [event | {"key": "7", "message": f"7: {event['message']}"} for event in bad]
    assert [event for event in found if event["event"] == "quarantine"] == named
    assert [event for event in found if event not in named] == [e for e in alone if e not in bad]


def test_repeated_epochs_give_the_same_events(client, tmp_path):
    fleets.by_folder(tmp_path / "in", tables={"1": fleets.rows_of(0)})
    do(client, tmp_path, epoch_rows=8)
    whole = fleets.content(tmp_path / "events")
    for name in ("state/targets", "events"):
        for path in (tmp_path / name / "target=1").iterdir():
            path.unlink()
    do(client, tmp_path, epoch_rows=8)
    assert fleets.content(tmp_path / "events") == whole
    # Every other epoch completes a batch; epochs without events have no file.
    assert list(whole) == [f"target=1/00000{epoch}.ndjson" for epoch in (1, 3, 5, 7)]


def test_events_need_a_separate_folder(client, tmp_path):
    fleets.mixed(tmp_path / "in")
    with pytest.raises(InvalidInputError, match="is inside"):
        do(client, tmp_path, events=tmp_path / "in/events")
    for name in ("output", "state"):
        with pytest.raises(InvalidInputError, match=f"{name} twice"):
            do(client, tmp_path, events=tmp_path / name)
    (tmp_path / "events").mkdir()
    (tmp_path / "events/other").touch()
    with pytest.raises(InvalidInputError, match=r"events is not empty"):
        do(client, tmp_path)
    assert not (tmp_path / "state").exists()


def test_threads_of_a_worker_do_not_mix_up_targets(client, tmp_path):
    tables = {str(number): changing(number, 240) for number in (1, 2)}
    fleets.by_folder(tmp_path / "in", tables=tables)
    do(client, tmp_path, drift="off")
    calm = fleets.content(tmp_path / "events")
    for path in [*tmp_path.glob("state/targets/*/*"), *tmp_path.glob("events/*/*")]:
        path.unlink()
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as two_threads,
    ):
        assert do(two_threads, tmp_path, drift="off").failed == {}
    assert fleets.content(tmp_path / "events") == calm
