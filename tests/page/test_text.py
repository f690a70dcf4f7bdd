import math

import pytest

from baryflow.page.text import (
    breakable,
    format_number,
    format_percent,
    short_name,
)


@pytest.mark.parametrize(
    ("value", "scale", "shown"),
    [
        (1481.53, 4.3, "1481.5"),
        (1.5137, 0.12, "1.51"),
        (-2.2, 1.8, "−2.2"),
        (-0.04, 1.0, "0.0"),
        (123456.0, 2000.0, "123456"),
        (3.0, 0.0, "3.000"),  # a column that does not vary
        (0.0, None, "0"),
        (1.59634, None, "1.596"),
        (2.5e-7, 1e-8, "2.5e−07"),
        (4e15, 1e14, "4e+15"),
        (math.nan, 1.0, "–"),
        (math.inf, 1.0, "∞"),
        (-math.inf, None, "−∞"),
    ],
)
def test_numbers_are_rounded_to_the_scale(value, scale, shown):
    assert format_number(value, scale) == shown


def test_signs_are_shown_unless_the_value_rounds_to_zero():
    assert format_number(0.3, 1.0, sign=True) == "+0.3"
    assert format_number(-0.3, 1.0, sign=True) == "−0.3"
    assert format_number(0.01, 1.0, sign=True) == "0.0"


def test_percentages_never_round_to_nothing_or_everything():
    shown = {0.0: "0 %", 0.001: "< 1 %", 0.354: "35 %", 0.999: "> 99 %", 1.0: "100 %"}
    assert {x: format_percent(x) for x in shown} == shown
    assert format_percent(math.nan) == "–"


def test_names_are_shortened_escaped_and_breakable():
    assert short_name(3, "class") == "class 3"
    assert short_name("3", "class") == "3"
    assert short_name("  two\nlines ") == "two lines"
    assert short_name("") == "(no name)"
    assert len(short_name("x" * 100 + "end")) <= 60
    assert short_name("x" * 100 + "end").endswith("end")
    assert breakable("a_b<'\"&") == "a_<wbr>b&lt;&#39;&#34;&amp;"
