import json
import os
import signal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from baryflow import OnlineDaDiL, container, load
from baryflow.distributed import backfill, open_target
from baryflow.distributed.cluster import connect
from baryflow.distributed.files import Files
from baryflow.distributed.groups import Group, run_group
from baryflow.distributed.output import BackfillPlan, Job
from baryflow.distributed.targets import Slice, Target
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.features import SignalFeatures, SignalModel
from baryflow.runtime import Rows
from tests.distributed import fleets

MODEL = fleets.fit()


def do(client, folder, source, **how):
    how = {"key": "pump", "time": "when", "batch_size": 16, "epoch_rows": 24} | how
    return backfill(
        how.pop("model", MODEL),
        source,
        output=folder / "out",
        state=folder / "state",
        client=client,
        **how,
    )


@pytest.mark.parametrize("layout", [fleets.by_folder, fleets.mixed])
def test_each_target_is_followed_as_if_it_were_alone(client, tmp_path, layout):
    summary = do(client, tmp_path, layout(tmp_path / "in"), drift="report")
    assert summary.targets == len(fleets.TARGETS)
    assert summary.rows == summary.predicted == sum(fleets.ROWS)
    assert not summary.failed
    for number, key in enumerate(fleets.TARGETS):
        expected, _ = fleets.alone(
            MODEL, fleets.rows_of(number), tmp_path, batch_size=16, drift="report"
        )
        assert fleets.read(tmp_path / "out", key) == expected
    assert max(record["rows_seen"] for record in expected) == 48  # it did learn


@pytest.fixture(scope="module")
def undisturbed(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return do(client, folder, fleets.mixed(folder / "in")), folder


def test_second_call_changes_nothing(client, undisturbed):
    summary, folder = undisturbed
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert do(client, folder, folder / "in") == summary
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_same_rows_give_same_bytes(client, tmp_path, undisturbed):
    _, folder = undisturbed
    do(client, tmp_path, fleets.mixed(tmp_path / "in"))
    assert fleets.content(tmp_path / "out") == fleets.content(folder / "out")
    assert fleets.content(tmp_path / "state/targets") == fleets.content(folder / "state/targets")


def test_only_the_last_two_states_are_kept(undisturbed):
    _, folder = undisturbed
    assert [path.name for path in sorted((folder / "state/targets/target=10").iterdir())] == [
        "000003.bary",
        "000004.bary",
    ]


def test_open_target_returns_the_adapted_model(undisturbed):
    _, folder = undisturbed
    found = open_target(folder / "state", "10")
    expected = MODEL.spawn()
    for start in range(0, 96, 16):
        expected.partial_fit(fleets.rows_of(2, 16, skip=start).select(fleets.COLUMNS).to_pandas())
    assert found.report() == expected.report()
    T = fleets.rows_of(2, 50).select(fleets.COLUMNS).to_pandas()
    np.testing.assert_array_equal(found.predict_proba(T), expected.predict_proba(T))
    with pytest.raises(InvalidInputError, match="no state of a target called '11'"):
        open_target(folder / "state", "11")
    with pytest.raises(FileFormatError, match="is missing"):
        open_target(folder / "nowhere", "10")


def test_damaged_states_are_computed_again(client, tmp_path):
    source = fleets.by_folder(tmp_path / "in")
    do(client, tmp_path, source)
    whole = fleets.content(tmp_path / "out")
    states = tmp_path / "state/targets"
    (states / "target=10/000004.bary").write_bytes(b"cut off")
    for path in states.glob("target=1/*"):
        path.write_bytes(path.read_bytes()[:-1])
    for path in tmp_path.glob("out/target=1*/*"):
        path.unlink()
    assert do(client, tmp_path, source).predicted == sum(fleets.ROWS)
    found = fleets.content(tmp_path / "out")
    # One target repeats its last epoch, another all of its epochs, and the others nothing.
    assert whole.keys() - found.keys() == {f"target=10/00000{n}.parquet" for n in range(4)}
    assert all(whole[name] == data for name, data in found.items())


@pytest.mark.parametrize("layout", [fleets.by_folder, fleets.mixed])
def test_added_files_are_processed_as_later_rows(client, tmp_path, layout):
    first = {key: fleets.rows_of(i) for i, key in enumerate(fleets.TARGETS)}
    more = {"10": fleets.rows_of(2, 30, skip=100), "new": fleets.rows_of(7, 20)}
    layout(tmp_path / "in", tables=first)
    do(client, tmp_path, tmp_path / "in")
    before = fleets.content(tmp_path / "out")
    layout(tmp_path / "in", part=4, tables=more)
    summary = do(client, tmp_path, tmp_path / "in")
    assert (summary.targets, summary.predicted) == (len(first) + 1, sum(fleets.ROWS) + 50)
    assert (
        fleets.read(tmp_path / "out", "10")
        == fleets.alone(MODEL, fleets.rows_of(2, 130), tmp_path, batch_size=16)[0]
    )
    assert before.items() < fleets.content(tmp_path / "out").items()


def test_unfinished_files_of_killed_workers_are_deleted(client, tmp_path):
    events = tmp_path / "events"
    do(client, tmp_path, fleets.mixed(tmp_path / "in"), events=events)
    places = (
        "state",
        "state/manifests",
        "state/targets/target=10",
        "out/target=10",
        "out/_quarantine/target=10",
        "events/target=10",
    )
    for place in places:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / ".000009.bary.k3x_9aqe.unfinished").write_bytes(b"half")
    more = fleets.mixed(tmp_path / "in", 3, {"10": fleets.rows_of(2, 30, skip=100)})
    do(client, tmp_path, more, events=events)
    assert not list(tmp_path.rglob(".*"))


