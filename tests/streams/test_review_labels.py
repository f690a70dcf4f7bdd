"""Times that are numbers, and labels beyond all numbers."""

import pytest

from baryflow.exceptions import InvalidInputError
from baryflow.streams.label_records import LabelFormat, parse_time


@pytest.mark.parametrize("time", ["1712011212345", "20261117", "20261301", "10000101"])
def test_a_time_of_digits_alone_is_a_number_even_if_it_looks_like_a_date(time):
    assert parse_time(time) == float(time)


def test_a_number_that_is_too_large_for_a_label_is_refused_with_a_reason():
    with pytest.raises(InvalidInputError, match="beyond"):
        LabelFormat().parse({"label": 10**400, "position": 1})
