from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.datasets import make_domains
from baryflow.estimators._source_table import ClassMoments, SourceTable, spread

N_CLASSES, D = 4, 3


class Plant:
    """Domains that are an affine map of each column of the same classes, and what is true of them."""

    def __init__(self, seed, n_per_class=400, n_sources=4):
        rng = np.random.default_rng(seed)
        self.means = rng.normal(size=(N_CLASSES, D)) * 2.0
        self.stds = np.exp(0.3 * rng.normal(size=(N_CLASSES, D)))
        self.offsets = 3.0 * rng.normal(size=(n_sources, D))
        self.gains = np.exp(0.5 * rng.normal(size=(n_sources, D)))
        y = np.repeat(np.arange(N_CLASSES), n_per_class)
        self.rows = [
            offset + gain * (self.means[y] + self.stds[y] * rng.normal(size=(len(y), D)))
            for offset, gain in zip(self.offsets, self.gains, strict=True)
        ]
        self.codes = [y] * n_sources
        self.target = 3.0 * rng.normal(size=D), np.exp(0.5 * rng.normal(size=D))

    def learned(self, order=None):
        """Return the class moments of the sources, the classes in another order if one is given."""
        order = np.arange(N_CLASSES) if order is None else order
        even = np.full(N_CLASSES, 1.0 / N_CLASSES)
        codes = [order[y] for y in self.codes]
        return ClassMoments.of(SourceTable.of(self.rows, codes, N_CLASSES), even)

    def moments(self, shares):
        """Return mean and variance of the target for a mix."""
        offset, gain = self.target
        mean = shares @ self.means
        variance = shares @ (np.square(self.stds) + np.square(self.means)) - np.square(mean)
        return offset + gain * mean, np.square(gain) * variance


EVEN = np.full(N_CLASSES, 1.0 / N_CLASSES)
FIXED = Plant(0)
LEARNED = FIXED.learned()
mixes = st.lists(st.floats(0.0, 1.0), min_size=N_CLASSES, max_size=N_CLASSES).filter(
    lambda values: sum(values) > 0.1
)


# -- centre and scale -------------------------------------------------------------------------------


def test_for_the_sources_own_mix_mean_and_std_are_left_as_they_are():
    mean, variance = FIXED.moments(EVEN)
    centre, scale = LEARNED.at(mean, variance, EVEN, 1e12)
    np.testing.assert_allclose(centre, mean, rtol=1e-9)
    np.testing.assert_allclose(scale, np.sqrt(variance), rtol=1e-9)
    centre, scale = LEARNED.at(mean, variance, EVEN, 1e4)
    np.testing.assert_allclose((centre - mean) / scale, 0.0, atol=1e-2)
    np.testing.assert_allclose(scale, np.sqrt(variance), rtol=1e-2)


@given(seed=st.integers(0, 10_000), values=mixes)
def test_whatever_the_mix_the_centre_and_the_scale_of_a_target_are_found(seed, values):
    plant = Plant(seed)
    shares = np.array(values) / sum(values)
    truth, true_variance = plant.moments(EVEN)
    mean, variance = plant.moments(shares)
    centre, scale = plant.learned().at(mean, variance, shares, 5000.0)
    true_scale = np.sqrt(true_variance)
    naive = np.abs(mean - truth) / true_scale, np.abs(np.log(np.sqrt(variance) / true_scale))
    found = np.abs(centre - truth) / true_scale, np.abs(np.log(scale / true_scale))
    for wrong, corrected in zip(naive, found, strict=True):
        # 400 rows of a class in each source: a hundredth or two is their own noise.
        assert corrected.max() < 0.2 * wrong.max() + 0.1


def test_a_week_of_one_class_moves_mean_and_std_but_not_centre_and_scale():
    truth, variance = FIXED.moments(EVEN)
    for c in range(N_CLASSES):
        one = np.eye(N_CLASSES)[c]
        mean, narrow = FIXED.moments(one)
        centre, scale = LEARNED.at(mean, narrow, one, 1000.0)
        off = np.abs(mean - truth).max() / np.sqrt(variance).max()
        assert np.abs((centre - truth) / np.sqrt(variance)).max() < 0.2 * off + 0.05
        assert np.abs(np.log(scale / np.sqrt(variance))).max() < 0.15


@given(st.permutations(range(N_CLASSES)), mixes)
def test_relabelling_classes_changes_no_moments(order, values):
    order = np.array(order)
    shares = np.array(values) / sum(values)
    moments = FIXED.moments(shares)
    renamed = np.empty(N_CLASSES)
    renamed[order] = shares
    for mass in (3.0, 300.0):
        plain = LEARNED.at(*moments, shares, mass)
        twin = FIXED.learned(order).at(*moments, renamed, mass)
        np.testing.assert_allclose(twin, plain, rtol=1e-9)


def test_few_rows_are_drawn_towards_what_is_usual_and_many_are_not():
    usual_centre, usual_scale = LEARNED.usual
    mean = usual_centre + 2.0 * usual_scale
    variance = np.square(5.0 * usual_scale)
    centre_parts, scale_parts = [], []
    for mass in (0.01, 2.0, 10.0, 100.0, 1e4, 1e9):  # one row says nothing of a scale
        centre, scale = LEARNED.at(mean, variance, EVEN, mass)
        # Both as parts of the way from the usual to what was measured.
        centre_parts.append((centre - usual_centre) / (mean - usual_centre))
        scale_parts.append(np.log(scale / usual_scale) / np.log(5.0))
    for parts in (np.array(centre_parts), np.array(scale_parts)):
        assert (np.diff(parts, axis=0) > 0.0).all()
        assert (parts[0] < 0.05).all()
        assert (parts[-1] > 0.9999).all()


