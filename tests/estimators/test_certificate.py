import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow import codec, container
from baryflow.estimators._certificate import CONFIDENCE, Certificate, log_capital, lower_bound
from baryflow.exceptions import FileFormatError, InvalidInputError

HIT = np.array([0.0, 1.0])
ALPHA = 1.0 - CONFIDENCE
LABELS = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=120)
COUNT = st.integers(0, 400)


def certify(labels):
    """Return the certificate of labels: made, not adapting, adapting."""
    return Certificate.none().plus(*np.array(labels, dtype=bool).reshape(-1, 3).T)


def through_a_file(certificate):
    data = container.to_bytes("certificate", *codec.encode(certificate))
    content = container.from_bytes(data)
    return codec.decode(Certificate, content.values, content.arrays)


# -- the bound -----------------------------------------------------------------------------------


@given(COUNT, COUNT)
def test_a_bound_is_below_what_was_observed_and_rises_with_every_right_prediction(wrong, right):
    bound = lower_bound(np.array([wrong, right]), HIT)
    assert 0.0 <= bound <= right / max(right + wrong, 1)
    assert lower_bound(np.array([wrong, right + 1]), HIT) >= bound
    assert lower_bound(np.array([wrong + 1, right]), HIT) <= bound


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=30), st.floats(0.05, 0.95))
def test_the_capital_is_the_mean_of_the_products_of_all_bets(observed, mean):
    values = np.array([0.0, 0.5, 1.0])
    counts = np.array([observed.count(value) for value in values])
    capital = Fraction(0)
    for exponent in range(-4, 4):
        odds, product = Fraction(math.expm1(2.0**exponent)), Fraction(1)
        for x in observed:
            product *= (1 + odds * Fraction(x)) / (1 + odds * Fraction(mean))
        capital += product / 8
    np.testing.assert_allclose(np.exp(log_capital(counts, values, mean)), float(capital), rtol=1e-9)


@given(st.floats(0.01, 0.99))
def test_the_bets_are_fair(mean):
    up, down = (math.exp(log_capital(np.array(one), HIT, mean)) for one in ([0, 1], [1, 0]))
    np.testing.assert_allclose(mean * up + (1.0 - mean) * down, 1.0)


def constant(accuracy):
    return lambda *_: accuracy


def falling(i, _):
    return 0.98 - 0.9 * i / 400


def turning(i, _):
    return 0.95 if i % 100 < 50 else 0.3


def spiteful(i, hits):
    """Be right until the bound is high, then always wrong."""
    return np.where(hits > 0.8 * i + 6.0, 0.05, 0.9)


@pytest.mark.parametrize(
    "accuracy", [constant(0.5), constant(0.9), constant(0.99), falling, turning, spiteful]
)
def test_claims_are_at_no_time_false_in_more_than_5_percent_of_streams(accuracy):
    rng, n_streams = np.random.default_rng(0), 2000
    hits, expected, false = np.zeros(n_streams), np.zeros(n_streams), np.zeros(n_streams, dtype=bool)
    for i in range(400):
        p = np.broadcast_to(accuracy(i, hits), n_streams)
        hits, expected = hits + (rng.random(n_streams) < p), expected + p
        counts = np.column_stack([i + 1 - hits, hits])
        false |= log_capital(counts, HIT, expected / (i + 1)) >= math.log(1.0 / ALPHA)
    assert 0 < false.sum() <= ALPHA * n_streams


