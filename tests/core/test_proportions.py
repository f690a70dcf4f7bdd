import numpy as np

from baryflow.core.proportions import ProportionPrior


def test_equal_proportions_make_a_strong_prior_and_varying_ones_a_weak_one():
    same = ProportionPrior.of(np.array([[100.0, 200, 300]] * 5))
    assert same.strength > 1e4
    varying = ProportionPrior.of(np.array([[500.0, 5, 5], [5, 500, 5], [5, 5, 500]]))
    assert varying.strength < 10
    shares = np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(same.posterior_mean(shares, 100), same.mean, atol=0.02)
    assert varying.posterior_mean(shares, 100)[0] > 0.9


def test_a_class_that_no_source_has_is_left_out():
    prior = ProportionPrior.of(np.array([[10.0, 0, 10], [10, 0, 10]]))
    assert prior.mean.tolist() == [0.5, 0.0, 0.5]
