"""No input crashes the reader, and rows in = rows + rejected."""

import contextlib
import json
import random
import tracemalloc

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from baryflow.streams import open_source
from baryflow.streams.decoding import LONGEST_LINE
from tests.streams.files import read_all, rejected_of, rows_of, write

NAMES = ["a", "b", "c"]
PIECES = [
    b"",
    b",",
    b";",
    b'"',
    b"\r",
    b"\x00",
    b"\xff",
    b"\xc3",
    b"inf",
    b"1e999",
    b"NaN",
    b"1_0",
    b"{",
    b"[1]",
]
PIECES += [
    b"-",
    b"\xef\xbb\xbf",
    b"\x1f",
    b"\x85",
    "\u2028".encode(),
    b"9" * 400,
    b'"\\ud800"',
    b"null",
    b" ",
]


def mutate(line, generator):
    """Return a damaged line, without line breaks."""
    data = bytearray(line)
    for _ in range(generator.randint(1, 3)):
        at = generator.randrange(len(data) + 1)
        way = generator.randrange(4)
        if way == 0:
            data[at:at] = generator.choice(PIECES)
        elif way == 1:
            del data[at : at + generator.randint(1, 4)]
        elif way == 2 and at < len(data):
            data[at] = generator.randrange(256)
        else:
            data = data[:at] + data
    return bytes(data).replace(b"\n", b" ")


def csv_line(generator):
    return ",".join(f"{generator.gauss(0, 100):.3f}" for _ in NAMES).encode()


def json_line(generator):
    return json.dumps({name: round(generator.gauss(0, 100), 3) for name in NAMES}).encode()


@pytest.mark.parametrize(("suffix", "make"), [("csv", csv_line), ("ndjson", json_line)])
def test_ten_thousand_mutated_lines(tmp_path, suffix, make):
    generator = random.Random(0)
    good = [make(generator) for _ in range(10_000)]
    lines = [mutate(line, generator) for line in good]
    header = b"a,b,c\n" if suffix == "csv" else b""
    # An intact row first: a damaged one could be taken for units, or have no names.
    path = write(tmp_path / f"bad.{suffix}", header + b"\n".join([good[0], *lines, good[0]]))
    batches = read_all(path, NAMES, 97)
    rows_in = 2 + sum(bool(line.strip(b" \r")) for line in lines)
    rows, rejected = rows_of(batches), rejected_of(batches)
    assert len(rows) + len(rejected) == rows_in
    assert len(rejected) > 1000
    assert len(rows) > 500
    assert not np.isinf(rows).any()
    positions = [p for batch in batches for p in batch.positions] + [one.position for one in rejected]
    assert sorted(positions) == list(range(1, rows_in + 1))
    for one in rejected:
        one.raw.encode()
        assert len(one.raw) <= 200
        assert one.reason.endswith(".")
        assert "\n" not in one.reason


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8))
def test_any_bytes(tmp_path_factory, lines):
    for header, suffix in ((b"a,b\n1,2\n", "csv"), (b'{"a": 1, "b": 2}\n', "ndjson")):
        path = write(tmp_path_factory.mktemp("any") / f"x.{suffix}", header + b"\n".join(lines))
        batches = read_all(path, ["b", "a"], 3)
        rows_in = 1 + sum(bool(line.strip(b" \r")) for line in lines)
        assert len(rows_of(batches)) + len(rejected_of(batches)) == rows_in
        assert rows_of(batches)[0].tolist() == [2, 1]


