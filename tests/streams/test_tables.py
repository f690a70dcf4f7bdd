import gzip
import json

import numpy as np
import pytest

from baryflow.exceptions import InvalidInputError
from baryflow.streams import read_table
from tests.streams.files import require, write


@pytest.fixture
def plant(tmp_path):
    """Four files with the same columns in four formats."""
    write(
        tmp_path / "A.csv",
        "\ufefftime;T;p;comment;state\r\n;°C;bar;;\r\n1.1.24;1,5;2;new;ok\r\n2.1.24;Bad;3;;worn\r\n",
    )
    rows = [{"state": "ok", "p": 4, "T": 5.5, "time": "t", "comment": "c"}, {"T": 1, "state": None}]
    write(tmp_path / "B.ndjson", "\n".join(map(json.dumps, rows)))
    (tmp_path / "C.tsv.gz").write_bytes(
        gzip.compress(b"p\tT\tstate\tcomment\ttime\n6\t7\tworn\t\t\nx\t1\tok\t\t\n", mtime=0)
    )
    np.savez(
        tmp_path / "D.npz",
        T=np.full(20, 8.0),
        p=np.arange(20),
        state=["ok"] * 20,
        comment=["-"] * 20,
        time=[""] * 20,
    )
    return [tmp_path / name for name in ("A.csv", "B.ndjson", "C.tsv.gz", "D.npz")]


def test_files_of_all_kinds_are_one_table(plant):
    seen = []
    table = read_table(plant, label="state", domain_from_file=True, time="time", progress=seen.append)
    assert table.columns == ["T", "p"]
    np.testing.assert_array_equal(table.X[:5], [[1.5, 2], [np.nan, 3], [5.5, 4], [7, 6], [8, 0]])
    assert table.y[:5].tolist() == ["ok", "worn", "ok", "worn", "ok"]
    assert table.domain.tolist() == ["A", "A", "B", "C", *["D"] * 20]
    assert table.file.tolist() == [0, 0, 1, 2, *[3] * 20]
    assert table.left_out == {"comment": "holds text, for example 'new'"}
    assert table.counts == {"files": 4, "rows": 24, "rejected": 1, "unlabelled": 1}
    ((file, one),) = table.rejected
    assert file.endswith("C.tsv.gz")
    assert (one.position, one.reason) == (2, "column 'p' holds 'x', which is not a number.")
    assert seen == [2, 4, 6, 26]


def test_columns_left_out_are_named(tmp_path):
    path = write(
        tmp_path / "a.csv", ",unit,T,empty,note,when\n0,A,1,,x,2024-01-01\n1,B,2,NA,,2024-01-02\n"
    )
    table = read_table([path], label="unit", domain="note", ignore=["when"])
    assert table.columns == ["T"]
    assert table.left_out == {
        "when": "is ignored",
        "empty": "has no values",
        "(column 1)": "has no name",
    }
    assert table.domain.tolist() == ["x"]
    assert [(one.position, one.reason) for _, one in table.rejected] == [(2, "it has no domain.")]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["1", "2", "-3"], [1, 2, -3]),
        (["1.0", "2.0", "0"], [1, 2, 0]),
        (["01", "2", "3"], ["01", "2", "3"]),
        (["1.5", "2", "3"], ["1.5", "2", "3"]),
        (["none", "bad", "1"], ["none", "bad", "1"]),
    ],
)
def test_labels_are_integers_if_all_are(tmp_path, labels, expected):
    path = write(tmp_path / "a.csv", "y,x\n" + "".join(f"{label},1\n" for label in labels))
    assert read_table([path], label="y").y.tolist() == expected


def test_many_words_cost_the_column_and_few_the_rows(tmp_path):
    cells = [("x" if i % 5 == 0 else "1", "x" if i == 7 else "2") for i in range(100)]
    path = write(tmp_path / "a.csv", "y,a,b\n" + "".join(f"k,{a},{b}\n" for a, b in cells))
    table = read_table([path], label="y")
    assert table.columns == ["b"]
    assert table.left_out.keys() == {"a"}
    assert table.counts["rows"] == 99
    assert [one.position for _, one in table.rejected] == [8]


def test_rows_are_balanced(tmp_path):
    path = write(tmp_path / "a.csv", b"y,a\nk,1\n,2\nk,3,4\nk,\xff\nk,5\n")
    table = read_table([path], label="y")
    assert table.counts == {"files": 1, "rows": 2, "rejected": 2, "unlabelled": 1}
    assert [one.position for _, one in table.rejected] == [3, 4]


def test_files_with_the_same_name_are_distinguished_by_folder(tmp_path):
    paths = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        paths.append(write(tmp_path / folder / "run.csv", "y,a\nk,1\n"))
    table = read_table(paths, label="y", domain_from_file=True)
    assert table.domain.tolist() == ["one/run", "two/run"]


def test_parquet(tmp_path):
    require("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"y": [1, 2], "a": [0.5, None], "s": ["p", "q"]}), tmp_path / "a.parquet")
    table = read_table([tmp_path / "a.parquet"], label="y")
    np.testing.assert_array_equal(table.X, [[0.5], [np.nan]])
    assert table.y.tolist() == [1, 2]
    assert table.left_out.keys() == {"s"}


@pytest.mark.parametrize(
    ("texts", "options", "match"),
    [
        (["y,a,b\nk,1,2\n", "y,a\nk,1\n"], {}, r"1\.csv differs from .*0\.csv: it has no column 'b'"),
        (
            ["y,flow_rate\nk,1\n", "y,flow_rat\nk,1\n", "y,flow_rate\nk,1\n"],
            {},
            r"1\.csv differs from the other files.*'flow_rat', which .* \(did you mean 'flow_rate'\?\)",
        ),
        (
            ["y,a,b\nk,1,1\n", "y,a\nk,1\n", "y,a\nk,1\n"],
            {},
            r"0\.csv differs from the other files: it has 'b', which most other files lack;",
        ),
        (
            ["y,a\nk,1\n", "x,a\nk,1\n"],
            {"label": "y"},
            r"1\.csv has no column 'y'; it has 'x', 'a'",
        ),
        (
            ["state,a\nk,1\n", "state,a\nk,1\n"],
            {"label": "State"},
            r"0\.csv has no column 'State' \(did you mean 'state'\?\); .* None of the other",
        ),
        (["y,speed\nk,1\n"], {"ignore": ["speeed"]}, r"cannot ignore .* \(did you mean 'speed'\?\)"),
        (["a\n1\n"], {}, "no column 'y'"),
        (["y,a\nk,1\n"], {"domain": "d"}, "no column 'd'"),
        (["y,a\nk,1\n"], {"ignore": ["q"]}, "cannot ignore 'q'"),
        (["y,a\nk,x\n"], {}, "numeric columns besides 'y', got none: 'a' holds text"),
        (["y,a\n,1\n"], {}, "got none: 1 without a label"),
        (["y,a\n"], {}, "has no rows"),
        (["y,a\nk,1\n"], {"domain": "a", "domain_from_file": True}, "exclude each other"),
        ([], {}, "at least one file"),
    ],
)
def test_tables_that_cannot_be_read(tmp_path, texts, options, match):
    paths = [write(tmp_path / f"{i}.csv", text) for i, text in enumerate(texts)]
    with pytest.raises(InvalidInputError, match=match):
        read_table(paths, **{"label": "y", **options})
