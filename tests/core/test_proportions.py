import numpy as np

from baryflow.core.proportions import ProportionPrior


def test_equal_proportions_make_a_strong_prior_and_varying_ones_a_weak_one():
    same = ProportionPrior.of(np.array([[100.0, 200, 300]] * 5))
    assert same.strength > 1e4
    varying = ProportionPrior.of(np.array([[500.0, 5, 5], [5, 500, 5], [5, 5, 500]]))
    assert varying.strength < 10
    np.testing.assert_allclose(same.mean, [1 / 6, 1 / 3, 1 / 2])
    np.testing.assert_allclose(varying.mean, 1 / 3)


def test_a_class_that_no_source_has_is_left_out():
    prior = ProportionPrior.of(np.array([[10.0, 0, 10], [10, 0, 10]]))
    assert prior.mean.tolist() == [0.5, 0.0, 0.5]
