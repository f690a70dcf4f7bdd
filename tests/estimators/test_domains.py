import numpy as np
import pytest

from baryflow.estimators.domains import expect_proportions

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
