import gzip

import numpy as np
import pytest

from baryflow.exceptions import InvalidInputError
from baryflow.streams import open_source
from tests.streams.files import read_all, read_rows, rejected_of, rows_of, write

HISTORIAN = (
    "\ufeffTime;Temp, °C;Flow;Level\r\n"
    ";°C;m3/h;%\r\n"
    "2024-01-31 00:00;1,5;20;Bad Input\r\n"
    '"2024-01-31 00:01";"-2,25";;3e1\r\n'
    "\r\n"
    "2024-01-31 00:02;I/O Timeout;22;31\r\n"
)


def test_an_export_of_a_historian(tmp_path):
    path = write(tmp_path / "export.csv", HISTORIAN)
    (batch,) = read_all(path, ["Level", "Temp, °C", "Flow"], time="Time")
    nan = np.nan
    np.testing.assert_array_equal(batch.rows, [[nan, 1.5, 20], [30, -2.25, nan], [31, nan, 22]])
    assert batch.times == [f"2024-01-31 00:0{i}" for i in range(3)]
    assert batch.keys == [""] * 3
    assert batch.positions.tolist() == [1, 2, 3]
    assert batch.rejected == []


@pytest.mark.parametrize("n", [1, 2, 3, 1000])
def test_results_do_not_depend_on_the_batch_size(tmp_path, n):
    path = write(tmp_path / "export.csv", HISTORIAN.replace("22;31", "22;x"))
    batches = read_all(path, ["Flow", "Level"], n, time="Time")
    np.testing.assert_array_equal(rows_of(batches), [[20, np.nan], [np.nan, 30]])
    assert [one.position for one in rejected_of(batches)] == [3]
    assert [p for batch in batches for p in batch.positions] == [1, 2]
    assert all(len(batch.rows) + len(batch.rejected) <= n for batch in batches)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found(tmp_path, delimiter):
    path = write(tmp_path / "a.txt", "a;b;c\n1.5;2;3\n;5;6\n".replace(";", delimiter))
    np.testing.assert_array_equal(read_rows(path, ["c", "a"]), [[3, 1.5], [6, np.nan]])


def test_a_declared_delimiter(tmp_path):
    path = write(tmp_path / "a.csv", "sep=;\na;b\n1,5;2\n")
    assert read_rows(path, ["a"]) == [[1.5]]


def test_delimiters_at_line_ends(tmp_path):
    path = write(tmp_path / "a.csv", "a,b,\n1,2,\n3,4\n5,6,7\n")
    (batch,) = read_all(path)
    assert batch.rows.tolist() == [[1, 2], [3, 4]]
    assert [one.reason for one in batch.rejected] == ["it has 3 cells where the header has 2."]


def test_quoted_cells(tmp_path):
    path = write(tmp_path / "a.csv", '"x, bar",note,y\n"1.5","said ""no"", twice",2\n3,"open,4\n5,,6\n')
    (batch,) = read_all(path, ["x, bar", "y"], key="note")
    assert batch.rows.tolist() == [[1.5, 2], [5, 6]]
    assert batch.keys == ['said "no", twice', ""]
    assert "quotes" in batch.rejected[0].reason


@pytest.mark.parametrize("after", ["1,2\n", ",\n3,4\n"])
def test_words_in_the_first_row_are_units_only_if_values_follow(tmp_path, after):
    path = write(tmp_path / "a.csv", "a,b\nbar,%\n" + after)
    batches = read_all(path)
    values_follow = after == "1,2\n"
    assert len(rejected_of(batches)) == (0 if values_follow else 1)
    assert len(rows_of(batches)) == (1 if values_follow else 2)


def test_a_first_row_with_a_time_or_a_label_is_a_row(tmp_path):
    timed = write(tmp_path / "a.csv", "t,a\n2024-01-31 10:00,off\n2024-01-31 10:01,1\n")
    assert len(rejected_of(read_all(timed, ["a"]))) == 1
    labelled = write(tmp_path / "b.csv", "a,state\nBad,normal\n1,normal\n")
    assert len(rows_of(read_all(labelled, ["a"]))) == 2


def test_only_a_header(tmp_path):
    assert read_all(write(tmp_path / "a.csv", "a,b\n")) == []
    assert len(rejected_of(read_all(write(tmp_path / "b.csv", "a,b\nbar,%\n")))) == 1


@pytest.mark.parametrize("units", ["bar,°C\n", ""])
@pytest.mark.parametrize("header", ["p,T °C,ort\n", "p,T,ort\n"])
def test_windows_encoding(tmp_path, header, units):
    units = units.replace("\n", ",\n")
    path = write(tmp_path / "a.csv", header + units + "1,2,Süd\n3,4,Nord\n", "cp1252")
    batches = read_all(path, ["p"], key="ort")
    if "°" in header + units:
        assert batches[0].keys == ["Süd", "Nord"]
        assert batches[0].rejected == []
    else:  # the first non-ASCII row is taken for damage
        assert batches[0].keys == ["Nord"]
        assert batches[0].rejected[0].reason == "byte 6 of it is not UTF-8."
        assert batches[0].rejected[0].raw == "1,2,S\ufffdd"


def test_compressed_text(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(HISTORIAN.encode()))
    assert len(read_rows(path, ["Flow"], time="Time")) == 3


def test_a_damaged_gzip_file_yields_its_good_rows_before_the_error(tmp_path):
    text = "a,b\n" + "".join(f"{i},{i * 7919 % 1000}\n" for i in range(200_000))
    path = write(tmp_path / "a.csv.gz", gzip.compress(text.encode())[:-5000])
    source = open_source(path, columns=["a"])
    assert len(source.read(150_000).rows) == 150_000
    assert 0 < len(source.read(150_000).rows) < 50_000
    with pytest.raises(InvalidInputError, match="not a complete gzip file"):
        source.read(1)
    source.close()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b,a,b,c\n1,2,3,4,5\n", "'a', 'b' more than once"),
        ("a,b\n1,2\n", "has no column 'y', 'z'; it has 'a', 'b'"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        (",,\n1,2,3\n", "without names"),
        ("a,b\n".encode("utf-16"), "UTF-16"),
        (gzip.compress(b"a,b\n", mtime=0), "compressed"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, text, match):
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(InvalidInputError, match=match):
        open_source(path, columns=["y", "z"] if b"1,2" in path.read_bytes() else None)


def test_a_first_line_that_is_too_long_is_refused(tmp_path):
    path = write(tmp_path / "a.csv", b"a," * (1 << 20) + b"\n1\n")
    with pytest.raises(InvalidInputError, match="begins with a line of 2097152 bytes"):
        open_source(path, columns=["a"])


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 200_000)
    source = open_source(path, columns=["b", "a"])
    first = source.read(10)
    assert first.rows.flags.c_contiguous
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.warns(UserWarning, match="has shrunk"):
        rest = source.read(1_000_000)
    assert source.read(1) is None
    source.close()
    assert 0 < len(rest.rows) < 200_000


def test_inputs_that_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / "nothing.csv", columns=None)
    for name in ("a.xlsx", "a.parquet.gz"):
        with pytest.raises(InvalidInputError, match=r"ends with \.csv"):
            open_source(tmp_path / name, columns=None)
    folder = tmp_path / "made.csv"
    folder.mkdir()
    with pytest.raises(InvalidInputError, match="folder"):
        open_source(folder, columns=None)
    with pytest.raises(InvalidInputError, match="at least one"):
        open_source(tmp_path / "a.csv", columns=[])