def with_variances(known, centres=None, log_scales=None):
    """Return the same moments of sources whose calibrations have these variances in every column."""
    n = len(known.centres)
    pattern = np.linspace(-1.0, 1.0, n)[:, None] * np.ones(D)
    pattern /= pattern.std(axis=0, ddof=1)
    changed = {}
    for name, variance in (("centres", centres), ("log_scales", log_scales)):
        if variance is not None:
            changed[name] = getattr(known, name).mean(axis=0) + np.sqrt(variance) * pattern
    return replace(known, **changed)


@pytest.mark.parametrize("v", [0.01, 0.3])
def test_the_drawing_of_few_rows_is_that_of_the_mean_of_two_guesses(v):
    # A source's centre varies by v; the mean of n rows by 1/n, in units of the scale: v / (v + 1/n).
    quiet = with_variances(LEARNED, centres=v, log_scales=1e9)
    scale, (usual_centre, usual_scale) = LEARNED.scale, LEARNED.usual
    mean = usual_centre + scale
    for mass in (2.0, 20.0):
        centre, found = quiet.at(mean, np.square(scale), EVEN, mass)
        np.testing.assert_allclose(found, scale, rtol=1e-6)
        part = (centre - usual_centre) / scale
        np.testing.assert_allclose(part, v / (v + 1.0 / mass), rtol=1e-6)
    # The logarithm of a std of n rows varies by 1 / 2n.
    known = with_variances(LEARNED, log_scales=v)
    for mass in (2.0, 20.0):
        _, found = known.at(mean, np.square(np.e * usual_scale), EVEN, mass)
        np.testing.assert_allclose(np.log(found / usual_scale), v / (v + 0.5 / mass), rtol=1e-6)


def test_where_the_sources_disagree_about_a_mix_its_moments_are_believed_less():
    rng = np.random.default_rng(0)
    restless = Plant(0)
    restless.rows = [  # each class moves in its own way
        X + (2.0 * rng.normal(size=(N_CLASSES, D)))[y]
        for X, y in zip(restless.rows, restless.codes, strict=True)
    ]
    one, sure = np.eye(N_CLASSES)[1], 1e12
    doubts = []
    for plant in (FIXED, restless):
        # Sources that are far apart are overruled by any measurement, sources that agree are not.
        centres = [
            with_variances(plant.learned(), variance, sure).at(*plant.moments(one), one, 1e6)[0]
            for variance in (0.0, 0.1, sure)
        ]
        belief = (centres[1] - centres[0]) / (centres[2] - centres[0])
        doubts.append((1.0 - belief) / belief)
    assert doubts[1].mean() > 10.0 * doubts[0].mean()


def test_a_class_that_a_source_lacks_is_there_what_it_is_elsewhere():
    kept = [y != 2 for y in FIXED.codes[:1]] + [np.ones(len(y), dtype=bool) for y in FIXED.codes[1:]]
    rows = [X[k] for X, k in zip(FIXED.rows, kept, strict=True)]
    codes = [y[k] for y, k in zip(FIXED.codes, kept, strict=True)]
    found = ClassMoments.of(SourceTable.of(rows, codes, N_CLASSES), EVEN)
    assert np.isfinite(found.means).all()
    np.testing.assert_allclose(found.means[0, 2], found.means[1:, 2].mean(axis=0))


def test_a_column_that_does_not_vary_has_the_usual_spread():
    X = np.column_stack([np.full(20, 7.0), np.arange(20.0)])
    np.testing.assert_allclose(spread(X, np.array([3.0, 1.0])), [3.0, X[:, 1].std()])


# -- at the edge ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem():
    return make_domains(n_per_class=40, random_state=3)


def known_of(p, n_sources=4):
    rows = [p.X[p.domain == number] for number in range(1, n_sources + 1)]
    codes = [p.y[p.domain == number] for number in range(1, n_sources + 1)]
    return ClassMoments.of(SourceTable.of(rows, codes, 8), np.full(8, 1 / 8))


def test_a_column_that_did_not_vary_keeps_the_usual_scale(problem):
    known = known_of(problem)
    variance = problem.X_target.var(axis=0)
    variance[3] = 0.0
    _, scale = known.at(problem.X_target.mean(axis=0), variance, known.proportions, 2000.0)
    assert scale[3] == pytest.approx(known.usual[1][3])
    _, scale = known.at(problem.X_target[0], np.zeros(8), known.proportions, 1.0)
    np.testing.assert_allclose(scale, known.usual[1])


def test_a_column_constant_in_one_source_does_not_bias_the_others_scale(problem):
    p = problem
    X = p.X.copy()
    X[p.domain == 1, 2] = 4.0
    rows = [X[p.domain == number] for number in range(1, 5)]
    codes = [p.y[p.domain == number] for number in range(1, 5)]
    known = ClassMoments.of(SourceTable.of(rows, codes, 8), np.full(8, 1 / 8))
    T = p.X_target
    _, scale = known.at(T.mean(axis=0), T.var(axis=0), known.proportions, 1e9)
    np.testing.assert_allclose(scale, T.std(axis=0), rtol=1e-3)


def test_with_one_source_rows_overrule_its_known_of(problem):
    known = known_of(problem, n_sources=1)
    T = 3.0 * problem.X_target + 10.0
    centre, scale = known.at(T.mean(axis=0), T.var(axis=0), known.proportions, 1e6)
    np.testing.assert_allclose(scale, T.std(axis=0), rtol=1e-3)
    np.testing.assert_allclose(centre, T.mean(axis=0), rtol=1e-2)
