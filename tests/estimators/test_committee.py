"""The committee: whose log-probabilities count how much, and how that is learned."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._committee import Calibration, Committee, Trial, learn_committee, learn_weights
from baryflow.estimators._experts import describe_experts
from tests.estimators.streams import PROBLEM, Fleet, fit_default, stream

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=30, random_state=0)
NAMES = ("raw", "own", "other")


def even(n_raw=1):
    return Committee.even(NAMES, n_raw, "because")


# -- weights ----------------------------------------------------------------------------------------


def test_before_anything_is_learned_all_experts_count_the_same():
    committee = even(n_raw=2)
    np.testing.assert_allclose(committee.weights, 1 / 3)
    np.testing.assert_allclose(committee.raw, 1 / 2)  # those on raw rows alone, if nothing is adapted


@pytest.mark.parametrize(
    "wrong",
    [
        {"weights": np.ones(2)},
        {"weights": np.array([1.0, -1.0, 1.0])},
        {"weights": np.array([1.0, np.nan, 1.0])},
    ],
    ids=str,
)
def test_weights_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(even(), **wrong)


# -- how they are learned ---------------------------------------------------------------------------


def vote(codes, right, rng, n_classes=3):
    """Return log-probabilities of an expert that is right for this share of the rows."""
    said = np.where(rng.random(len(codes)) < right, codes, (codes + 1) % n_classes)
    return log_softmax(2.0 * np.eye(n_classes)[said] + 0.1 * rng.normal(size=(len(codes), 3)), axis=1)


def trials(right, shifted=None, unadapted=0.5, n=600):
    """Return trials of two folds, whose experts are right so often given the true proportions.

    Each has three explanations: the expected proportions, for which the experts are as right, others,
    for which `shifted` says how right they are, and not adapting.
    """
    rng, found = np.random.default_rng(0), []
    for fold in (0, 1):
        codes = rng.integers(3, size=n)
        logs, other = (
            np.stack([vote(codes, one, rng) for one in experts]) for experts in (right, shifted or right)
        )
        trial = Trial(
            fold=fold,
            stream="whole stream",
            true_logs=logs,
            log_weights=np.log([0.4, 0.3, 0.3]),
            logs=(logs, other, None),
            unadapted=vote(codes, unadapted, rng),
            agreements=np.eye(len(logs)),
            codes=codes,
        )
        found += [trial, trial._replace(stream="other class proportions")]
    return found


def test_who_is_right_more_often_gets_more_weight():
    found, _ = learn_committee(even(), trials([0.5, 0.95, 0.5]))
    share = found.weights / found.weights.sum()
    assert share[1] > 0.6
    assert share.argmax() == 1
    np.testing.assert_allclose(found.accuracy, [0.5, 0.95, 0.5], atol=0.06)
    assert [name for name, *_ in found.scores] == ["whole stream", "other class proportions"]


def test_experts_that_are_all_alike_share_the_weight():
    alike = []
    for trial in trials([0.8, 0.8, 0.8]):
        logs = np.repeat(trial.true_logs[:1], 3, axis=0)
        alike.append(trial._replace(true_logs=logs, logs=(logs, logs, None)))
    found, _ = learn_committee(even(), alike)
    np.testing.assert_allclose(found.weights / found.weights.sum(), 1 / 3, atol=0.01)


def test_the_sum_of_the_weights_calibrates():
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=2000)
    right = vote(codes, 0.9, rng)
    sharp, blunt = (learn_weights([((factor * right)[None], codes)]) for factor in (3.0, 0.5))
    assert sharp[0] < 1.0 < blunt[0]
    for weight, factor in ((sharp, 3.0), (blunt, 0.5)):
        certain = softmax(weight[0] * factor * right, axis=1).max(axis=1).mean()
        assert certain == pytest.approx(0.9, abs=0.03)


def test_scores_are_of_weights_that_other_folds_taught():
    one, two = trials([0.95, 0.4, 0.4]), trials([0.4, 0.95, 0.4])
    mixed = [trial for trial in one if trial.fold == 0] + [trial for trial in two if trial.fold == 1]
    found, logits = learn_committee(even(), mixed)
    assert len(logits) == len(mixed)
    own = [softmax(np.tensordot(found.weights, t.true_logs, 1)).argmax(axis=1) == t.codes for t in mixed]
    assert found.scores[0][2] < np.mean(own) - 0.2  # each fold would have taught the other expert


# -- of a model -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def validated():
    return OnlineDaDiL(classifier=["linear", "kernel"], random_state=0).fit(P.X, P.y, P.domain)


def not_adapting(model, X):
    """Return the weighted plain classifiers, each alone as a model of its own."""
    alone = [
        OnlineDaDiL(classifier=one, validate=False, random_state=0).fit(P.X, P.y, P.domain)
        for one in model.classifier
    ]
    logs = np.log([one.predict_proba(X) for one in alone])
    return softmax(np.tensordot(model.committee_.raw, logs, 1), axis=1)


def test_before_any_row_the_weighted_plain_classifiers_predict(validated):
    expected = not_adapting(validated, P.X_target)
    np.testing.assert_allclose(validated.predict_proba(P.X_target), expected, atol=1e-9)
    assert not np.allclose(validated.committee_.raw, 0.5)  # they were learned


def test_not_adapting_they_predict_whatever_is_seen(validated):
    known = validated.knowledge_
    committee = replace(known.committee, adapts=False, reason="switched off")
    known = replace(known, committee=committee, calibration=Calibration.none())
    model = OnlineDaDiL(**validated.get_params(deep=False))
    model.adopt(known, validated.classes_, validated.sources_, 4)
    before = model.predict_proba(P.X_target)
    np.testing.assert_allclose(before, not_adapting(validated, P.X_target), atol=1e-9)
    stream(model, P.X_target)
    np.testing.assert_allclose(model.predict_proba(P.X_target), before, rtol=1e-12)
    adapted = stream(validated.spawn(), P.X_target).predict_proba(P.X_target)
    assert not np.allclose(adapted, before)
    assert "do not adapt" in model.report()


def test_the_end_of_a_stream_is_the_weighted_sum_of_the_experts(validated):
    known, parameters = validated.knowledge_, validated.get_params(deep=False)
    # One explanation: the expected proportions. The calibration of probabilities is another matter.
    known = replace(known, calibration=Calibration.none())

    def follow(weights):
        committee = replace(known.committee, weights=weights, explains=False)
        one = OnlineDaDiL(**parameters).set_params(label_shift=False)
        one.adopt(replace(known, committee=committee), validated.classes_, validated.sources_, 4)
        return stream(one, P.X_target).predict_proba(P.X_target)

    alone = [follow(weights) for weights in np.eye(len(known.committee.experts))]
    for one in alone:
        assert (one.argmax(axis=1) == P.y_target).mean() > 0.5
    expected = softmax(np.tensordot(known.committee.weights, np.log(alone), 1), axis=1)
    np.testing.assert_allclose(follow(known.committee.weights), expected, atol=1e-9)


def test_every_expert_of_the_default_is_named_weighed_and_described():
    model = fit_default()
    committee, described = model.committee_, describe_experts(model.knowledge_)
    assert committee.experts == (
        "linear", "kernel", "trees",
        "linear, per domain", "kernel, per domain", "trees, per domain",
        "reconstruction", "components",
    )  # fmt: skip
    assert list(described) == list(committee.experts)
    for weights in (committee.weights, committee.accuracy):
        assert weights.shape == (8,)
        assert (weights >= 0.0).all()
    lines = model.report().splitlines()
    share = committee.weights / committee.weights.sum()
    for number, text in enumerate(described.values()):
        (line,) = [line for line in lines if line.strip().startswith(f"{text}  ")]
        assert f"{share[number]:.0%}" in line
        assert f"{committee.accuracy[number]:.1%}" in line


def test_where_machines_are_calibrated_differently_experts_on_raw_rows_count_less():
    fleet = Fleet(2)
    model = OnlineDaDiL(classifier="linear", random_state=0).fit(fleet.X, fleet.y, fleet.domain)
    share = model.committee_.weights / model.committee_.weights.sum()
    assert model.committee_.experts[:2] == ("linear", "linear, per domain")
    assert share[0] < 0.7 * share[1]
    assert share[0] < 0.2  # a quarter if nothing was learned


def test_the_committee_is_more_accurate_than_its_plain_classifiers_alone():
    model = fit_default()
    before = model.score(PROBLEM.X_target, PROBLEM.y_target)
    stream(model, PROBLEM.X_target)
    assert model.score(PROBLEM.X_target, PROBLEM.y_target) > before + 0.02
