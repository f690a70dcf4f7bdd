"""Class proportions of a target: estimated, compared with the expected ones, believed or not."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from sklearn.linear_model import LogisticRegression

from baryflow import DaDiL, OnlineDaDiL
from baryflow.estimators import _update
from baryflow.estimators._label_shift import (
    estimate_proportions,
    learn_trust,
    measure_improvement,
    measure_size,
)
from tests.estimators.streams import stream, total_variation

EVEN = np.full(3, 1 / 3)
TRAINED = np.array([0.6, 0.3, 0.1])


def draw_votes(truth, trained, n=400, apart=3.0, seed=0):
    """Return the exact posterior probabilities of rows, by a classifier trained on other proportions."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(truth), size=n, p=truth)
    x = apart * np.eye(len(truth))[y] + rng.normal(size=(n, len(truth)))
    return np.exp(log_softmax(apart * x + np.log(trained), axis=1)), y


def most_likely(votes, weights, trained):
    """Maximise the likelihood Σ w log Σ_c q_c · vote_c / trained_c by a general solver."""
    densities = np.log(votes / trained)

    def cost(logits):
        return -weights @ logsumexp(densities + log_softmax(logits), axis=1) / weights.sum()

    found = minimize(cost, np.zeros(votes.shape[1]), method="BFGS", options={"gtol": 1e-9})
    return np.exp(log_softmax(found.x))


# -- the estimate -----------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", [(0.1, 0.2, 0.7), (0.8, 0.1, 0.1), (0.34, 0.33, 0.33)])
def test_proportions_maximise_the_likelihood(truth):
    votes, y = draw_votes(np.array(truth), TRAINED)
    weights = 1.0 + (y == 1) * 4.0 + np.arange(len(y)) % 3  # rows that count several times
    found = estimate_proportions(votes, weights, TRAINED, EVEN)
    np.testing.assert_allclose(found, most_likely(votes, weights, TRAINED), atol=1e-4)
    counted = np.bincount(y, weights) / weights.sum()
    assert total_variation(found, counted) < 0.04


def test_classes_that_overlap_need_many_rounds():
    votes, _ = draw_votes(np.array([0.05, 0.15, 0.8]), TRAINED, n=4000, apart=1.2)
    found = estimate_proportions(votes, np.ones(len(votes)), TRAINED, TRAINED)
    np.testing.assert_allclose(found, most_likely(votes, np.ones(len(votes)), TRAINED), atol=0.001)


def test_votes_that_say_nothing_leave_the_expected_proportions():
    votes = np.tile(TRAINED, (50, 1))
    for expected in (EVEN, TRAINED, np.array([0.2, 0.2, 0.6])):
        found = estimate_proportions(votes, np.ones(50), TRAINED, expected)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_class_that_is_not_expected_can_still_be_found():
    for vote in ([0.05, 0.95], [0.0, 1.0]):
        votes = np.tile(vote, (50, 1))
        found = estimate_proportions(votes, np.ones(50), np.array([0.5, 0.5]), np.array([1.0, 0.0]))
        assert found[1] > 0.99


def test_no_class_is_ruled_out():
    votes = np.tile([1.0, 0.0, 0.0], (50, 1))
    found = estimate_proportions(votes, np.ones(50), EVEN, EVEN)
    np.testing.assert_allclose(found[1:], 1e-4, rtol=1e-2)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


def test_a_class_without_training_rows_is_no_division_by_zero():
    votes = np.tile([0.7, 0.3, 0.0], (50, 1))
    found = estimate_proportions(votes, np.ones(50), np.array([0.7, 0.3, 0.0]), EVEN)
    assert np.isfinite(found).all()
    assert found[2] < 1e-3


# -- the size of a shift ----------------------------------------------------------------------------


def test_equal_proportions_are_no_shift():
    for n_rows in (1.0, 100.0, 1e9):
        assert measure_size(TRAINED, TRAINED, n_rows) == 0.0


def test_of_many_rows_the_size_is_the_total_variation_distance():
    sizes = []
    for share in (0.4, 0.6, 0.8, 1.0):
        shifted = np.array([share, (1 - share) / 2, (1 - share) / 2])
        sizes.append(measure_size(shifted, EVEN, 1e15))
        assert sizes[-1] == pytest.approx(total_variation(shifted, EVEN), abs=1e-6)
    assert np.all(np.diff(sizes) > 0.0)


