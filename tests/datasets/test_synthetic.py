import numpy as np
import pytest

from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError


def test_same_seed_same_bits_and_other_seed_other_data():
    a, b, c = (make_domains(random_state=seed) for seed in (0, 0, 1))
    assert np.array_equal(a.X, b.X)
    assert np.array_equal(a.X_target, b.X_target)
    assert not np.array_equal(a.X, c.X)


def test_every_class_is_in_every_domain():
    problem = make_domains(n_sources=3, n_classes=5, n_per_class=7, random_state=0)
    for domain in (1, 2, 3):
        assert np.bincount(problem.y[problem.domain == domain]).tolist() == [7] * 5
    assert np.bincount(problem.y_target).tolist() == [7] * 5
    assert problem.mixing.sum() == pytest.approx(1.0)


def test_bad_sizes_are_named():
    with pytest.raises(InvalidInputError, match="n_classes"):
        make_domains(n_classes=0)
    with pytest.raises(InvalidInputError, match="noise"):
        make_domains(noise=-1)
