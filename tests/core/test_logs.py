import numpy as np
import pytest
from scipy import special

from baryflow.core.logs import log_softmax, logsumexp

TABLE = np.random.default_rng(0).normal(size=(3, 4, 5)) * 300.0


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("table", [TABLE, np.where(TABLE > 200.0, -np.inf, TABLE)])
def test_they_are_those_of_scipy(table, axis):
    assert logsumexp(table, axis) == pytest.approx(special.logsumexp(table, axis=axis), rel=1e-13)
    assert log_softmax(table, axis) == pytest.approx(special.log_softmax(table, axis=axis), rel=1e-12)


def test_nothing_but_impossible_values_is_impossible():
    assert logsumexp(np.full((2, 3), -np.inf)).tolist() == [-np.inf, -np.inf]