@pytest.mark.parametrize("n_rows", [40, 400])
def test_what_chance_explains_does_not_count(n_rows):
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(n_rows, TRAINED, size=20_000) / n_rows
    by_chance = np.mean([total_variation(one, TRAINED) for one in drawn])
    shifted = np.array([0.1, 0.1, 0.8])
    size = measure_size(shifted, TRAINED, float(n_rows))
    assert total_variation(shifted, TRAINED) - size == pytest.approx(by_chance, rel=0.05)


def test_the_improvement_is_the_logarithm_of_how_much_nearer_the_target_is():
    assert measure_improvement(np.array([3.0]), np.array([1.0])) == pytest.approx(np.log(3.0))
    assert measure_improvement(np.array([1.0]), np.array([3.0])) == pytest.approx(-np.log(3.0))
    assert measure_improvement(np.array([2.0, 8.0]), np.array([1.0, 1.0])) == pytest.approx(np.log(4.0))
    assert measure_improvement(np.array([0.0, 2.0]), np.array([0.0, 2.0])) == 0.0
    assert np.isfinite(measure_improvement(np.array([1.0]), np.array([0.0])))


# -- how far estimates are trusted ------------------------------------------------------------------


def case(found, true, expected=EVEN):
    return expected, np.array(found), np.array(true)


def test_estimates_that_went_too_far_are_trusted_less():
    right = case([0.8, 0.1, 0.1], [0.8, 0.1, 0.1])
    twice = case([1.0, 0.0, 0.0], [2 / 3, 1 / 6, 1 / 6])  # twice as far from even as the truth is
    opposite = case([0.8, 0.1, 0.1], [0.0, 0.5, 0.5])
    short = case([0.5, 0.25, 0.25], [0.8, 0.1, 0.1])
    assert learn_trust([right], 1.0) == pytest.approx(1.0)
    assert learn_trust([twice], 1.0) == pytest.approx(0.5)
    assert learn_trust([opposite], 1.0) == 0.0
    assert learn_trust([short], 1.0) == 1.0  # never farther than they went
    a, b = (np.sum(np.square(one[1] - EVEN)) for one in (right, twice))
    assert learn_trust([right, twice], 1.0) == pytest.approx((a + 0.5 * b) / (a + b))
    assert learn_trust([case(EVEN, EVEN)], 1.0) == 0.0  # nothing was estimated: no step to trust


def test_steps_are_taken_from_the_expected_proportions():
    assert learn_trust([case([0.2, 0.3, 0.5], [0.4, 0.3, 0.3], TRAINED)], 1.0) == pytest.approx(0.5)


def test_left_out_sources_that_nothing_can_classify_take_no_trust_away():
    twice = case([1.0, 0.0, 0.0], [2 / 3, 1 / 6, 1 / 6])
    assert learn_trust([twice], 0.0) == 1.0
    assert learn_trust([twice], 0.4) == pytest.approx(0.4 * 0.5 + 0.6)


# -- in a stream ------------------------------------------------------------------------------------


class Plant:
    """Well separated classes, and domains that differ by a small offset."""

    def __init__(self, seed=0, n_sources=3, n_per_class=40):
        rng = np.random.default_rng(seed)
        y = np.tile(np.arange(3), n_per_class)
        sources = [self.rows(y, rng) for _ in range(n_sources)]
        self.X, self.y = np.concatenate(sources), np.tile(y, n_sources)
        self.domain = np.repeat(np.arange(n_sources) + 1, len(y))

    def rows(self, y, rng):
        return 5.0 * np.eye(3)[y] + 0.3 * rng.normal(size=3) + rng.normal(size=(len(y), 3))

    def target(self, counts, seed=1):
        rng = np.random.default_rng(seed)
        y = rng.permutation(np.repeat(np.arange(3), counts))
        return self.rows(y, rng), y


@pytest.fixture(scope="module")
def fitted():
    plant = Plant()
    model = OnlineDaDiL(classifier="linear", random_state=0).fit(plant.X, plant.y, plant.domain)
    return plant, model


@pytest.mark.parametrize("c", [0, 2])
def test_a_stream_with_much_of_one_class_is_a_label_shift(fitted, c):
    plant, model = fitted
    counts = np.full(3, 16)
    counts[c] = 128
    X, y = plant.target(counts)
    model = stream(model.spawn(), X)
    shift, truth = model.label_shift_, counts / counts.sum()
    assert total_variation(shift.proportions, truth) < 0.03
    assert shift.belief > 0.5
    assert total_variation(model.proportions_, truth) < 0.5 * total_variation(EVEN, truth)
    assert shift.size > 0.35
    assert model.score(X, y) > 0.95
    assert "believed to" in model.describe_label_shift()
    assert f"{c}: {shift.proportions[c]:.1%}" in model.report()


