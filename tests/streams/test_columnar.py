import contextlib
import datetime as dt
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest

from baryflow.exceptions import InvalidInputError
from baryflow.streams import open_source
from tests.streams.files import read_all, read_rows, rejected_of, require, rows_of, write


@pytest.fixture
def parquet(tmp_path):
    """A file of 50 rows in groups of 20, with invalid values in rows 8 and 31."""
    require("pyarrow")
    import pyarrow.parquet as pq
    from pyarrow import table

    flow = [float(i) for i in range(50)]
    flow[30] = float("inf")
    content = {
        "time": [dt.datetime(2024, 1, 1, 0, i) for i in range(50)],
        "flow": flow,
        "count": [None if i == 3 else i for i in range(50)],
        "word": ["x" if i == 7 else str(i) for i in range(50)],
        "on": [i % 2 == 0 for i in range(50)],
    }
    pq.write_table(table(content), tmp_path / "a.parquet", row_group_size=20)
    return tmp_path / "a.parquet"


@pytest.mark.parametrize("n", [1, 7, 20, 100])
def test_parquet(parquet, n):
    batches = read_all(parquet, ["on", "word", "count", "flow"], n, time="time")
    rows = rows_of(batches)
    assert [one.position for one in rejected_of(batches)] == [8, 31]
    assert rejected_of(batches)[0].raw.startswith("2024-01-01 00:07:00,False,x,7,7.0")
    assert rows[:3].tolist() == [[1, 0, 0, 0], [0, 1, 1, 1], [1, 2, 2, 2]]
    assert np.isnan(rows[3, 2])
    assert rows[-1].tolist() == [0, 49, 49, 49]
    assert batches[-1].times[-1] == "2024-01-01 00:49:00"
    assert len(rows) == 48


def test_cursors_of_parquet(parquet):
    whole = read_rows(parquet, ["flow"], 50)
    with contextlib.closing(open_source(parquet, columns=["flow"])) as source:
        cursors = [source.read(9).cursor for _ in range(5)]
        for cursor in cursors:
            source.seek(cursor)
            rest = [row for n in (1, 50) for row in source.read(n).rows.tolist()]
            assert rest == whole[-len(rest) :]
            assert source.read(1) is None
        with pytest.raises(InvalidInputError, match="has 50 rows"):
            source.seek({"position": 3, "rows": 4})


def test_invalid_parquet_files_are_refused(tmp_path, parquet):
    with pytest.raises(InvalidInputError, match="damaged or incomplete"):
        open_source(write(tmp_path / "b.parquet", parquet.read_bytes()[:100]), columns=None)
    with pytest.raises(InvalidInputError, match="no column 'nothing'"):
        open_source(parquet, columns=["nothing"])


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"baryflow\[parquet\]"):
        open_source(tmp_path / "a.parquet", columns=None)


def test_numpy_archives(tmp_path):
    X = np.arange(6.0).reshape(3, 2)
    X[1, 0] = np.inf
    np.savez(
        tmp_path / "a.npz", X=X, columns=["p", "q"], unit=["A", "B", "B"], more=np.eye(3), n=[1, 2, 3]
    )
    with contextlib.closing(
        open_source(tmp_path / "a.npz", columns=["n", "q", "more2"], key="unit")
    ) as source:
        assert source.columns == ["p", "q", "unit", "more0", "more1", "more2", "n"]
        batch = source.read(2)
        assert batch.rows.tolist() == [[1, 1, 0], [2, 3, 0]]
        assert batch.keys == ["A", "B"]
        source.seek(batch.cursor)
        assert source.read(2).rows.tolist() == [[3, 5, 1]]
        assert source.read(2) is None
    assert [one.position for one in rejected_of(read_all(tmp_path / "a.npz", ["p"]))] == [2]


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("<f8", (0, 10**7)), ("<f8", (10**7, 0)), ("<f8", (10**12,)), ("|S0", (10**12,))],
)
def test_an_archive_that_claims_much_and_holds_nothing_is_refused(tmp_path, kind, shape):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="npz"):
            open_source(tmp_path / "a.npz", columns=None)
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 not in shape or used < 2**20  # others are not even touched


def test_invalid_archives_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(2), y=[1, 2, 3])
    with pytest.raises(InvalidInputError, match="the same number of rows"):
        open_source(tmp_path / "a.npz", columns=None)
    np.savez(tmp_path / "b.npz", X=np.array([{}], dtype=object))
    for path in (
        tmp_path / "b.npz",
        write(tmp_path / "c.npz", b"PK nothing"),
        write(tmp_path / "d.npz", b""),
    ):
        with pytest.raises(InvalidInputError, match="plain arrays"):
            open_source(path, columns=None)