def test_a_line_of_many_megabytes_is_rejected_in_bounded_memory(tmp_path):
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.write(b"a,b\n1,2\n")
        for _ in range(64):
            file.write(b"7" * (1 << 20))
        file.write(b"\n3,4\n")
    tracemalloc.start()
    (batch,) = read_all(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert batch.rows.tolist() == [[1, 2], [3, 4]]
    (one,) = batch.rejected
    assert (one.position, one.raw) == (2, "7" * 200)
    assert str(64 << 20) in one.reason
    assert peak < 8 * LONGEST_LINE


@pytest.mark.parametrize("length", [LONGEST_LINE - 1, LONGEST_LINE, LONGEST_LINE + 1])
def test_the_longest_line(tmp_path, length):
    path = write(tmp_path / "long.csv", b"a,b\n1," + b" " * (length - 3) + b"2\n3,4\n")
    (batch,) = read_all(path)
    assert len(batch.rejected) == (length > LONGEST_LINE)
    assert batch.rows[-1].tolist() == [3, 4]


def test_a_huge_last_line_without_an_end(tmp_path):
    path = write(tmp_path / "long.csv", b"a,b\n1,2\n" + b"9" * (3 * LONGEST_LINE))
    (batch,) = read_all(path)
    assert (len(batch.rows), len(batch.rejected)) == (1, 1)
    assert batch.cursor["offset"] == path.stat().st_size


def test_ndjson(tmp_path):
    lines = [
        '\ufeff{"a": 1, "b": 2, "t": "x", "more": {"deep": []}}',
        '{"b": "3,5", "a": 1}',
        '{"b": "3.5", "t": 17}',
        '{"a": null, "b": null}',
        '{"t": "only"}',
        '{"a": [1], "b": 2}',
        "[1, 2]",
        '{"a": 1',
        '{"a": Infinity}',
        '{"a": 1, "t": {}}',
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
        '{"a": 1, "b": 2, "t": "\\ud800"}',
    ]
    path = write(tmp_path / "a.ndjson", "\n".join(lines))
    (batch,) = read_all(path, ["b", "a"], time="t")
    np.testing.assert_array_equal(batch.rows, [[2, 1], [3.5, np.nan], [np.nan, np.nan], [2, 1]])
    assert batch.times == ["x", "17", "", "?"]
    reasons = {one.position: one.reason for one in batch.rejected}
    assert reasons.keys() == {2, 5, 6, 7, 8, 9, 10, 11, 12}
    assert reasons[5] == "it has none of the wanted columns."
    assert "'a' holds '[1]'" in reasons[6]
    assert reasons[7] == "it is not a JSON object."
    assert reasons[8] == reasons[11] == "it is not valid JSON."
    assert "infinity" in reasons[9]


def test_ndjson_columns_come_from_the_first_object(tmp_path):
    path = write(tmp_path / "a.jsonl", 'broken\n\n{"a": 1, "b": 2}\n{"b": 3, "c": 4}\n')
    source = open_source(path, columns=None)
    assert source.columns == source.wanted == ["a", "b"]
    batch = source.read(10)
    source.close()
    np.testing.assert_array_equal(batch.rows, [[1, 2], [np.nan, 3]])
    assert [one.position for one in batch.rejected] == [1]


def notices_of(batches):
    return [notice for batch in batches for notice in batch.notices]


def test_a_column_that_no_object_has_is_reported_once(tmp_path):
    text = "".join(f'{{"flow": {i}, "heat": 2, "when": "t{i}"}}\n' for i in range(50))
    path = write(tmp_path / "rows.ndjson", text)
    notices = notices_of(read_all(path, ["heat", "flw"], n=20, time="wen"))
    assert notices == [
        "none of the first 20 rows has a column 'flw' (did you mean 'flow'?).",
        "none of the first 20 rows has a value in the time column.",
    ]
    assert notices_of(read_all(path, ["heat", "flow"], n=20, time="when")) == []


def test_a_column_that_appears_later_is_not_reported(tmp_path):
    path = write(tmp_path / "rows.ndjson", '{"a": 1}\n{"a": 1, "b": 2}\n')
    assert notices_of(read_all(path, ["a", "b"])) == []
    assert notices_of(read_all(path, ["a", "b"], n=1)) == ["the first row has no column 'b'."]


def test_a_notice_is_not_repeated_after_a_kill(tmp_path):
    path = write(tmp_path / "rows.ndjson", '{"a": 1}\n' * 4)
    with contextlib.closing(open_source(path, columns=["a", "b"])) as source:
        cursor = source.read(2).cursor
    with contextlib.closing(open_source(path, columns=["a", "b"])) as source:
        source.seek(cursor)
        assert source.read(2).notices == []


def test_an_empty_column_with_a_header_is_not_reported(tmp_path):
    path = write(tmp_path / "rows.csv", "a,b\n1,\n2,\n")
    assert notices_of(read_all(path, ["a", "b"])) == []