def test_processed_files_may_be_deleted_and_missing_files_affect_their_targets_only(client, tmp_path):
    source = fleets.by_folder(tmp_path / "in", tables={"1": fleets.rows_of(0), "2": fleets.rows_of(1)})
    do(client, tmp_path, source)
    fleets.by_folder(
        source, 2, {"1": fleets.rows_of(0, 30, skip=70), "2": fleets.rows_of(1, 30, skip=33)}
    )
    for path in source.glob("*/part-[01].parquet"):
        path.unlink()
    (tmp_path / "state/targets/target=2").rename(tmp_path / "lost")
    summary = do(client, tmp_path, source)
    assert summary.failed.keys() == {"2"}
    assert "part-0.parquet" in summary.failed["2"]
    assert len(fleets.read(tmp_path / "out", "1")) == 100


def test_truncated_file_affects_its_target_only(client, tmp_path):
    source = fleets.by_folder(tmp_path / "in")
    cut_off = source / "pump=10/part-0.parquet"
    whole = cut_off.read_bytes()
    cut_off.write_bytes(whole[:100])
    summary = do(client, tmp_path, source)
    assert summary.failed.keys() == {"10"}
    assert "part-0.parquet cannot be read as Parquet" in summary.failed["10"]
    assert summary.predicted == sum(fleets.ROWS) - fleets.ROWS[2]
    cut_off.write_bytes(whole)  # complete now: no row of this target was processed before
    assert do(client, tmp_path, source).failed == {}
    expected, _ = fleets.alone(MODEL, fleets.rows_of(2), tmp_path, batch_size=16)
    assert fleets.read(tmp_path / "out", "10") == expected


def test_truncated_file_with_rows_of_any_target_is_refused(client, tmp_path):
    source = fleets.mixed(tmp_path / "in")
    (source / "part-1.parquet").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"part-1\.parquet cannot be read as Parquet"):
        do(client, tmp_path, source)


def test_file_with_another_number_of_rows_is_refused(client, tmp_path):
    source = fleets.mixed(tmp_path / "in")
    do(client, tmp_path, source)
    table = pq.read_table(source / "part-0.parquet")
    pq.write_table(table.slice(1), source / "part-0.parquet")
    with pytest.raises(InvalidInputError, match=r"part-0.parquet had \d+ rows"):
        do(client, tmp_path, source)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"model": fleets.fit(1)}, "another model"),
        ({"batch_size": 8}, "batch_size=16, got 8"),
        ({"time": None}, "time='when', got None"),
        ({"drift": "report"}, "drift='off'"),
        ({"events": "elsewhere"}, "events=None, got '.*elsewhere'"),
    ],
)
def test_other_settings_are_refused(client, undisturbed, how, words):
    _, folder = undisturbed
    with pytest.raises(InvalidInputError, match=words):
        do(client, folder, folder / "in", **how)


