import numpy as np
import pandas as pd
import pytest

from baryflow.estimators._domains import check_labels, expect_proportions, fill_gaps, split_domains
from baryflow.exceptions import InvalidInputError

LETTERS = np.array(list("abcd"))


def test_a_mapping_names_some_and_the_others_share_the_rest():
    np.testing.assert_allclose(
        expect_proportions({"a": 0.5}, LETTERS), [0.5, 1 / 6, 1 / 6, 1 / 6], atol=1e-12
    )
    np.testing.assert_allclose(
        expect_proportions({"c": 0.1, "a": 0.5}, LETTERS), [0.5, 0.2, 0.1, 0.2], atol=1e-12
    )
    np.testing.assert_allclose(expect_proportions({}, LETTERS), 0.25)
    np.testing.assert_allclose(expect_proportions([0.1, 0.2, 0.3, 0.4], LETTERS), [0.1, 0.2, 0.3, 0.4])
    numbers = np.array([3, 5])
    np.testing.assert_allclose(expect_proportions({np.int64(5): 0.9}, numbers), [0.1, 0.9])
    assert expect_proportions(None, LETTERS) is None


def test_no_class_is_impossible():
    found = expect_proportions({"a": 1.0}, LETTERS)
    assert found.min() > 0.0
    assert found.max() > 0.9999
    assert found.sum() == pytest.approx(1.0)


# -- labels -----------------------------------------------------------------------------------------


def test_labels_come_back_as_a_vector():
    assert check_labels([1, 2, 1], 3).tolist() == [1, 2, 1]
    assert np.array_equal(check_labels(LETTERS, 4), LETTERS)
    assert check_labels(np.array([0.0, 1.0]), 2).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "the target y is None: sources need labels"),
        ([1, 2], "inconsistent numbers of samples: 3 rows, 2 labels"),
        ([1.0, np.nan, np.nan], r"2 row\(s\) have no label, the first at position 1"),
        (np.array(["a", None, "b"], dtype=object), r"1 row\(s\) have no label, the first at position 1"),
        (np.array([1, 2, pd.NA], dtype=object), r"1 row\(s\) have no label, the first at position 2"),
        ([0.0, np.inf, 1.0], "Input y contains infinity"),
        ([0.5, 1.25, 2.0], "Unknown label type"),
    ],
    ids=str,
)
def test_labels_that_are_none_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        check_labels(y, 3)


# -- domains ----------------------------------------------------------------------------------------


def test_negative_numbers_are_the_target():
    names, is_target = split_domains([1, -1, 2, -1], 4, None)
    assert names.tolist() == [1, -1, 2, -1]
    assert is_target.tolist() == [False, True, False, True]
    assert split_domains([1.0, -1.0], 2, None)[0].dtype == np.int64
    assert not split_domains(None, 3, None)[1].any()


def test_a_target_can_have_a_name():
    names, is_target = split_domains(["north", "south", "north"], 3, "south")
    assert is_target.tolist() == [False, True, False]
    assert not split_domains(names, 3, None)[1].any()
    with pytest.raises(InvalidInputError, match=r"no row belongs to the target 'east'; domains are: n"):
        split_domains(names, 3, "east")


@pytest.mark.parametrize(
    ("domains", "message"),
    [
        ([1, 2], r"sample_domain to have shape \(n_samples=3,\), got \(2,\)"),
        ([1, 0, 2], "must not hold 0"),
        ([1.0, np.nan, 2.0], r"no value in 1 row\(s\), the first at position 1"),
        (np.array(["a", None, "b"], dtype=object), r"no value in 1 row\(s\), the first at position 1"),
        ([1.5, 2.0, 3.0], "names or whole numbers"),
        (np.array(["a", 1, "b"], dtype=object), "names or whole numbers, and not both"),
        (["a", "target", "b"], "no domain can be called 'target'"),
    ],
    ids=str,
)
def test_domains_that_are_none_are_refused(domains, message):
    with pytest.raises(InvalidInputError, match=message):
        split_domains(domains, 3, None)


# -- gaps -------------------------------------------------------------------------------------------


def test_gaps_become_the_mean_of_their_column():
    X = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, np.nan]])
    filled = fill_gaps(X, np.array([7.0, 8.0]))
    assert filled.tolist() == [[1.0, 8.0], [2.0, 8.0], [3.0, 8.0]]
    assert np.isnan(X).sum() == 4  # what was given is not changed
    whole = np.ones((2, 2))
    assert fill_gaps(whole, np.zeros(2)) is whole
