"""Files that grow, rotate and shrink, and cursors that survive it."""

import contextlib
import json
import shutil

import pytest

from baryflow.exceptions import InvalidInputError
from baryflow.streams import open_source
from tests.streams.files import write


@contextlib.contextmanager
def follow(path, columns=("a", "b"), **options):
    source = open_source(path, columns=list(columns), tail=True, idle=0.01, **options)
    with contextlib.closing(source):
        yield source


def append(path, text):
    with path.open("ab") as file:
        file.write(text.encode())


def drain(source, n=100):
    """Return the rows available now, and the last batch."""
    rows, last = [], None
    while True:
        batch = source.read(n, timeout=0.0)
        assert batch is not None
        last = batch
        if not len(batch.rows) and not batch.rejected:
            return rows, last
        rows += batch.rows.tolist()


def again(cursor):
    return json.loads(json.dumps(cursor))


def test_rows_arrive_as_the_file_grows_and_a_partial_line_waits(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\n1,2\n3,")
    with follow(path) as source:
        assert drain(source)[0] == [[1, 2]]
        append(path, "4")
        assert drain(source)[0] == []
        append(path, "5\n")
        rows, batch = drain(source)
        assert rows == [[3, 45]]
        assert batch.cursor["position"] == 2


def test_a_file_that_does_not_exist_yet_is_waited_for(tmp_path):
    path = tmp_path / "log.csv"
    with follow(path) as source:
        assert drain(source)[0] == []
        assert source.columns == ["a", "b"]
        write(path, "b,")
        assert drain(source)[0] == []
        append(path, "x,a\n%,m,bar\n")
        assert drain(source)[0] == []  # it may hold units, which the next row decides
        append(path, "1,2,3\n")
        assert drain(source)[0] == [[3, 1]]
        assert source.columns == ["b", "x", "a"]


def test_columns_that_are_missing_from_a_late_header(tmp_path):
    path = tmp_path / "log.csv"
    with follow(path) as source:
        write(path, "a,c\n1,2\n")
        with pytest.raises(InvalidInputError, match="no column 'b'"):
            source.read(1)


def test_rotation(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\n1,2\n")
    with follow(path) as source:
        assert drain(source)[0] == [[1, 2]]
        append(path, "3,4\n5,6")  # the last line never gets its end
        path.rename(tmp_path / "log.csv.1")
        assert drain(source)[0] == [[3, 4]]
        write(path, "b,a\n8,7\n")
        rows, batch = drain(source)
        assert rows == [[5, 6], [7, 8]]
        assert batch.cursor["position"] == 4


def test_rotation_without_a_header(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\n1,2\n")
    with follow(path) as source:
        drain(source)
        path.rename(tmp_path / "log.csv.1")
        write(path, "3,4\n")
        rows, batch = drain(source)
        assert rows == [[3, 4]]
    append(path, "5,6\n")
    with follow(path, columns=["b"]) as source:
        source.seek(again(batch.cursor))
        assert drain(source)[0] == [[6]]


def test_truncation_starts_over_with_a_warning(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\n1,2\n3,4\n5,")
    with follow(path) as source:
        drain(source)
        write(path, "a,b\n6,7\n")
        with pytest.warns(UserWarning, match="has shrunk"):
            rows, batch = drain(source)
        assert rows == [[6, 7]]
        assert batch.cursor["position"] == 3


def test_a_file_that_is_rewritten_and_longer(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\n1,2\n")
    with follow(path) as source:
        drain(source)
        with path.open("r+b") as file:
            file.write(b"a,b\n6,7\n8,9\n")
        with pytest.warns(UserWarning, match="begins differently"):
            assert drain(source)[0] == [[6, 7], [8, 9]]


def test_ndjson_is_followed_too(tmp_path):
    path = write(tmp_path / "log.ndjson", '{"a": 1, "b": 2}\n')
    with follow(path) as source:
        assert drain(source)[0] == [[1, 2]]
        write(tmp_path / "new", '{"b": 4, "a": 3}\n').replace(path)
        assert drain(source)[0] == [[3, 4]]


def test_a_cursor_resumes_in_a_file_that_has_grown(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\nbar,%\n1,2\n3,4\n")
    with follow(path) as source:
        cursor = again(source.read(1).cursor)
    append(path, "5,6\n")
    with follow(path) as source:
        source.seek(cursor)
        batch = source.read(10)
        assert batch.rows.tolist() == [[3, 4], [5, 6]]
        assert batch.positions.tolist() == [2, 3]


def test_a_cursor_finds_the_old_file_under_its_new_name(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\n1,2\n3,4\n")
    with follow(path) as source:
        cursor = again(source.read(1).cursor)
    append(path, "5,6\n")
    path.rename(tmp_path / "log.csv.1")
    write(path, "a,b\n7,8\n")
    with follow(path) as source:
        source.seek(cursor)
        assert drain(source)[0] == [[3, 4], [5, 6], [7, 8]]


def test_a_cursor_whose_file_is_gone(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\n1,2\n")
    with follow(path) as source:
        cursor = again(source.read(1).cursor)
    path.unlink()
    write(path, "a,b\n7,8\n9,10\n")
    with follow(path) as source:
        with pytest.warns(UserWarning, match="no longer exists"):
            source.seek(cursor)
        batch = source.read(10)
        assert batch.rows.tolist() == [[7, 8], [9, 10]]
        assert batch.positions.tolist() == [2, 3]


def test_a_cursor_between_two_files_resumes_in_the_new_one(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\n1,2\n3,4")
    with follow(path) as source:
        source.read(1)
        path.rename(tmp_path / "log.csv.1")
        write(path, "a,b\n5,6\n")
        cursor = again(source.read(1).cursor)
    with follow(path) as source:
        source.seek(cursor)
        assert source.read(10).rows.tolist() == [[5, 6]]


@pytest.mark.parametrize("name", ["a.csv", "a.ndjson", "a.csv.gz"])
def test_every_cursor_of_a_file_resumes_where_it_was(tmp_path, name):
    import gzip

    if "csv" in name:
        text = (
            "t;a;b\r\n;bar;°C\r\n\r\n" + "".join(f"{i};{i},5;x{i % 3}\r\n" for i in range(9)) + "7;8;9"
        )
    else:
        text = "\n".join(json.dumps({"a": i, "b": "x" if i % 3 else i}) for i in range(10))
    data = text.encode("cp1252" if "csv" in name else "utf-8")
    path = write(tmp_path / name, gzip.compress(data) if name.endswith("gz") else data)

    def rest(cursor, n):
        found = []
        source = open_source(path, columns=["a", "b"])
        with contextlib.closing(source):
            if cursor:
                source.seek(again(cursor))
            cursors = []
            while (batch := source.read(n)) is not None:
                found += [(p, *row) for p, row in zip(batch.positions, batch.rows.tolist(), strict=True)]
                found += [(one.position, one.reason, one.raw) for one in batch.rejected]
                cursors.append((batch.cursor, len(found)))
        return found, cursors

    whole, cursors = rest(None, 2)
    assert len(whole) == 10
    for cursor, done in cursors:
        for n in (1, 3):
            assert sorted(rest(cursor, n)[0]) == sorted(whole[done:])


def test_a_cursor_of_another_file_is_refused(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n1,2\n3,4\n")
    source = open_source(path, columns=["a"])
    cursor = source.read(2).cursor
    source.close()
    for text, match in (("a,b\n9,9\n9,9\n", "begins differently"), ("a,b\n", "begins differently")):
        source = open_source(write(path, text), columns=["a"])
        with contextlib.closing(source), pytest.raises(InvalidInputError, match=match):
            source.seek(cursor)


def test_inputs_that_cannot_be_followed(tmp_path):
    shutil.copy(write(tmp_path / "a.csv", "a\n1\n"), tmp_path / "a.csv.gz")
    for name in ("a.csv.gz", "a.parquet", "a.npz"):
        with pytest.raises(InvalidInputError, match="follow"):
            open_source(tmp_path / name, columns=["a"], tail=True)
    with pytest.raises(InvalidInputError, match="follow"):
        open_source("-", columns=["a"], tail=True)
