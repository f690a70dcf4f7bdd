import math

import pytest

from baryflow.page.text import count, escape, figure, percent, plain_name, show_name


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
def test_figures_have_the_digits_that_make_sense(value, scale, shown):
    assert figure(value, scale) == shown


def test_a_difference_shows_its_sign():
    assert figure(0.3, 1.0, sign=True) == "+0.3"
    assert figure(-0.3, 1.0, sign=True) == "−0.3"
    assert figure(0.01, 1.0, sign=True) == "0.0"


def test_shares_do_not_pretend():
    assert [percent(x) for x in (0.0, 0.001, 0.354, 0.999, 1.0, math.nan)] == [
        "0 %", "< 1 %", "35 %", "> 99 %", "100 %", "–",
    ]  # fmt: skip


def test_names():
    assert plain_name(3, "class") == "class 3"
    assert plain_name("3", "class") == "3"
    assert plain_name("  two\nlines ") == "two lines"
    assert plain_name("") == "(no name)"
    assert len(plain_name("x" * 100 + "end")) <= 60
    assert plain_name("x" * 100 + "end").endswith("end")
    assert show_name("a_b") == "<bdi>a_<wbr>b</bdi>"
    assert escape("<\x07>'\"&") == "&lt;\ufffd&gt;&#x27;&quot;&amp;"
    assert count(1234567) == "1\u202f234\u202f567"