def test_bounds_get_tight():
    gaps = [0.9 - lower_bound(np.array([n // 10, n - n // 10]), HIT) for n in (50, 200, 1000, 10_000)]
    assert gaps == sorted(gaps, reverse=True)
    np.testing.assert_array_less(gaps, [0.18, 0.08, 0.04, 0.012])


# -- the certificate -----------------------------------------------------------------------------


def test_nothing_is_certified_without_labels():
    certificate = Certificate.none()
    assert (certificate.n, certificate.accuracy, certificate.advantage) == (0, 0.0, -1.0)
    assert not certificate.harm
    assert certificate.describe() == []
    none = np.zeros(0, dtype=bool)
    assert certificate.plus(none, none) == certificate


@given(LABELS, st.integers(0, 120))
def test_labels_can_come_one_by_one_or_together(labels, cut):
    whole = certify(labels)
    assert whole.n == len(labels)
    made, other, ours = np.array(labels, dtype=bool).reshape(-1, 3).T
    parts = certify(labels[:cut]).plus(made[cut:], other[cut:], ours[cut:])
    single = Certificate.none()
    for label in labels:
        single = single.plus(*label)
    assert whole == parts == single


@given(LABELS)
def test_it_is_kept_bit_for_bit(labels):
    certificate = certify(labels)
    kept = through_a_file(certificate)
    assert kept == certificate
    assert (kept.accuracy, kept.advantage) == (certificate.accuracy, certificate.advantage)


@given(LABELS)
def test_the_advantage_is_below_what_was_observed(labels):
    made, other, ours = np.array(labels, dtype=float).reshape(-1, 3).T
    certificate = certify(labels)
    assert -1.0 <= certificate.advantage <= (ours.mean() - other.mean() if len(labels) else -1.0)
    assert 0.0 <= certificate.accuracy <= (made.mean() if len(labels) else 0.0)


def test_its_size_does_not_grow():
    rng = np.random.default_rng(0)
    certificate = Certificate.none().plus(rng.random(100_000) < 0.9, rng.random(100_000) < 0.8)
    assert certificate.n == 100_000
    assert all(isinstance(value, int) for value in vars(certificate).values())
    assert 0.89 < certificate.accuracy < 0.9
    assert 0.08 < certificate.advantage < 0.105


# -- harm ----------------------------------------------------------------------------------------


def test_harm_is_not_shown_where_adapting_is_as_good():
    rng = np.random.default_rng(1)
    streams = rng.random((1000, 2, 300)) < 0.7
    shown = sum(Certificate.none().plus(*stream).harm for stream in streams)
    assert shown <= ALPHA * len(streams)


def test_harm_is_shown_where_it_is_real_and_stays():
    rng = np.random.default_rng(2)
    certificate = Certificate.none().plus(rng.random(300) < 0.6, rng.random(300) < 0.8)
    assert certificate.harm
    fallen_back = rng.random(5000) < 0.8
    assert certificate.plus(fallen_back, fallen_back).harm
    assert "worse" in certificate.describe()[1]


def test_harm_is_lifted_when_adapting_is_shown_to_be_better_since():
    right, wrong = np.ones(20, dtype=bool), np.zeros(20, dtype=bool)
    certificate = Certificate.none().plus(wrong, right)
    assert certificate.harm
    for _ in range(2):
        certificate = certificate.plus(wrong, wrong, right_adapting=right)
    assert not certificate.harm
    assert (certificate.right, certificate.won, certificate.lost) == (0, 40, 20)


def test_draws_do_not_hide_harm():
    right, wrong = np.ones(20, dtype=bool), np.zeros(20, dtype=bool)
    draws = np.ones(10_000, dtype=bool)
    assert Certificate.none().plus(draws, draws).plus(wrong, right).harm


# -- words and errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("only_adapting", "only_not", "words"),
    [(30, 0, "Adapting beats"), (2, 2, "at most"), (0, 30, "was worse")],
)
def test_it_says_what_is_proven(only_adapting, only_not, words):
    draws = 200 - only_adapting - only_not
    right = np.repeat([True, True, False], [draws, only_adapting, only_not])
    other = np.repeat([True, False, True], [draws, only_adapting, only_not])
    certificate = Certificate.none().plus(right, other)
    accuracy, duel = certificate.describe()
    assert "200 labels" in accuracy
    assert float(accuracy.split()[4]) <= 100.0 * certificate.accuracy
    assert words in duel


def test_predictions_that_never_differed_are_not_compared():
    right = np.ones(30, dtype=bool)
    assert len(Certificate.none().plus(right, right).describe()) == 1


@pytest.mark.parametrize(
    ("right", "other"),
    [([True, False], [True]), ([[True]], [[True]]), ([1, 0], [1, 1]), ([0.5], [True])],
)
def test_labels_that_do_not_fit_are_refused(right, other):
    with pytest.raises(InvalidInputError, match="expected"):
        Certificate.none().plus(right, other)


@pytest.mark.parametrize(
    "change", [{"right": -1}, {"right": 5}, {"won_since": 7}, {"wrong": 10**400}, {"harm": 1}]
)
def test_a_damaged_certificate_is_refused(change):
    values, arrays = codec.encode(Certificate.none().plus([True, True, False], [True, False, False]))
    values["fields"] |= change
    with pytest.raises(FileFormatError):
        codec.decode(Certificate, values, arrays)
