"""Which targets have rows in which files: counted once, and never confused with other files."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from baryflow import distributed
from baryflow.distributed.fleet import backfill, groups, manifest
from baryflow.distributed.fleet.groups import Group, run_group
from baryflow.distributed.fleet.job import JobContext, TargetSnapshot, target_folder
from baryflow.distributed.fleet.manifest import CountJob, Manifest, PartitionCount, count_partition
from baryflow.distributed.parquet import Folder
from baryflow.distributed.store import Store
from baryflow.exceptions import InvalidInputError
from tests.distributed import fleets

MODEL = fleets.fit()


def do(client, folder, source, **how):
    how = {"key": "pump", "batch_size": 16, "epoch_rows": 24} | how
    where = {"output": folder / "out", "state": folder / "state"}
    return distributed.backfill(MODEL, source, client=client, **where, **how)


def write(path, number, targets):
    """Write a file with a row for each target; None names no target."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = fleets.rows_of(number, len(targets)).append_column("pump", pa.array(targets, pa.string()))
    pq.write_table(table, path, row_group_size=1000)


def unassigned(folder):
    """Return the quarantined rows that name no target."""
    files = sorted((folder / "out/_quarantine/no-target").iterdir())
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def interrupted(client, tmp_path, monkeypatch):
    """A folder whose rows were counted by a call that was killed before it wrote the manifest."""
    source = tmp_path / "in"
    write(source / "2026-02.parquet", 1, ["A"] * 40 + [None] * 3)
    write(source / "2026-03.parquet", 2, ["B"] * 30 + [None])

    def stop(store, value, name, save=Store.save):
        if isinstance(value, Manifest):
            raise KeyboardInterrupt
        save(store, value, name)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            do(client, tmp_path / "wild", source)
    assert len(unassigned(tmp_path / "wild")) == 4
    return tmp_path


def check_against_calm(client, folder):
    wild, calm = (do(client, folder / name, folder / "in") for name in ("wild", "calm"))
    assert wild == calm
    assert not wild.failed
    assert fleets.content(folder / "wild/out") == fleets.content(folder / "calm/out")
    assert len(unassigned(folder / "wild")) == wild.rows - wild.predicted
    return wild


def test_files_with_earlier_names_do_not_change_counts(client, interrupted):
    write(interrupted / "in/2026-01.parquet", 3, ["C"] * 20 + [None] * 2)
    assert check_against_calm(client, interrupted).predicted == 90


def test_file_rewritten_before_the_manifest_is_counted_again(client, interrupted):
    write(interrupted / "in/2026-02.parquet", 3, [None] * 2 + ["C"] * 41)
    assert check_against_calm(client, interrupted).predicted == 71
    assert sorted(row["position"] for row in unassigned(interrupted / "wild")) == [1, 2, 31]


def test_foreign_quarantine_files_are_deleted(client, interrupted):
    check_against_calm(client, interrupted)
    folder = interrupted / "wild/out/_quarantine/no-target"
    late = folder / f"000000-{'0' * 32}-000000.ndjson"
    late.write_bytes(next(folder.iterdir()).read_bytes())
    check_against_calm(client, interrupted)


def test_index_of_earlier_days_is_not_read(client, tmp_path, monkeypatch):
    source = tmp_path / "in"
    for day in range(3):
        for part in range(4):
            write(source / f"{day}-{part}.parquet", day, ["early" if part < 2 else "late"] * 10)
        do(client, tmp_path, source)
    whole = fleets.content(tmp_path / "out")
    for key in ("early", "late"):
        (tmp_path / f"state/targets/target={key}/000002.bary").unlink()
        (tmp_path / f"out/target={key}/000002.parquet").unlink()
    loaded = []

    def spy(store, kind, name, load=Store.load):
        loaded.append((kind, store.url))
        return load(store, kind, name)

    monkeypatch.setattr(Store, "load", spy)
    context = JobContext(
        *(Store(str(tmp_path / name)) for name in ("in", "state", "out")), fingerprint="test"
    )
    for number, key in enumerate(("early", "late")):
        run_group(Group(number, context, [key], 3))
        # Only of the last day, and only from the first of its rows to the last.
        indexes = [url.rsplit("/", 1)[1] for kind, url in loaded if kind is PartitionCount]
        assert indexes == ["000002"] * 2
        loaded.clear()
    assert fleets.content(tmp_path / "out") == whole


