import math
import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from baryflow.streams.decoding import parse_column, parse_number

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-1e6, max_value=1e6).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["", "Bad", "n/a", "NaN", "no data"]),
)


def bits(numbers):
    # The sign of NaN means nothing.
    return [struct.pack("<d", math.nan if math.isnan(one) else one) for one in numbers]


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "  ",
        "NA",
        "n/a",
        "NaN",
        "null",
        "None",
        "-",
        "BAD",
        "Bad Input",
        "No Data",
        "#N/A",
        "I/O Timeout",
    ],
)
def test_words_for_missing_values_are_nan(cell):
    numbers, invalid = parse_column(["1", cell])
    assert numbers[0] == 1
    assert math.isnan(numbers[1])
    assert invalid == {}


@pytest.mark.parametrize(
    "cell", ["abc", "1_000", "1,5", "0x10", "1.2.3", "1e", "5 bar", "--5", "1\x002"]
)
def test_cells_that_are_not_numbers_are_invalid(cell):
    numbers, invalid = parse_column(["1", cell, "2"])
    assert invalid == {1: cell}
    assert numbers[[0, 2]].tolist() == [1, 2]


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e151", "-1e400"])
def test_infinity_and_huge_numbers_are_invalid(cell):
    numbers, invalid = parse_column(["1", cell])
    assert invalid == {1: cell}
    assert math.isnan(numbers[1])


def test_decimal_commas_are_accepted_only_where_they_are_unambiguous():
    assert parse_column(["1,5", "-2,25", "3"], decimal_comma=True)[0].tolist() == [1.5, -2.25, 3]
    assert parse_number("1,5") is None
    assert parse_number("1.234,5", decimal_comma=True) is None


def test_true_and_false_are_numbers():
    assert parse_column(["True", "false"])[0].tolist() == [1, 0]


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.booleans())
def test_a_column_holds_the_same_bits_as_its_cells_one_by_one(cells, comma):
    written = [cell.replace(".", ",") if comma else cell for cell in cells]
    numbers, invalid = parse_column(written, comma)
    assert not invalid
    assert bits(numbers) == bits(parse_number(cell, comma) for cell in written)


@given(st.lists(st.text("019+-.eEnaNd/b_ ,", max_size=6), min_size=1, max_size=6), st.booleans())
def test_other_cells_of_a_column_change_nothing(cells, comma):
    numbers, invalid = parse_column(cells, comma)
    for row, cell in enumerate(cells):
        (one,), bad = parse_column([cell], comma)
        assert bits([one]) == bits([numbers[row]])
        assert bad.get(0) == invalid.get(row)


def test_json_values():
    numbers, invalid = parse_column(
        [1, 2.5, None, True, "3.5", "Bad", [1], {}, 10**400, "word", "\ud800"]
    )
    assert numbers[[0, 1, 3, 4]].tolist() == [1, 2.5, 1, 3.5]
    assert math.isnan(numbers[2])
    assert math.isnan(numbers[5])
    assert invalid.keys() == {6, 7, 8, 9, 10}
    "".join(invalid.values()).encode()  # always valid text
