"""Which targets have rows in which files: counted once, and never confused with other files."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from baryflow import distributed
from baryflow.distributed.files import Files
from baryflow.distributed.manifest import Manifest
from baryflow.distributed.output import TargetSnapshot, target_folder
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

    def stop(store, value, name, save=Files.save):
        if isinstance(value, Manifest):
            raise KeyboardInterrupt
        save(store, value, name)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            do(client, tmp_path / "wild", source)
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


def test_files_of_earlier_days_are_not_read(client, tmp_path):
    source = tmp_path / "in"
    for day in range(3):
        for part in range(4):
            write(source / f"{day}-{part}.parquet", day, ["early" if part < 2 else "late"] * 10)
        do(client, tmp_path, source)
    whole = fleets.content(tmp_path / "out")
    for key in ("early", "late"):
        (tmp_path / f"state/targets/target={key}/000002.bary").unlink()
        (tmp_path / f"out/target={key}/000002.parquet").unlink()
    for path in source.glob("[01]-*.parquet"):
        path.unlink()
    assert not do(client, tmp_path, source).failed
    assert fleets.content(tmp_path / "out") == whole


@pytest.mark.parametrize("named", ["by a column", "by folders"])
def test_rows_without_a_target_are_quarantined_in_epochs(client, tmp_path, named):
    targets = [None, "7", None] * 30
    place = "in"
    if named == "by folders":
        targets, place = [None] * 90, "in/pump="
    path = tmp_path / place / "a.parquet"
    write(path, 0, targets)
    if named == "by folders":
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["pump"]), path)
    expected = [i for i, target in enumerate(targets) if target is None]
    summary = do(client, tmp_path, tmp_path / "in", epoch_rows=16)
    assert (summary.quarantined, summary.targets) == (len(expected), 1 - (named == "by folders"))
    files = sorted((tmp_path / "out/_quarantine/no-target").iterdir())
    assert len(files) == -(-len(expected) // 16)
    assert all(len(file.read_text().splitlines()) <= 16 for file in files)
    rows = unassigned(tmp_path)
    assert [row["position"] for row in rows] == [1 + i for i in expected]
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
    states = Files(str(tmp_path / "state/targets" / target_folder(long[0])))
    assert states.load(TargetSnapshot, "000000.bary").name == long[0]