@pytest.mark.parametrize("which", ["given before", "kept"])
def test_another_release_resumes_with_the_same_model(client, tmp_path, monkeypatch, which):
    source = fleets.by_folder(tmp_path / "in", tables={"1": fleets.rows_of(0)})
    with monkeypatch.context() as patch:
        patch.setattr(container, "version", lambda _: "0.0.1")
        do(client, tmp_path, source)
    assert b"0.0.1" in (tmp_path / "state/model.bary").read_bytes()
    fleets.by_folder(source, 2, {"1": fleets.rows_of(0, 30, skip=70)})
    model = MODEL if which == "given before" else load(tmp_path / "state/model.bary")
    assert do(client, tmp_path, source, model=model).predicted == 100
    with pytest.raises(InvalidInputError, match="another model"):
        do(client, tmp_path, source, model=fleets.fit(1))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"key": "unit"}, "no column 'unit'"),
        ({"key": "flow"}, "'flow' is a feature.* key"),
        ({"time": "heat"}, "'heat' is a feature.* time"),
        ({"model": 3}, "must be a fitted OnlineDaDiL"),
        ({"drift": "panic"}, "drift must be one of"),
        ({"epoch_rows": 0}, "epoch_rows"),
    ],
)
def test_invalid_arguments_are_refused_before_writing(client, tmp_path, undisturbed, how, words):
    with pytest.raises(InvalidInputError, match=words):
        do(client, tmp_path, undisturbed[1] / "in", **how)
    assert not list(tmp_path.iterdir())


def test_folders_must_be_separate(client, tmp_path, undisturbed):
    _, folder = undisturbed
    with pytest.raises(InvalidInputError, match="is inside"):
        do(client, folder / "in", folder / "in")
    with pytest.raises(InvalidInputError, match="not empty"):
        backfill(MODEL, folder / "in", key="pump", output=folder / "out", state=tmp_path, client=client)


@pytest.mark.parametrize("layout", [fleets.by_folder, fleets.mixed])
def test_unusable_rows_are_quarantined_and_the_balance_holds(client, tmp_path, layout):
    table = fleets.rows_of(0)
    flow = table["flow"].to_numpy().copy()
    flow[[3, 30, 31, 69]] = [np.inf, 1e300, -np.inf, np.inf]
    flow[40] = np.nan  # missing values are allowed
    table = table.set_column(1, "flow", pa.array(flow))
    source = layout(tmp_path / "in", tables={"1": table, "2": fleets.rows_of(1)})
    summary = do(client, tmp_path, source)
    assert (summary.rows, summary.predicted, summary.quarantined) == (103, 99, 4)
    expected, quarantined = fleets.alone(MODEL, table, tmp_path, batch_size=16)
    assert fleets.read(tmp_path / "out", "1") == expected
    lines = fleets.events(tmp_path / "out/_quarantine", "1")
    assert [json.loads(line) for line in lines] == [{"key": "1", **row} for row in quarantined]
    # They are not among the predictions, whichever library reads the folder.
    assert len(dd.read_parquet(tmp_path / "out")) == len(pd.read_parquet(tmp_path / "out")) == 99
    assert [row["position"] for row in quarantined] == [4, 31, 32, 70]


def test_rows_without_a_target_are_quarantined(client, tmp_path):
    source = fleets.mixed(tmp_path / "in", tables={"1": fleets.rows_of(0), "": fleets.rows_of(1, 4)})
    table = fleets.rows_of(2, 3)
    pq.write_table(table.append_column("pump", pa.nulls(3, pa.string())), source / "part-9.parquet")
    summary = do(client, tmp_path, source)
    assert (summary.rows, summary.predicted, summary.quarantined) == (77, 70, 7)
    files = sorted((tmp_path / "out/_quarantine/no-target").iterdir())
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(records) == 7
    last = [record for record in records if "part-9.parquet" in record["reason"]]
    assert [record["position"] for record in last] == [1, 2, 3]
    assert last[-1]["raw"].startswith(str(table["flow"][2]))


def test_rows_in_a_folder_without_a_value_have_no_target(client, tmp_path):
    source = fleets.by_folder(
        tmp_path / "in", tables={"1": fleets.rows_of(0), "__HIVE_DEFAULT_PARTITION__": fleets.rows_of(1)}
    )
    summary = do(client, tmp_path, source)
    assert (summary.targets, summary.predicted, summary.quarantined) == (1, 70, 33)


def test_targets_may_be_numbers_or_categories(client, tmp_path):
    table = fleets.rows_of(0)
    numbers = pa.array([7, 8] * 35)
    for name, keys in (("numbers", numbers), ("words", numbers.cast(pa.string()).dictionary_encode())):
        (tmp_path / name / "in").mkdir(parents=True)
        pq.write_table(table.append_column("pump", keys), tmp_path / name / "in/a.parquet")
        assert do(client, tmp_path / name, tmp_path / name / "in").targets == 2
    assert fleets.content(tmp_path / "numbers/out") == fleets.content(tmp_path / "words/out")
    assert len(fleets.read(tmp_path / "words/out", "7")) == 35


