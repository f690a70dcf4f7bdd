import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow import Mixture, mw2_squared, smw2_squared, transport_plan, w2_squared
from baryflow.core import transport
from baryflow.exceptions import InvalidInputError, TransportError
from tests.strategies import mixtures, permute, random_mixture, seeds


def pairs(**options):
    return st.tuples(mixtures(n_features=3, **options), mixtures(n_features=3, **options))


@given(pairs())
def test_mw2_equals_pot_on_the_same_cost(pair):
    P, Q = pair
    expected = ot.emd2(P.weights, Q.weights, w2_squared(P, Q))
    assert mw2_squared(P, Q) == pytest.approx(float(expected), rel=1e-9, abs=1e-9)


@given(seeds, st.integers(1, 12))
def test_the_assignment_path_equals_pot(seed, k):
    rng = np.random.default_rng(seed)
    P, Q = (random_mixture(rng, k, 3, uniform=True) for _ in range(2))
    value, plan = transport_plan(P, Q).cost, transport_plan(P, Q).coupling
    assert value == pytest.approx(float(ot.emd2(P.weights, Q.weights, w2_squared(P, Q))), rel=1e-9)
    assert np.count_nonzero(plan) == k


@given(pairs(n_classes=2))
def test_plans_have_the_weights_as_marginals(pair):
    P, Q = pair
    for plan in (transport_plan(P, Q).coupling, transport_plan(P, Q, None).coupling):
        assert plan.min() >= 0
        np.testing.assert_allclose(plan.sum(axis=1), P.weights, atol=1e-12)
        np.testing.assert_allclose(plan.sum(axis=0), Q.weights, atol=1e-12)


@given(mixtures(n_features=2), mixtures(n_features=2), mixtures(n_features=2))
def test_mw2_is_a_metric(P, Q, R):
    root = {
        (a, b): np.sqrt(mw2_squared(x, y))
        for a, x in zip("PQR", (P, Q, R), strict=True)
        for b, y in zip("PQR", (P, Q, R), strict=True)
    }
    size = 1 + max(root.values())
    assert root["P", "P"] <= 1e-9 * size
    assert root["P", "Q"] == pytest.approx(root["Q", "P"], rel=1e-7, abs=1e-9 * size)
    assert root["P", "R"] <= root["P", "Q"] + root["Q", "R"] + 1e-7 * size


@given(pairs(), seeds)
def test_the_order_of_components_does_not_matter(pair, seed):
    P, Q = pair
    order = np.random.default_rng(seed).permutation(P.n_components)
    assert mw2_squared(permute(P, order), Q) == pytest.approx(mw2_squared(P, Q), rel=1e-9)


@given(pairs(n_classes=3), st.floats(0, 100))
def test_smw2_equals_pot_with_the_labels_added(pair, label_cost):
    P, Q = pair
    apart = ((P.labels[:, None] - Q.labels[None]) ** 2).sum(axis=2)
    expected = ot.emd2(P.weights, Q.weights, w2_squared(P, Q) + label_cost * apart)
    value = smw2_squared(P, Q, label_cost)
    assert value == pytest.approx(float(expected), rel=1e-8, abs=1e-9)
    assert value >= mw2_squared(P, Q) - 1e-9 * (1 + value)


def test_the_default_label_cost_keeps_classes_apart():
    P = Mixture([0.5, 0.5], [[0.0], [1.0]], np.ones((2, 1)), [[1, 0], [0, 1]])
    Q = Mixture([0.5, 0.5], [[1.0], [0.0]], np.ones((2, 1)), [[1, 0], [0, 1]])
    plain = transport_plan(P, Q).coupling
    supervised = transport_plan(P, Q, None).coupling
    assert np.array_equal(plain, [[0, 0.5], [0.5, 0]])
    assert np.array_equal(supervised, [[0.5, 0], [0, 0.5]])


def test_w2_of_single_gaussians():
    P = Mixture([1], [[1.0, 2.0]], [[1.0, 1.0]])
    Q = Mixture([1], [[4.0, 6.0]], [[1.0, 3.0]])
    assert w2_squared(P, Q).item() == pytest.approx(9 + 16 + 4)
    assert w2_squared(P).item() == 0.0


@given(mixtures(n_features=3))
def test_the_table_with_itself_is_symmetric_with_a_zero_diagonal(P):
    table = w2_squared(P)
    assert np.array_equal(table, table.T)
    assert not table.diagonal().any()


def test_a_component_of_weight_zero_takes_no_part():
    P = Mixture([1.0, 0.0], [[0.0], [9.0]], np.ones((2, 1)))
    Q = Mixture([0.3, 0.7], [[0.0], [1.0]], np.ones((2, 1)))
    assert mw2_squared(P, Q) == pytest.approx(0.7)


def test_an_unsolved_problem_is_an_error(monkeypatch):
    monkeypatch.setattr(transport, "_MAX_PIVOTS", 1)
    rng = np.random.default_rng(0)
    with (
        pytest.warns(UserWarning, match="numItermax"),
        pytest.raises(TransportError, match="no optimal plan"),
    ):
        mw2_squared(random_mixture(rng, 30, 3), random_mixture(rng, 30, 3))


def test_what_does_not_fit_is_named():
    P = Mixture([1.0], [[0.0]], [[1.0]])
    with pytest.raises(InvalidInputError, match="n_features=1 and Q with n_features=2"):
        mw2_squared(P, Mixture([1.0], [[0.0, 0.0]], [[1.0, 1.0]]))
    with pytest.raises(InvalidInputError, match="Q must be a Mixture, got list"):
        mw2_squared(P, [1.0])
    with pytest.raises(InvalidInputError, match="no labels and no labels"):
        smw2_squared(P, P)
    with pytest.raises(InvalidInputError, match="label_cost"):
        smw2_squared(P.with_labels([[1.0]]), P.with_labels([[1.0]]), -1.0)


@given(mixtures(n_features=2, n_classes=2), mixtures(n_features=2, n_classes=2))
def test_a_plan_knows_its_costs_and_the_distances_are_its_cost(P, Q):
    plain, supervised = transport_plan(P, Q), transport_plan(P, Q, label_cost=3.0)
    assert np.array_equal(plain.costs, w2_squared(P, Q))
    for plan in (plain, supervised):
        assert plan.cost == float(np.vdot(plan.coupling, plan.costs))
    assert mw2_squared(P, Q) == plain.cost
    assert smw2_squared(P, Q, 3.0) == supervised.cost
    assert smw2_squared(P, Q) == transport_plan(P, Q, label_cost=None).cost


def test_labels_are_asked_for_only_where_they_count():
    P = Mixture([1.0], [[0.0]], [[1.0]])
    assert transport_plan(P, P).cost == 0.0
    for label_cost in (None, 1.0):
        with pytest.raises(InvalidInputError, match="without labels use mw2_squared"):
            transport_plan(P, P, label_cost)