@pytest.mark.parametrize("named", ["by a column", "by folders"])
def test_rows_without_a_target_are_quarantined_in_chunks(tmp_path, monkeypatch, named):
    targets = [None, "7", None] * 30
    write(tmp_path / "in/a.parquet", 0, targets)
    folder = Folder.open(str(tmp_path / "in"))
    (partition,) = folder.partitions
    if named == "by folders":
        partition, targets = replace(partition, folders={"pump": ""}), [None] * 90
    monkeypatch.setattr(manifest, "_QUARANTINE_ROWS", 16)
    index, quarantine = (
        Store(str(tmp_path / name)) for name in ("index/000000", "out/_quarantine/no-target")
    )
    job = CountJob(folder, partition, "", 0, 100, "pump", fleets.COLUMNS, index, quarantine)
    expected = [i for i, target in enumerate(targets) if target is None]
    assert count_partition(job).without_target == len(expected)
    names = quarantine.names()
    assert len(names) == -(-len(expected) // 16)
    files = [tmp_path / "out/_quarantine/no-target" / name for name in names]
    assert all(len(file.read_text().splitlines()) <= 16 for file in files)
    rows = unassigned(tmp_path)
    assert [row["position"] for row in rows] == [101 + i for i in expected]
    cells = fleets.rows_of(0, 90).select(fleets.COLUMNS).to_pylist()
    assert [row["raw"] for row in rows] == [",".join(map(str, cells[i].values())) for i in expected]


def test_lists_cannot_name_targets(client, tmp_path):
    (tmp_path / "in").mkdir()
    table = fleets.rows_of(0).append_column("pump", pa.array([[1]] * 70))
    pq.write_table(table, tmp_path / "in/a.parquet")
    with pytest.raises(InvalidInputError, match="cannot name targets"):
        do(client, tmp_path, tmp_path / "in")
    # Nothing was written, so another column is not refused.
    assert do(client, tmp_path, tmp_path / "in", key="when").targets == 70


def test_long_target_names_are_complete_in_the_output(client, tmp_path):
    long = ["ü" * 60, "ü" * 61]
    write(tmp_path / "in/a.parquet", 1, long * 20)
    summary = do(client, tmp_path, tmp_path / "in")
    assert (summary.predicted, summary.failed) == (40, {})
    assert sorted(pq.read_table(tmp_path / "out")["key"].unique().to_pylist()) == long
    states = Store(str(tmp_path / "state/targets" / target_folder(long[0])))
    assert states.load(TargetSnapshot, "000000.bary").name == long[0]


@pytest.mark.parametrize(("layout", "least"), [(fleets.by_folder, 64), (fleets.mixed, 16)])
def test_there_are_groups_for_workers_that_join_later(client, tmp_path, monkeypatch, layout, least):
    wanted = []

    def assign_targets(known, n, weight):
        wanted.append(n)
        return groups.assign_targets(known, n, weight)

    monkeypatch.setattr(backfill, "assign_targets", assign_targets)
    source = layout(tmp_path / "in", tables={"1": fleets.rows_of(0), "2": fleets.rows_of(1)})
    assert do(client, tmp_path, source).predicted == 103
    assert wanted == [least]  # with one worker


def test_many_workers_have_several_groups_each():
    assert groups.count_groups(100, shared_files=False) == 800
    assert groups.count_groups(100, shared_files=True) == 300
