"""Explanations of a target: what is proposed, what speaks for each, and what settles it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators import _adapt
from baryflow.estimators import _explanations as explanations
from baryflow.estimators._explanations import (
    EXPECTED,
    FIXED_POINT,
    NOT_ADAPTING,
    Baseline,
    Candidate,
    TargetSummary,
    estimate_proportions,
    measure_evidence,
    propose,
    weigh,
)
from baryflow.estimators._state import summarise
from baryflow.estimators._watching import known_target, measure, place
from baryflow.exceptions import InvalidInputError
from tests.estimators.streams import Fleet, fit, stream, total_variation, validated, with_adapt

FLEET = Fleet(6)  # machines calibrated differently: a classifier of raw rows is mostly wrong
ALIKE = Fleet(6, calibration=0.1)
EVEN = np.full(3, 1 / 3)
TRAINED = np.array([0.6, 0.3, 0.1])


def fitted(fleet=FLEET):
    return fit(validated, fleet)


def balanced_accuracy(model, X, y):
    predicted = model.predict(X)
    return np.mean([(predicted[y == c] == c).mean() for c in np.unique(y)])


def only(c, n):
    return np.where(np.arange(FLEET.n_classes) == c, n, 0)


@pytest.fixture(scope="module")
def normal_only():
    """A model that saw one class alone: several explanations fit."""
    X, y = FLEET.target(200, 0, 0, 0)
    return stream(fitted(), X), X, y


# -- a target with its own calibration and class proportions ------------------------------------------


@pytest.mark.parametrize("counts", [(160, 13, 13, 14), (13, 14, 160, 13), (180, 7, 6, 7)])
def test_a_machine_with_its_own_calibration_and_mostly_one_class_is_understood(counts):
    X, y = FLEET.target(*counts)
    model = fitted()
    before = model.score(X, y), balanced_accuracy(model, X, y)
    stream(model, X)
    assert model.score(X, y) > max(0.9, before[0] + 0.1)
    assert balanced_accuracy(model, X, y) > before[1] + 0.05
    best = model.explanations_[0]
    assert total_variation(np.array(list(best.proportions.values())), np.array(counts) / 200) < 0.1


def test_balanced_rows_are_as_expected():
    X, y = FLEET.target(40, 40, 40, 40)
    model = stream(fitted(), X)
    assert model.explanations_[0].name == "expected"
    assert model.explanations_[0].weight > 0.5
    assert model.score(X, y) > 0.8
    assert "as expected" in model.describe_proportions()


def test_of_machines_calibrated_alike_one_class_is_known_by_its_place():
    X, y = ALIKE.target(200, 0, 0, 0)
    model = stream(fitted(ALIKE), X)
    assert model.proportions_[0] > 0.9
    assert model.score(X, y) > 0.9
    assert model.reliability_ > 0.8


def test_explanations_are_distributions_in_the_units_of_the_user():
    X, _ = FLEET.target(160, 13, 13, 14)
    model = stream(fitted(), X)
    found = model.explanations_
    assert sum(one.weight for one in found) == pytest.approx(1.0)
    assert [one.weight for one in found] == sorted((one.weight for one in found), reverse=True)
    for one in found:
        assert list(one.proportions) == model.classes_.tolist()
        assert sum(one.proportions.values()) == pytest.approx(1.0)
        assert (one.gains > 0.0).all()
    expected = sum(one.weight * np.array(list(one.proportions.values())) for one in found)
    np.testing.assert_allclose(model.proportions_, expected)


def test_offsets_and_gains_recover_the_calibration():
    X, _ = FLEET.target(320, 26, 26, 28)
    best = stream(fitted(), X, 100).explanations_[0]
    offsets, gains = FLEET.calibration
    np.testing.assert_allclose(best.offsets, offsets, atol=0.45)
    assert np.abs(best.offsets - offsets).mean() < 0.15 * np.abs(offsets).mean()
    np.testing.assert_allclose(np.log(best.gains), np.log(gains), atol=0.2)
    assert np.abs(np.log(best.gains / gains)).mean() < 0.6 * np.abs(np.log(gains)).mean()


def test_a_column_in_another_unit_is_an_offset_and_a_gain_like_any_other():
    X, _ = FLEET.target(40, 40, 40, 40)
    factor, shift = np.ones(X.shape[1]), np.zeros(X.shape[1])
    factor[2], shift[2] = 1000.0, 3000.0
    plain, other = stream(fitted(), X), fitted()
    with pytest.warns(UserWarning, match="unit"):
        stream(other, shift + factor * X)
    one, two = plain.explanations_[0], other.explanations_[0]
    assert two.gains[2] / one.gains[2] == pytest.approx(1000.0, rel=0.25)
    usual = FLEET.X[:, 2].mean()
    there = shift[2] + factor[2] * (one.offsets[2] + one.gains[2] * usual)
    assert abs(two.offsets[2] + two.gains[2] * usual - there) < 500.0
    rest = np.arange(X.shape[1]) != 2
    np.testing.assert_allclose(two.gains[rest], one.gains[rest], rtol=0.05)


def test_not_adapting_moves_nothing():
    X, _ = ALIKE.target(40, 40, 40, 40)
    found = {one.name: one for one in stream(fitted(ALIKE), X).explanations_}
    assert 0.01 < found["not adapting"].weight < 0.5
    np.testing.assert_allclose(found["not adapting"].gains, 1.0)
    np.testing.assert_allclose(found["not adapting"].offsets, 0.0, atol=1e-9)


@pytest.mark.parametrize("fault", [1, 3])
def test_a_fault_that_stays_on_stays_found(fault):
    model = stream(fitted(), FLEET.target(30, 30, 30, 30)[0])
    X, _ = FLEET.target(*only(fault, 600))
    found = []
    for start in range(0, 600, 60):
        rows = X[start : start + 60]
        found.append((model.predict(rows) == fault).mean())
        model.partial_fit(rows)
    assert min(found) > 0.8
    assert np.mean(found[-3:]) > 0.92


# -- what settles it ----------------------------------------------------------------------------------


def test_one_class_alone_is_ambiguous_and_the_model_says_so(normal_only):
    model, _, _ = normal_only
    competing = [one for one in model.explanations_ if one.weight > 0.1]
    assert len(competing) > 1
    assert model.reliability_ < 0.65
    assert model.coverage_ < 0.5  # whichever it is, it is one class
    report = model.report()
    assert "explanations fit" in report
    for one in competing:
        c = max(one.proportions, key=one.proportions.get)
        assert f"{c} {one.proportions[c]:.0%}" in report
    assert "baseline" in report


def test_where_one_explanation_fits_the_report_names_it():
    X, y = FLEET.target(13, 160, 13, 14)
    model = stream(fitted(), X)
    (line,) = [one for one in model.report().splitlines() if "Class proportions" in one]
    assert f"1 {model.explanations_[0].proportions[1]:.0%}" in line
    assert "explanations fit" not in model.report()
    assert model.reliability_ > 0.85
    assert abs(model.reliability_ - model.score(X, y)) < 0.15


def test_averaging_over_explanations_makes_unsure(normal_only):
    model, X, _ = normal_only
    assert model.explanations_[0].weight < 0.7
    assert model.predict_proba(X).max(axis=1).mean() < model.explanations_[0].weight + 0.2


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_baseline_settles_it(normal_only, when):
    without, X, y = normal_only
    rows, _ = FLEET.target(30, 0, 0, 0, seed=1)
    assert without.score(X, y) < 0.2
    model = fitted()
    if when == "before":
        stream(model.set_baseline(rows, 0), X)
    else:
        stream(model, X).set_baseline(rows, 0)
    assert model.score(X, y) > 0.9
    assert model.n_samples_seen_ == 200  # baseline rows are no rows of the stream
    assert model.reliability_ > without.reliability_ + 0.2
    others, truth = FLEET.target(20, 20, 20, 20)
    assert model.score(others, truth) > without.score(others, truth) + 0.1


@pytest.mark.parametrize("adapt", [True, "standardise", False])
def test_a_baseline_before_the_first_row_settles_what_is_predicted_of_it(adapt):
    model = with_adapt(fitted(), adapt)
    X, y = FLEET.target(100, 10, 10, 10)
    before = model.predict_proba(X)
    model.set_baseline(FLEET.target(30, 0, 0, 0, seed=1)[0], 0)
    after = model.predict_proba(X)
    if adapt is not True:  # it uses no baseline
        np.testing.assert_array_equal(after, before)
        return
    assert (before.argmax(axis=1) == y).mean() < 0.5
    assert (after.argmax(axis=1) == y).mean() > 0.85
    assert model.n_samples_seen_ == 0
    assert "0 target rows seen" in model.report()
    again = OnlineDaDiL.from_bytes(model.to_bytes())
    np.testing.assert_array_equal(again.predict_proba(X), after)
    np.testing.assert_array_equal(model.forget().predict_proba(X), before)


def test_rows_of_a_baseline_that_are_given_again_do_not_count():
    rows, _ = FLEET.target(30, 0, 0, 0, seed=1)
    model = fitted().set_baseline(rows, 0)
    before = model.to_bytes()
    assert model.set_baseline(rows[5:], 0).to_bytes() == before


def test_further_rows_of_a_baseline_are_added():
    X, _ = FLEET.target(60, 0, 0, 0)
    rows, _ = FLEET.target(40, 0, 0, 0, seed=1)
    at_once = stream(fitted().set_baseline(rows, 0), X)
    in_parts = stream(fitted().set_baseline(rows[:15], 0).set_baseline(rows[15:], 0), X)
    np.testing.assert_allclose(in_parts.predict_proba(X), at_once.predict_proba(X), atol=1e-9)


def test_baselines_of_two_classes_are_both_used():
    X, y = FLEET.target(100, 0, 0, 100)
    model = fitted()
    model.set_baseline(FLEET.target(30, 0, 0, 0, seed=1)[0], 0)
    model.set_baseline(FLEET.target(0, 0, 0, 30, seed=1)[0], 3)
    assert stream(model, X).score(X, y) > 0.85
    found = model.explanations_[0].proportions
    assert (found[0], found[3]) == pytest.approx((0.5, 0.5), abs=0.1)


@pytest.mark.parametrize("empty", [False, True], ids=["no rows", "rows without a value"])
def test_a_baseline_without_a_value_is_refused(empty):
    model = stream(fitted(), FLEET.target(20, 20, 20, 20)[0])
    before = model.to_bytes()
    with pytest.raises(ValueError, match=r"row|0 sample"):
        model.set_baseline(np.full((3, 8), np.nan) if empty else np.empty((0, 8)), 0)
    assert model.to_bytes() == before


def test_a_baseline_of_which_nothing_can_be_read_is_refused():
    model = stream(fitted(), FLEET.target(20, 20, 20, 20)[0])
    before = model.to_bytes()
    with pytest.raises(InvalidInputError, match="baseline"):
        model.set_baseline(np.full((3, 8), 1e30), 0)
    assert model.to_bytes() == before


def test_a_baseline_of_an_unknown_class_is_refused():
    model = stream(fitted(), FLEET.target(20, 20, 20, 20)[0])
    before = model.to_bytes()
    with pytest.raises(InvalidInputError, match=r"'idle'.*\[0, 1, 2, 3\]"):
        model.set_baseline(FLEET.target(5, 0, 0, 0)[0], "idle")
    assert model.to_bytes() == before


def test_a_baseline_that_fails_changes_nothing(monkeypatch):
    model = stream(fitted(), FLEET.target(20, 20, 20, 20)[0])
    before = model.to_bytes()

    def fail(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("baryflow.estimators._follow.adapt", fail)
        with pytest.raises(MemoryError):
            model.set_baseline(FLEET.target(30, 0, 0, 0)[0], 0)
    assert model.to_bytes() == before


def test_a_baseline_before_the_stream_survives_a_further_source():
    model = OnlineDaDiL(classifier="linear", keep_sources=True, validate=False, random_state=0)
    first = FLEET.domain < 4
    model.fit(FLEET.X[first], FLEET.y[first], FLEET.domain[first])
    model.set_baseline(FLEET.target(30, 0, 0, 0, seed=1)[0], 0)
    model.add_source(FLEET.X[~first], FLEET.y[~first], 9)
    X, y = FLEET.target(200, 0, 0, 0)
    assert "baseline" in {one.name for one in stream(model, X).explanations_}
    assert model.score(X, y) > 0.9


def test_three_labels_settle_it(normal_only):
    without, X, y = normal_only
    model = without.spawn()
    assert model.score(X, y) < 0.2
    model.feedback(X[:3], y[:3], certify=True)
    assert model.explanations_[0].weight > 0.9
    assert model.explanations_[0].proportions[0] > 0.9
    assert without.spawn().feedback(X[:3], y[:3]).score(X, y) > 0.9  # chosen by error, for all we know
    others, truth = FLEET.target(20, 20, 20, 20)  # it is no matter of the labelled class alone
    assert model.score(others, truth) > without.score(others, truth) + 0.1


def test_labels_bring_back_an_explanation_that_evidence_alone_had_dropped():
    fleet = Fleet(4, n_classes=12)
    X, y = fleet.target(0, 0, 0, 200, *[0] * 8)
    model = stream(fitted(fleet), X)
    assert all(one.proportions[3] < 0.5 for one in model.explanations_)
    model.feedback(X[:3], y[:3], certify=True)
    assert model.explanations_[0].proportions[3] > 0.9
    assert model.score(X, y) > 0.9


def test_labels_are_weighed_before_they_are_learned_by_heart(normal_only):
    model, X, y = normal_only
    weights = []
    for n in (0, 1, 3):
        labelled = model.spawn()
        if n:
            labelled.feedback(X[:n], y[:n])
        weights.append(sum(one.weight for one in labelled.explanations_ if one.proportions[0] > 0.9))
    assert weights[0] < 0.3
    assert 0.6 < weights[1] <= weights[2] + 0.05


def test_a_wrong_label_is_no_veto():
    X, y = FLEET.target(13, 160, 13, 14)
    model = stream(fitted(), X)
    wrong = np.flatnonzero(y == 1)[:1]
    model.feedback(X[wrong], [2])
    assert model.explanations_[0].proportions[1] > 0.6
    assert model.score(X, y) > 0.85


def normal_mostly():
    return OnlineDaDiL(classifier="linear", class_prior={0: 0.85}, random_state=0)


def test_rows_overrule_a_class_prior():
    X, y = FLEET.target(13, 160, 13, 14)
    model = stream(fit(normal_mostly, FLEET), X)
    assert model.explanations_[0].proportions[1] > 0.7
    assert model.score(X, y) > 0.9


def test_a_class_prior_that_is_right_is_what_is_found():
    X, y = FLEET.target(160, 13, 13, 14)
    model = stream(fit(normal_mostly, FLEET), X)
    assert model.explanations_[0].name == "expected"
    assert model.explanations_[0].weight > 0.5
    assert model.score(X, y) > 0.9


def test_a_class_prior_speaks_where_rows_do_not(normal_only):
    without, X, _ = normal_only
    model = stream(fit(normal_mostly, FLEET), X)
    assert model.proportions_[0] > without.proportions_[0] + 0.05


# -- looking, and keeping ------------------------------------------------------------------------------


def followed():
    """Return a model that saw rows, a baseline and labels, and the rows."""
    X, y = FLEET.target(80, 20, 30, 10)
    model = stream(fitted().set_baseline(FLEET.target(20, 0, 0, 0, seed=1)[0], 0), X)
    return model.feedback(X[:4], y[:4]), X, y


@pytest.mark.parametrize("labels", [False, True])
def test_a_row_alone_is_predicted_like_among_others(labels):
    model, X, _ = followed()
    if not labels:
        model = stream(fitted(), X)
    alone = np.vstack([model.predict_proba(row[None]) for row in X[:40]])
    np.testing.assert_allclose(alone, model.predict_proba(X)[:40], atol=1e-6)


def test_looking_changes_nothing():
    model, X, _ = followed()
    before = model.to_bytes()
    for name in dir(type(model)):
        if name.endswith("_") and not name.startswith("_"):
            getattr(model, name)
    model.report()
    model.describe_proportions()
    model.query(5)
    model.predict(X)
    model.predict_proba(X[:3])
    model.assess(X)
    for look in (measure, place):
        look(model.knowledge_, model.state_, X)
    known_target(model.knowledge_, model.state_)
    assert model.to_bytes() == before


@pytest.mark.parametrize("cut", [0, 64, 96])
def test_resumed_it_continues_bit_for_bit(cut):
    X, y = FLEET.target(80, 20, 30, 10)
    rows, _ = FLEET.target(20, 0, 0, 0, seed=1)

    def follow(resumed):
        model = fitted().set_baseline(rows[:10], 0)
        for start in range(0, len(X), 32):
            if resumed and start == cut:
                model = OnlineDaDiL.from_bytes(model.to_bytes())
            model.partial_fit(X[start : start + 32])
            if start == 32:
                model.feedback(X[:3], y[:3])
            if start == 64:
                model.set_baseline(rows[10:], 0)
        return model

    one, other = follow(False), follow(True)
    assert one.to_bytes() == other.to_bytes()
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X))
    assert one.report() == other.report()


# -- proportions from votes ---------------------------------------------------------------------------


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
    np.testing.assert_allclose(found, most_likely(votes, np.ones(len(votes)), TRAINED), atol=0.02)


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
    np.testing.assert_allclose(found[1:], explanations.RAREST, rtol=1e-2)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


def test_a_class_without_training_rows_is_no_division_by_zero():
    votes = np.tile([0.7, 0.3, 0.0], (50, 1))
    found = estimate_proportions(votes, np.ones(50), np.array([0.7, 0.3, 0.0]), EVEN)
    assert np.isfinite(found).all()
    assert found[2] < 2 * explanations.RAREST


# -- what is proposed, and what speaks for it ----------------------------------------------------------


class Case:
    """A target of a fleet, and what is proposed and measured of it."""

    def __init__(self, fleet, counts, baselines=()):
        self.knowledge = fitted(fleet).knowledge_
        self.model = self.knowledge.model.domain_model
        self.X, self.y = fleet.target(*counts)
        self.seen = TargetSummary.of_rows(self.X)
        self.prior = np.full(fleet.n_classes, 1 / fleet.n_classes)
        self.truth = np.bincount(self.y, minlength=fleet.n_classes) / len(self.y)
        raw = self.knowledge.plain.raw_logs(self.X)[0]
        self.votes = np.exp(log_softmax(raw, axis=1))
        self.baselines = baselines
        shares = self.knowledge.plain.shares
        self.found = propose(self.model, self.seen, self.prior, self.votes, shares, baselines)

    def candidate(self, proportions):
        """Return the explanation that the target has these class proportions."""
        proportions = explanations.normalise_proportions(np.asarray(proportions, dtype=float))
        calibration = self.model.moments.at(
            self.seen.mean, self.seen.variance, proportions, self.seen.mass
        )
        return Candidate(FIXED_POINT, proportions, *calibration)

    def evidence(self, *candidates):
        """Return a dict of kind → what speaks for each of the candidates."""
        table = measure_evidence(self.model, self.seen, candidates, self.prior, self.baselines)
        return dict(zip(("rows", "calibration", "baseline"), table.T, strict=True))


@pytest.mark.parametrize("counts", [(160, 13, 13, 14), (100, 10, 80, 10), (80, 10, 10, 100)])
def test_the_true_proportions_are_proposed(counts):
    case = Case(FLEET, counts)
    names = [one.name for one in case.found]
    assert names[0] == "expected"
    assert names[-1] == "not adapting"
    nearest = min(case.found[:-1], key=lambda one: total_variation(one.proportions, case.truth))
    assert nearest.name == FIXED_POINT
    assert total_variation(nearest.proportions, case.truth) < 0.03
    V = case.model.see(case.X, nearest.centre, nearest.scale)
    assert (case.model.log_posteriors(V, nearest.proportions).argmax(axis=1) == case.y).mean() > 0.9


def test_proposals_differ_from_each_other():
    found = Case(FLEET, (160, 13, 13, 14)).found[:-1]
    for i, one in enumerate(found):
        for other in found[:i]:
            assert total_variation(one.proportions, other.proportions) > 0.05


def test_a_baseline_is_one_more_proposal():
    rows, _ = FLEET.target(30, 0, 0, 0, seed=1)
    case = Case(FLEET, (160, 13, 13, 14), (Baseline.of(0, rows),))
    (one,) = [one for one in case.found if one.name == "baseline"]
    assert total_variation(one.proportions, case.truth) < 0.07
    V = case.model.see(rows, one.centre, one.scale)
    assert (case.model.log_posteriors(V, case.prior).argmax(axis=1) == 0).mean() > 0.75


def test_rows_of_several_classes_speak_for_the_true_proportions():
    case = Case(FLEET, (160, 13, 13, 14))
    wrong = [case.candidate(0.8 * np.eye(4)[c] + 0.05) for c in (1, 2, 3)]
    found = case.evidence(case.candidate(case.truth), *wrong)["rows"]
    assert (found[0] > found[1:] + 0.1).all()


def test_components_say_of_explanations_what_their_rows_say():
    p = make_domains(n_classes=6, n_per_class=100, noise=2.2, random_state=3)  # classes overlap
    model = OnlineDaDiL(classifier="linear", random_state=0, validate=False).fit(p.X, p.y, p.domain)
    known, seen = stream(model, p.X_target).knowledge_, summarise(model.state_)
    assert len(seen.masses) < 20
    rows, prior = TargetSummary.of_rows(p.X_target), np.full(6, 1 / 6)
    votes = np.exp(log_softmax(known.plain.raw_logs(p.X_target)[0], axis=1))
    domain_model = known.model.domain_model
    found = propose(domain_model, rows, prior, votes, known.plain.shares)
    by_rows, by_components = (
        measure_evidence(domain_model, one, found, prior)[:, 0] for one in (rows, seen)
    )
    np.testing.assert_allclose(by_components - by_components[0], by_rows - by_rows[0], atol=0.6)


def test_calibrations_unlike_those_of_the_sources_are_implausible():
    case = Case(ALIKE, (200, 0, 0, 0))
    found = case.evidence(*[case.candidate(one) for one in np.eye(4)])["calibration"]
    assert (found[0] > found[1:] + 1.0).all()
    flat = Case(FLEET, (200, 0, 0, 0))  # machines differ: any calibration is plausible
    other = flat.evidence(*[flat.candidate(one) for one in np.eye(4)])["calibration"]
    assert np.ptp(other) < np.ptp(found)


def test_not_adapting_is_judged_like_the_others_with_the_usual_calibration():
    behind = []
    for fleet in (FLEET, ALIKE):
        case = Case(fleet, (50, 50, 50, 50))
        found = case.evidence(*case.found)
        assert case.found[-1].name == NOT_ADAPTING
        assert found["calibration"][-1] == 0.0  # none is more plausible than the usual one
        assert (found["calibration"][:-1] < 0.0).all()
        behind.append(found["rows"].max() - found["rows"][-1])
    assert behind[0] > 10.0 * behind[1]


def test_a_baseline_speaks_for_calibrations_in_which_it_lies_where_its_class_does():
    rows, _ = FLEET.target(30, 0, 0, 0, seed=1)
    candidates = np.eye(4)
    without = Case(FLEET, (200, 0, 0, 0))
    found = without.evidence(*[without.candidate(one) for one in candidates])["baseline"]
    np.testing.assert_array_equal(found, 0.0)
    case = Case(FLEET, (200, 0, 0, 0), (Baseline.of(0, rows),))
    found = case.evidence(*[case.candidate(one) for one in candidates])["baseline"]
    assert (found[0] > found[1:] + 1.0).all()


def test_more_rows_of_a_baseline_speak_louder():
    found = []
    for n in (3, 30):
        rows, _ = FLEET.target(n, 0, 0, 0, seed=1)
        case = Case(FLEET, (200, 0, 0, 0), (Baseline.of(0, rows),))
        evidence = case.evidence(*[case.candidate(one) for one in np.eye(4)])["baseline"]
        found.append(evidence[0] - evidence[1:].max())
    assert found[1] > found[0] > 0.0


def test_the_more_rows_the_more_the_likelihood_counts_but_not_without_end():
    case, gaps = Case(FLEET, (160, 13, 13, 14)), []
    right, wrong = case.candidate(case.truth), case.candidate([0.05, 0.05, 0.85, 0.05])
    for mass in (10.0, 200.0, 1e4, 1e6):
        case.seen = replace(case.seen, mass=mass)
        evidence = case.evidence(right, wrong)["rows"]
        gaps.append(evidence[0] - evidence[1])
    assert np.all(np.diff(gaps) > 0.0)
    assert gaps[3] < 1.1 * gaps[2]  # a class moves as a whole: its rows are not independent proofs


def test_explanations_that_are_not_expected_share_one_prior():
    half = np.full(4, 0.25), np.zeros(8), np.ones(8)
    found = [Candidate(name, *half) for name in ("expected", FIXED_POINT, "votes", NOT_ADAPTING)]
    weights = np.exp(weigh(found, np.zeros((4, 3))))
    np.testing.assert_allclose(weights, [1 / 3, 1 / 6, 1 / 6, 1 / 3])


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=5), st.floats(0.1, 100.0))
def test_what_is_behind_loses_weight_but_never_all_of_it(evidence, step):
    half = np.full(4, 0.25), np.zeros(8), np.ones(8)
    found = [Candidate("expected", *half)] * len(evidence)
    table = np.column_stack([evidence, np.zeros((len(evidence), 2))])
    before = np.exp(weigh(found, table))
    assert before.sum() == pytest.approx(1.0)
    best = int(np.argmax(evidence))
    assert before[best] == before.max()
    np.testing.assert_allclose(before[best] / before, 1.0 + np.max(evidence) - evidence)
    table[best, 1] += step  # from whatever kind of evidence
    after = np.exp(weigh(found, table))
    assert after[best] > before[best]
    assert (after > 0.0).all()


def test_the_place_of_a_baseline_follows_a_student_t():
    rows, _ = FLEET.target(30, 0, 0, 0, seed=1)
    case = Case(FLEET, (200, 0, 0, 0), (Baseline.of(0, rows),))
    candidates = [case.candidate(one) for one in np.eye(4)]
    found, model = case.evidence(*candidates)["baseline"], case.model
    spread = np.sqrt(model.between + (1.0 - model.between) / len(rows))
    expected = [
        stats.t.logpdf(
            model.see(rows.mean(axis=0)[None], one.centre, one.scale)[0] - model.places[0],
            model.class_freedom,
            scale=spread,
        ).sum()
        for one in candidates
    ]
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0])


def test_degrees_of_freedom_are_those_of_sources_and_of_their_classes():
    model = Case(FLEET, (50, 50, 50, 50)).model  # 4 sources, 4 classes
    assert model.freedom == 3.0
    assert model.class_freedom == 12.0


@pytest.mark.parametrize("fleet", [FLEET, ALIKE])
def test_calibrations_follow_a_student_t_in_every_direction(fleet):
    case = Case(fleet, (50, 50, 50, 50))
    model, (centre, scale) = case.model, case.model.moments.usual
    p, size = model.basis.shape[1], 1 / np.sqrt(model.gain_variance)
    gains = np.array([1.0, 1.5, 3.0])
    found = case.evidence(*[Candidate(FIXED_POINT, case.prior, centre, g * scale) for g in gains])
    expected = p * stats.t.logpdf(size * np.log(gains), model.freedom)
    np.testing.assert_allclose(found["calibration"], expected - expected[0], atol=1e-9)
    steps = np.array([0.0, 0.5, 2.0])[:, None] * scale
    found = case.evidence(*[Candidate(FIXED_POINT, case.prior, centre + s, scale) for s in steps])
    away = (steps / scale) @ model.basis
    expected = stats.t.logpdf(away, model.freedom, scale=np.sqrt(model.offset_variance)).sum(axis=1)
    np.testing.assert_allclose(found["calibration"], expected - expected[0], atol=1e-9)


def test_components_speak_like_their_rows():
    case = Case(FLEET, (160, 20, 10, 10))
    right = case.candidate(case.truth)
    candidates = [right, right._replace(name=EXPECTED, scale=1.5 * right.scale)]
    whole = case.evidence(*candidates)["rows"]
    V = case.model.see(case.X, right.centre, right.scale)
    order = np.lexsort((V[:, 0], case.y))  # pairs of one class, apart in all directions but one
    pairs = case.X[order].reshape(-1, 2, case.X.shape[1])
    case.seen = replace(
        case.seen,
        masses=np.full(len(pairs), 2.0),
        means=pairs.mean(axis=1),
        variances_in=lambda metric: (pairs @ metric).var(axis=1),
    )
    np.testing.assert_allclose(case.evidence(*candidates)["rows"], whole, rtol=0.05)


@pytest.mark.parametrize("still", [[], [2], [2, 5]])
def test_classes_are_seen_where_they_lie_whichever_columns_vary(still):
    case = Case(FLEET, (50, 50, 50, 50))
    X = case.X.copy()
    X[:, still] = X[0, still]
    model = case.model.leave_out_still(TargetSummary.of_rows(X))
    centre, scale = model.moments.usual
    places = model.see(centre + scale * model.means, centre, scale)
    np.testing.assert_allclose(places, model.places, atol=1e-9)
    moved = X.copy()
    moved[:, still] += 10.0 * scale[still]
    np.testing.assert_array_equal(model.see(moved, centre, scale), model.see(X, centre, scale))


def test_each_class_counts_as_often_as_it_is_expected():
    case = Case(FLEET, (160, 13, 13, 14))
    first = case.candidate(case.prior)
    right, wrong = case.candidate(case.truth), case.candidate([0.05, 0.05, 0.85, 0.05])
    gaps, counts = [], []
    for prior in (case.prior, np.array([0.97, 0.01, 0.01, 0.01])):
        table = measure_evidence(case.model, case.seen, [first, right, wrong], prior)
        gaps.append(table[1, 0] - table[2, 0])
        counts.append((1.0 / (1.0 / (case.seen.mass * prior) + case.model.effect)).sum())
    assert gaps[1] / gaps[0] == pytest.approx(counts[1] / counts[0])
    assert counts[1] < 0.8 * counts[0]


def test_estimated_proportions_lose_one_for_each_class_but_one():
    case = Case(FLEET, (50, 50, 50, 50))
    same = case.candidate(case.prior)[1:]
    rows = case.evidence(*[Candidate(n, *same) for n in (EXPECTED, FIXED_POINT, NOT_ADAPTING)])["rows"]
    np.testing.assert_allclose(rows[0] - rows, [0.0, 3.0, 3.0])


def test_not_adapting_has_the_proportions_of_the_votes():
    case = Case(ALIKE, (160, 13, 13, 14))
    voted = estimate_proportions(case.votes, case.seen.masses, case.knowledge.plain.shares, case.prior)
    np.testing.assert_allclose(case.found[-1].proportions, voted)


def test_a_column_that_a_target_lacks_labels_none_of_its_components(monkeypatch):
    case, found = Case(FLEET, (50, 50, 50, 50)), []
    monkeypatch.setattr(_adapt, "fit_dictionary", lambda *known: found.append(known[-1]))
    lost = np.argmax(np.abs(case.model.basis).sum(axis=1))
    for value in FLEET.X[[0, 1], lost]:
        case.X[:, lost] = value
        seen = TargetSummary.of_rows(case.X)
        explanation = _adapt.explain_as(case.knowledge, seen, case.prior)
        model = case.model.leave_out_still(seen)
        V = model.see(case.X, explanation.centre, explanation.scale)
        np.testing.assert_allclose(found[-1], np.exp(model.log_posteriors(V, case.prior)))
    np.testing.assert_allclose(found[0], found[1])


@pytest.mark.parametrize("left", [0.0, 1e-7, 1e-5, 5e-4])
def test_how_still_a_column_is_says_nothing_of_the_calibration(left):
    case, gone = Case(ALIKE, (50, 50, 50, 50)), [2, 5]
    still = ALIKE.X[:, gone].mean(axis=0)
    case.X[:, gone] = still + left * (case.X[:, gone] - case.X[:, gone].mean(axis=0))
    case.seen = TargetSummary.of_rows(case.X)
    case.model = case.model.leave_out_still(case.seen)
    assert case.evidence(case.candidate(case.prior))["calibration"][0] > -1.0


@pytest.mark.parametrize("lost", [[], [2]])
def test_a_column_that_a_baseline_lacks_says_nothing(lost):
    X, _ = FLEET.target(200, 0, 0, 0)
    step = np.zeros(X.shape[1])
    step[2] = 3.0 * FLEET.X[:, 2].std()
    rows = FLEET.target(30, 0, 0, 0, seed=1)[0] + step
    rows[:, lost] = np.nan
    assert stream(fitted().set_baseline(rows, 0), X + step).score(X + step, np.zeros(200)) > 0.9


# -- values --------------------------------------------------------------------------------------------


def test_a_baseline_and_further_rows_are_the_baseline_of_all():
    rows = np.random.default_rng(0).normal(1e3, 5.0, size=(50, 4))
    found = Baseline.of(1, rows[:7]).plus(Baseline.of(1, rows[7:20])).plus(Baseline.of(1, rows[20:]))
    whole = Baseline.of(1, rows)
    assert (found.code, found.n_rows) == (1, 50.0)
    np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(found.variance, whole.variance, rtol=1e-9)


@pytest.mark.parametrize("mass", [1.0, 200.0])
def test_calibrations_of_a_stack_of_proportions_are_those_of_each(mass):
    moments = fitted().knowledge_.model.moments
    X, _ = FLEET.target(50, 50, 50, 50)
    shares = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 2))
    centres, scales = moments.at(X.mean(axis=0), X.var(axis=0), shares, mass)
    assert centres.shape == scales.shape == (3, 2, 8)
    for i in np.ndindex(3, 2):
        centre, scale = moments.at(X.mean(axis=0), X.var(axis=0), shares[i], mass)
        np.testing.assert_allclose(centres[i], centre, rtol=1e-10)
        np.testing.assert_allclose(scales[i], scale, rtol=1e-10)
