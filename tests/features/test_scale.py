import numpy as np
import pytest

from baryflow.features.normal import FLOOR, scales_of


def runs(seed=0, n=4):
    return np.random.default_rng(seed).normal(size=(n, 200, 3))


def test_gaps_hardly_change_a_scale_and_an_empty_channel_takes_that_of_others():
    gaps, whole = runs(), scales_of({"a": runs(), "b": runs(1)})
    gaps[:, ::5] = np.nan
    gaps[:, :, 2] = np.nan
    found = scales_of({"a": gaps, "b": runs(1)})
    np.testing.assert_allclose(found["a"].spread[:2], whole["a"].spread[:2], rtol=0.1)
    np.testing.assert_allclose(found["a"].median[:2], whole["a"].median[:2], atol=0.1)
    assert found["a"].median[2] == 0.0
    assert found["a"].spread[2] == pytest.approx(FLOOR * found["b"].spread[2])


def test_a_channel_that_is_nowhere_has_a_scale_that_can_be_divided_by():
    empty = runs()
    empty[:, :, 1] = np.nan
    assert scales_of({"a": empty})["a"].spread[1] == 1.0
