"""Whose rows are in which files of a fleet: counted once, and never taken for those of other files."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from baryflow.distributed import follow
from baryflow.distributed.fleet import assign as grouping
from baryflow.distributed.fleet import backfill
from baryflow.distributed.fleet import index as indexing
from baryflow.distributed.fleet import manifest as arrivals
from baryflow.distributed.fleet.assign import Group, follow_group
from baryflow.distributed.fleet.manifest import Count, Look, count, folder_of
from baryflow.distributed.fleet.worker import JobContext, Snapshot
from baryflow.distributed.parquet import Folder
from baryflow.distributed.store import Store
from baryflow.exceptions import InvalidInputError
from tests.distributed import fleets

MODEL = fleets.fit()


def do(client, folder, source, **how):
    how = {"key": "machine", "batch_size": 16, "epoch_rows": 24} | how
    return follow(MODEL, source, output=folder / "out", state=folder / "state", client=client, **how)


def write(path, number, keys):
    """Write a file with a row for each key; None is a row of nobody."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = fleets.rows_of(number, len(keys)).append_column("machine", pa.array(keys, pa.string()))
    pq.write_table(table, path, row_group_size=1000)


def nobody(folder):
    """Return the rows of nobody that were put aside."""
    files = sorted((folder / "out/_quarantine/nobody").iterdir())
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def interrupted(client, tmp_path, monkeypatch):
    """A folder whose rows were counted by a call that was stopped before it could write down all."""
    source = tmp_path / "in"
    write(source / "2026-02.parquet", 1, ["A"] * 40 + [None] * 3)
    write(source / "2026-03.parquet", 2, ["B"] * 30 + [None])

    def stop(*given, gather=indexing._gather):
        gather(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(indexing, "_gather", stop)
        with pytest.raises(KeyboardInterrupt):
            do(client, tmp_path / "wild", source)
    assert len(nobody(tmp_path / "wild")) == 4
    return tmp_path


def check_against_calm(client, folder):
    wild, calm = (do(client, folder / name, folder / "in") for name in ("wild", "calm"))
    assert wild == calm
    assert not wild.failed
    assert fleets.content(folder / "wild/out") == fleets.content(folder / "calm/out")
    assert len(nobody(folder / "wild")) == wild.rows - wild.predicted
    return wild


def test_files_that_sort_before_those_that_were_counted_take_nothing_from_them(client, interrupted):
    write(interrupted / "in/2026-01.parquet", 3, ["C"] * 20 + [None] * 2)
    assert check_against_calm(client, interrupted).predicted == 90


def test_a_file_that_was_written_again_before_all_was_counted_is_counted_again(client, interrupted):
    write(interrupted / "in/2026-02.parquet", 3, [None] * 2 + ["C"] * 41)
    assert check_against_calm(client, interrupted).predicted == 71
    assert sorted(row["position"] for row in nobody(interrupted / "wild")) == [1, 2, 31]


def test_one_that_counts_late_leaves_nothing_for_good(client, interrupted):
    check_against_calm(client, interrupted)
    folder = interrupted / "wild/out/_quarantine/nobody"
    late = folder / f"000000-{'0' * 32}-000000.ndjson"
    late.write_bytes(next(folder.iterdir()).read_bytes())
    check_against_calm(client, interrupted)


def test_what_was_done_on_earlier_days_is_not_looked_at_again(client, tmp_path, monkeypatch):
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

    def load_told(store, kind, name, load=Store.load):
        loaded.append((kind, store.url))
        return load(store, kind, name)

    monkeypatch.setattr(Store, "load", load_told)
    context = JobContext(
        *(Store(str(tmp_path / name)) for name in ("in", "state", "out")), mark="by hand"
    )
    for number, key in enumerate(("early", "late")):
        follow_group(Group(number, context, [key], 3))
        # Of the last day, and of that only what is between the first of its rows and the last.
        notes = [url.rsplit("/", 1)[1] for kind, url in loaded if kind is Count]
        assert notes == ["000002"] * 2
        loaded.clear()
    assert fleets.content(tmp_path / "out") == whole


@pytest.mark.parametrize("named", ["by a column", "by folders"])
def test_rows_of_nobody_are_put_aside_some_at_a_time(tmp_path, monkeypatch, named):
    keys = [None, "7", None] * 30
    write(tmp_path / "in/a.parquet", 0, keys)
    folder = Folder.open(str(tmp_path / "in"))
    (piece,) = folder.pieces
    if named == "by folders":
        piece, keys = replace(piece, folders={"machine": ""}), [None] * 90
    monkeypatch.setattr(arrivals, "_ASIDE", 16)
    index, output = (Store(str(tmp_path / name)) for name in ("index/000000", "out"))
    look = Look(folder, piece, "", 0, 100, "machine", fleets.COLUMNS, index, output)
    expected = [i for i, key in enumerate(keys) if key is None]
    assert count(look).nameless == len(expected)
    names = (output / "_quarantine/nobody").names()
    assert len(names) == -(-len(expected) // 16)
    files = [tmp_path / "out/_quarantine/nobody" / name for name in names]
    assert all(len(file.read_text().splitlines()) <= 16 for file in files)
    rows = nobody(tmp_path)
    assert [row["position"] for row in rows] == [101 + i for i in expected]
    cells = fleets.rows_of(0, 90).select(fleets.COLUMNS).to_pylist()
    assert [row["raw"] for row in rows] == [",".join(map(str, cells[i].values())) for i in expected]


def test_lists_cannot_name_targets(client, tmp_path):
    (tmp_path / "in").mkdir()
    table = fleets.rows_of(0).append_column("machine", pa.array([[1]] * 70))
    pq.write_table(table, tmp_path / "in/a.parquet")
    with pytest.raises(InvalidInputError, match=r"a column of list<.*> cannot name targets: expected"):
        do(client, tmp_path, tmp_path / "in")
    # Nothing was begun with this key: another one is not refused.
    assert do(client, tmp_path, tmp_path / "in", key="when").targets == 70


def test_long_keys_are_followed_and_readable_in_what_comes_out(client, tmp_path):
    long = ["ü" * 60, "ü" * 61]
    write(tmp_path / "in/a.parquet", 1, long * 20)
    summary = do(client, tmp_path, tmp_path / "in")
    assert (summary.predicted, summary.failed) == (40, {})
    assert sorted(pq.read_table(tmp_path / "out")["key"].unique().to_pylist()) == long
    states = Store(str(tmp_path / "state/targets" / folder_of(long[0])))
    assert states.load(Snapshot, "000000.bary").key == long[0]


@pytest.mark.parametrize(("layout", "least"), [(fleets.by_folder, 64), (fleets.mixed, 16)])
def test_workers_that_come_later_find_work(client, tmp_path, monkeypatch, layout, least):
    wanted = []

    def deal(known, n, weight):
        wanted.append(n)
        return grouping.deal(known, n, weight)

    monkeypatch.setattr(backfill, "deal", deal)
    source = layout(tmp_path / "in", tables={"1": fleets.rows_of(0), "2": fleets.rows_of(1)})
    assert do(client, tmp_path, source).predicted == 103
    assert wanted == [least]  # one worker is there


def test_many_workers_have_several_groups_each():
    assert backfill._count_groups(100, shared=False) == 800
    assert backfill._count_groups(100, shared=True) == 300