def test_progress_is_reported_to_the_end(client, tmp_path):
    reports = []
    source = fleets.mixed(tmp_path / "in")
    do(client, tmp_path, source, progress=lambda *report: reports.append(report))
    assert reports[-1] == (sum(fleets.ROWS), sum(fleets.ROWS), "following 5 targets")
    assert all(0 <= done <= total for done, total, _ in reports)


def test_killed_worker_changes_no_output(client, tmp_path, monkeypatch):
    """More kills are in experiments/distributed."""
    tables = {str(i): fleets.rows_of(i, 120) for i in range(2)}
    source = fleets.mixed(tmp_path / "in", tables=tables)
    (tmp_path / "calm").mkdir()
    do(client, tmp_path / "calm", source, events=tmp_path / "calm/events")
    killed = []

    def kill(*_):
        if not killed and _epochs(tmp_path / "wild/state/targets") >= 3:  # of 10
            killed.append(nanny.pid)
            os.kill(nanny.pid, signal.SIGKILL)

    with connect("local", 1) as processes:
        # Dask then fails a task at once when its worker dies, and it is submitted again.
        monkeypatch.setattr(processes.cluster.scheduler, "allowed_failures", 0)
        nanny = processes.cluster.workers[0]
        summary = do(
            processes, tmp_path / "wild", source, events=tmp_path / "wild/events",
            progress=kill,
        )  # fmt: skip
    assert killed
    assert summary.predicted == 240
    for name in ("out", "events"):
        assert fleets.content(tmp_path / "wild" / name) == fleets.content(tmp_path / "calm" / name)
    assert len(fleets.events(tmp_path / "wild/events", "1")) >= 7  # a batch of 16 rows, each


def _epochs(states):
    last = [
        max((path.stem for path in one.glob("[0-9]*.bary")), default="-1") for one in states.glob("*")
    ]
    return sum(int(name) + 1 for name in last)


def test_raw_signals_are_predicted_by_window(client, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 16, 4)), np.tile(["still", "loose"], 30)
    X[1::2, :, 1] *= 3
    features = SignalFeatures(max_features=4)
    rows = features.fit_transform(X, y)
    fitted = OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(
        rows, y, np.ones(len(y), dtype=int)
    )
    features.channels_ = list(fleets.COLUMNS)
    model = SignalModel(features, fitted, step=4)
    summary = do(client, tmp_path, fleets.by_folder(tmp_path / "in"), model=model)
    expected, _ = fleets.alone(model, fleets.rows_of(2), tmp_path, batch_size=16)
    assert fleets.read(tmp_path / "out", "10") == expected
    assert len(expected) == 22  # windows do not end with epochs
    assert summary.used == summary.rows > summary.predicted


@pytest.fixture
def job(undisturbed):
    """The same backfill, to run groups directly."""
    _, folder = undisturbed
    plan = Files(str(folder / "state")).load(BackfillPlan, "plan.bary")
    return Job(plan, *(Files(str(folder / name)) for name in ("in", "state", "out")))


def test_two_workers_with_the_same_group_write_the_same_files(client, job, undisturbed):
    _, folder = undisturbed
    before = fleets.content(folder / "out"), fleets.content(folder / "state")
    for path in [*folder.glob("state/targets/*/*"), *folder.glob("out/*/*")]:
        path.unlink()
    group = Group(0, job, list(fleets.TARGETS), 1, "progress")
    both = [client.submit(run_group, group, key=f"one of two {n}") for n in range(2)]
    for report in client.gather(both):
        assert not report.failed
        assert report.predicted == sum(fleets.ROWS)
    assert fleets.content(folder / "out") == before[0]
    # One may write a state that the other has deleted already, which does no harm.
    assert fleets.content(folder / "state").items() >= before[1].items()


def test_overtaken_worker_continues_from_the_latest_state(job):
    rows = Rows(np.zeros((24, 4)), np.arange(25, 49), [""] * 24, [""] * 24)
    late = Target(job, "10", [100], epoch=1)
    assert late.add(Slice(rows, [], 24, 48))  # done already, and the state before it is deleted
    assert (late.epoch, late.counts.rows, late.has_work) == (5, 100, False)
