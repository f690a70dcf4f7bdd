import numpy as np
import pytest

from baryflow.core.summary import Settings, StreamSummary
from baryflow.exceptions import InvalidInputError


@pytest.mark.parametrize(
    "other", [{"distance": "w2"}, {"merging": "wasserstein"}, {"full_covariance": True}]
)
def test_components_of_two_kinds_do_not_mix(other):
    (name,) = other
    one, two = StreamSummary(2, Settings()), StreamSummary(2, Settings(**other))
    with pytest.raises(InvalidInputError, match=f"{name}=.*start a new one"):
        one.merge(two)
    with pytest.raises(InvalidInputError, match=f"{name}=.*start a new one"):
        one.change(two.settings)


def test_more_components_are_kept_than_shown():
    X = np.random.default_rng(0).normal(size=(60, 2))
    summary = StreamSummary(2, Settings(max_components=4, resolution=3))
    summary.update(X, np.ones(60))
    assert len(summary.components().masses) == 12
    assert summary.mixture().n_components == 4


def test_two_that_go_on_from_one_state_do_not_disturb_each_other():
    rng = np.random.default_rng(0)
    first = StreamSummary(3, Settings(max_components=5, full_covariance=True))
    first.update(rng.normal(size=(200, 3)), np.ones(200))
    state, A = first.state(), rng.normal(size=(2, 3))
    one, other = StreamSummary.from_state(state), StreamSummary.from_state(state)
    before = other.project(A)
    one.update(10.0 * rng.normal(size=(30, 3)), np.ones(30))
    assert other.project(A) == first.project(A) == before