def test_a_stream_without_a_shift_is_none(fitted):
    plant, model = fitted
    X, _ = plant.target([50, 50, 50])
    model = stream(model.spawn(), X)
    assert model.label_shift_.belief < 0.15
    assert model.label_shift_.size < 0.05
    np.testing.assert_allclose(model.proportions_, 1 / 3, atol=0.02)
    assert total_variation(model.label_shift_.proportions, EVEN) < 0.02
    assert "-0%" not in model.describe_label_shift()


def test_with_a_stacked_space_its_components_vote():
    plant = Plant()
    model = OnlineDaDiL(validate=False, random_state=0).fit(plant.X, plant.y, plant.domain)
    shifted = model.spawn().partial_fit(plant.target([16, 16, 128])[0])
    usual = model.partial_fit(plant.target([50, 50, 50])[0])
    assert total_variation(shifted.label_shift_.proportions, np.array([0.1, 0.1, 0.8])) < 0.1
    assert total_variation(usual.label_shift_.proportions, EVEN) < 0.03
    assert shifted.label_shift_.belief > 2.0 * usual.label_shift_.belief


def test_the_same_proportions_of_more_rows_are_believed_more(fitted):
    plant, model = fitted
    X, _ = plant.target([30, 10, 10])
    few = model.spawn().partial_fit(X)
    many = model.spawn().partial_fit(X, sample_weight=np.full(50, 20.0))
    found = [one.label_shift_.proportions for one in (few, many)]
    np.testing.assert_allclose(*found, atol=0.01)
    chance = many.label_shift_.size - few.label_shift_.size
    expected = 3 * np.sqrt(2 / 9 / (2 * np.pi)) * (50**-0.5 - 1000**-0.5)
    assert chance == pytest.approx(expected, abs=0.01)
    assert many.label_shift_.size > few.label_shift_.size > 0.0


def test_the_belief_is_what_the_committee_makes_of_the_evidence(fitted):
    plant, model = fitted
    model = model.spawn().partial_fit(plant.target([60, 10, 10])[0])
    shift = model.label_shift_
    assert shift.belief == model.committee_.believe(shift.size, shift.improvement)
    expected = (1 - shift.belief) / 3 + shift.belief * shift.proportions
    np.testing.assert_allclose(model.proportions_, expected)


def test_proportions_do_not_depend_on_those_of_the_sources():
    plant = Plant(n_per_class=100)
    rare = (plant.y > 0) | (np.arange(len(plant.y)) % 4 == 0)  # a quarter of class 0
    model = OnlineDaDiL(classifier=LogisticRegression(C=10.0), validate=False, random_state=0)
    model.fit(plant.X[rare], plant.y[rare], plant.domain[rare])
    X, _ = plant.target([120, 15, 15])
    model.partial_fit(X)
    assert total_variation(model.label_shift_.proportions, np.array([0.8, 0.1, 0.1])) < 0.06


# -- switched off -----------------------------------------------------------------------------------


def test_switched_off_it_is_never_estimated(monkeypatch):
    plant = Plant()
    X, y = plant.target([120, 15, 15])

    def refuse(*_):
        raise AssertionError("estimated")

    monkeypatch.setattr(_update, "estimate_proportions", refuse)
    options = {"classifier": "linear", "validate": False, "random_state": 0}
    online = OnlineDaDiL(label_shift=False, **options).fit(plant.X, plant.y, plant.domain)
    stream(online, X)
    offline = DaDiL(label_shift=False, **options).fit(
        np.concatenate([plant.X, X]),
        np.concatenate([plant.y, y]),
        np.concatenate([plant.domain, np.full(len(X), -1)]),
    )
    for model in (online, offline):
        assert model.label_shift_.belief == model.label_shift_.size == 0.0
        np.testing.assert_allclose(model.proportions_, 1 / 3)
        assert "not estimated" in model.report()
    with pytest.raises(AssertionError, match="estimated"):
        online.set_params(label_shift=True).partial_fit(X)


def test_it_can_be_switched_on_the_way():
    plant = Plant()
    X, _ = plant.target([120, 15, 15])
    options = {"classifier": "linear", "validate": False, "random_state": 0}
    model = OnlineDaDiL(label_shift=False, **options).fit(plant.X, plant.y, plant.domain)
    model.partial_fit(X[:75]).set_params(label_shift=True).partial_fit(X[75:])
    whole = OnlineDaDiL(**options).fit(plant.X, plant.y, plant.domain)
    whole.partial_fit(X[:75]).partial_fit(X[75:])
    assert np.array_equal(model.predict_proba(X), whole.predict_proba(X))
    assert model.label_shift_.belief == whole.label_shift_.belief > 0.0
