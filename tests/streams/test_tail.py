"""Files that grow, rotate and shrink, and cursors that survive it."""

import contextlib
import json
import os
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


def drain(source, n=100, notices=()):
    """Return the rows available now, and the last batch; all notices must hold one of the words."""
    rows, last, found = [], None, []
    while True:
        batch = source.read(n, timeout=0.0)
        assert batch is not None
        last = batch
        found += batch.notices
        if not batch:
            break
        rows += batch.rows.tolist()
    assert len(found) == len(notices), found
    for notice, word in zip(found, notices, strict=True):
        assert word in notice
    return rows, last


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


def test_truncation_starts_over_with_a_notice(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\n1,2\n3,4\n5,")
    with follow(path) as source:
        drain(source)
        for number in (6, 7):  # each time
            write(path, f"a,b\n{number},7\n")
            append(path, "" if number == 7 else "1,2\n3,4\n5,")
            rows, batch = drain(source, notices=["cut"])
            assert rows[0] == [number, 7]
        assert batch.cursor["position"] == 6


def test_a_file_that_is_rewritten_and_longer(tmp_path):
    path = write(tmp_path / "log.csv", "a,b\n1,2\n")
    with follow(path) as source:
        drain(source)
        with path.open("r+b") as file:
            file.write(b"a,b\n6,7\n8,9\n")
        assert drain(source, notices=["rewritten"])[0] == [[6, 7], [8, 9]]


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
        source.seek(cursor)
        batch = source.read(10)
        assert batch.rows.tolist() == [[7, 8], [9, 10]]
        assert batch.positions.tolist() == [2, 3]
        assert len(batch.notices) == 1
        assert "byte 8" in batch.notices[0]


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


NUMBERED, DATED = ["log.csv.3", "log.csv.2", "log.csv.1"], ["log-20260129.csv", "log-20260130.csv"]


def write_at(path, text, second):
    """Write a file as if at a certain second."""
    write(path, text)
    os.utime(path, (second, second))
    return path


def stop_after_a_row(path):
    with follow(path) as source:
        return again(source.read(1).cursor)


@pytest.mark.parametrize("names", [NUMBERED, DATED, ["log.csv-20260129T0100", "log.csv-20260130T0100"]])
def test_files_that_were_rotated_away_since_are_read_in_order(tmp_path, names):
    path = write_at(tmp_path / "log.csv", "a,b\n1,1\n2,2\n", 10)
    cursor = stop_after_a_row(path)
    path.rename(tmp_path / names[0])
    for number, name in enumerate(names[1:], 1):
        write_at(tmp_path / name, f"a,b\n{number}0,0\n", 10 + number)
    write_at(tmp_path / "log.csv.4", "a,b\n8,8\n", 5)  # read before
    for name in ("log_2.csv", "log.csv.bak", "log.csv.new", "log2.csv.1"):  # others
        write_at(tmp_path / name, "a,b\n9,9\n", 12)
    write_at(path, "a,b\n7,7\n", 20)
    between = [[10.0 * number, 0] for number in range(1, len(names))]
    with follow(path) as source:
        source.seek(cursor)
        rows, batch = drain(source)
        assert rows == [[2, 2], *between, [7, 7]]
    with follow(path) as source:  # all of it was read
        source.seek(again(batch.cursor))
        assert drain(source)[0] == []


def test_files_that_were_rotated_between_two_checks_are_read(tmp_path):
    path = write_at(tmp_path / "log.csv", "a,b\n1,1\n", 10)
    with follow(path) as source:
        drain(source)
        path.rename(tmp_path / "log.csv.2")
        write_at(tmp_path / "log.csv.1", "a,b\n2,2\n", 10)  # at the same time, so the number decides
        write_at(path, "a,b\n3,3\n", 10)
        assert drain(source)[0] == [[2, 2], [3, 3]]


@pytest.mark.parametrize("left", ["log.csv.1.gz", None])
def test_a_rotated_file_that_cannot_be_read_is_named(tmp_path, left):
    path = write_at(tmp_path / "log.csv", "a,b\n1,1\n2,2\n", 10)
    cursor = stop_after_a_row(path)
    path.rename(tmp_path / "log.csv.2")
    if left:
        write_at(tmp_path / left, "", 11)
    write_at(path, "a,b\n3,3\n", 12)
    with follow(path) as source:
        source.seek(cursor)
        assert drain(source, notices=[left or "log.csv.1"])[0] == [[2, 2], [3, 3]]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_file_that_is_packed_once_it_was_read_leaves_no_gap(tmp_path, is_done):
    path = write_at(tmp_path / "log.csv", "a,b\n1,1\n", 10)
    with follow(path) as source:
        drain(source)
        path.rename(tmp_path / "log.csv.1")
        write_at(tmp_path / "log.csv.1.gz", "", 10 if is_done else 11)
        if is_done:
            (tmp_path / "log.csv.1").unlink()
        write_at(path, "a,b\n2,2\n", 12)
        assert drain(source)[0] == [[2, 2]]


def test_a_folder_that_is_away_for_a_while(tmp_path):
    path = tmp_path / "logs" / "log.csv"
    path.parent.mkdir()
    write(path, "a,b\n1,1\n")
    with follow(path) as source:
        drain(source)
        shutil.rmtree(path.parent)
        assert drain(source)[0] == []
        path.parent.mkdir()
        write(path, "a,b\n2,2\n")
        assert drain(source)[0] == [[2, 2]]


def test_a_rotation_that_counts_upwards_leaves_no_gap(tmp_path):
    path = write_at(tmp_path / "log.csv", "a,b\n1,1\n", 10)
    write_at(tmp_path / "log.csv.6", "a,b\n0,0\n", 5)
    with follow(path) as source:
        drain(source)
        path.rename(tmp_path / "log.csv.7")
        write_at(path, "a,b\n2,2\n", 11)
        assert drain(source)[0] == [[2, 2]]


def test_if_the_file_of_a_cursor_is_gone_later_ones_are_read(tmp_path):
    path = write_at(tmp_path / "log.csv", "a,b\n1,1\n2,2\n", 10)
    write_at(tmp_path / "log.csv.3", "a,b\n0,0\n", 5)  # read before
    cursor = stop_after_a_row(path)
    path.unlink()
    write_at(tmp_path / "log.csv.1", "a,b\n3,3\n", 11)
    write_at(path, "a,b\n4,4\n", 12)
    with follow(path) as source:
        source.seek(cursor)
        assert drain(source, notices=["may be missing"])[0] == [[3, 3], [4, 4]]


@pytest.mark.parametrize("is_away", [True, False])
def test_a_file_that_is_copied_and_emptied_is_read_to_its_end(tmp_path, is_away):
    path = write_at(tmp_path / "log.csv", "a,b\n1,1\n", 10)
    with follow(path) as source:
        drain(source)
        cursor = again(source.read(1, timeout=0.0).cursor)
        append(path, "2,2\n3,3\n")
        shutil.copy(path, tmp_path / "log.csv.1")
        write(path, "a,b\n")
        if not is_away:
            assert drain(source)[0] == [[2, 2], [3, 3]]
            append(path, "4,4\n")
            assert drain(source)[0] == [[4, 4]]
    if is_away:
        append(path, "4,4\n")
        with follow(path) as source:
            source.seek(cursor)
            assert drain(source)[0] == [[2, 2], [3, 3], [4, 4]]


@pytest.mark.parametrize("is_away", [True, False])
def test_the_rest_of_a_file_that_was_cut_is_not_read_again(tmp_path, is_away):
    lines = ["a,b\n", *(f"{number},{number}\n" for number in range(1000))]
    path = write(tmp_path / "log.csv", "".join(lines))
    with follow(path) as source:
        batch = drain(source)[1]
        os.truncate(path, len("".join(lines[:900])))
        if not is_away:
            batch = drain(source, notices=["cut"])[1]
            append(path, "7,8\n")
            assert drain(source)[0] == [[7, 8]]
    with follow(path) as source:
        source.seek(again(batch.cursor))
        rows = drain(source, notices=["cut"] * is_away)[0]
        assert rows == [[7, 8]] * (not is_away)
        append(path, "9,9\n")
        assert drain(source)[0] == [[9, 9]]


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
