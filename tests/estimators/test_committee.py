"""The committee: whose log-probabilities count how much, and how that is learned."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._committee import Committee, Trial, learn_committee, learn_raw_weights
from tests.estimators.streams import PROBLEM, fit_default, stream

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=30, random_state=0)
NAMES = ("raw", "own", "other")


def even(n_raw=1):
    return Committee.even(NAMES, n_raw, "because")


# -- weights ----------------------------------------------------------------------------------------


def test_weights_depend_on_the_size_of_the_label_shift():
    committee = even()
    np.testing.assert_allclose(committee.weights(0.0), [1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(committee.weights(1 / 6), [1 / 2, 1 / 4, 1 / 4])
    np.testing.assert_allclose(committee.weights(1.0), [2 / 3, 1 / 6, 1 / 6])  # raw rows count more
    np.testing.assert_allclose(committee.raw, [1.0])


def test_a_shift_is_believed_the_more_the_better_the_target_fits():
    committee = even()
    assert committee.believe(0.3, 0.0) < committee.believe(0.3, 1.0) < committee.believe(0.3, 5.0)
    assert committee.believe(0.3, -5.0) < 0.1
    assert committee.believe(0.3, 5.0) > 0.9


def test_a_shift_that_chance_explains_is_not_believed():
    assert even().believe(0.0, 100.0) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"usual": np.ones(2)},
        {"usual": np.array([1.0, -1.0, 1.0])},
        {"shifted": np.array([1.0, np.nan, 1.0])},
        {"belief": np.zeros(3)},
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


def trials(right, shifted_right=None, n=300, size=0.0, improvement=0.0):
    """Return a trial of a whole stream, and one with label shift, of experts that are right so often."""
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=n)
    logs = np.stack([vote(codes, one, rng) for one in right])
    other = logs
    if shifted_right is not None:
        other = np.stack([vote(codes, one, rng) for one in shifted_right])
    usual = Trial("whole stream", False, logs, logs, 0.0, 0.0, np.eye(len(logs)), codes)
    shifted = Trial(
        "other class proportions", True, logs, other, size, improvement, np.eye(len(logs)), codes
    )
    return [usual, shifted]


def test_who_is_right_more_often_gets_more_weight():
    found = learn_committee(even(), trials([0.5, 0.95, 0.5], size=0.8))
    share = found.usual / found.usual.sum()
    assert share[1] > 0.6
    assert share.argmax() == 1
    np.testing.assert_allclose(found.accuracy, [0.5, 0.95, 0.5], atol=0.06)
    assert (found.shifted / found.shifted.sum())[1] > 0.5
    assert [name for name, *_ in found.scores] == ["whole stream", "other class proportions"]


def test_experts_that_are_all_alike_share_the_weight():
    logs = trials([0.8, 0.8, 0.8])[0].logs[:1]
    alike = [one._replace(logs=np.repeat(logs, 3, 0), shifted_logs=np.repeat(logs, 3, 0))
             for one in trials([0.8, 0.8, 0.8])]  # fmt: skip
    found = learn_committee(even(), alike)
    np.testing.assert_allclose(found.usual / found.usual.sum(), 1 / 3, atol=0.01)


def test_the_sum_of_the_weights_calibrates():
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=2000)
    right = vote(codes, 0.9, rng)
    sharp, blunt = (learn_raw_weights([((factor * right)[None], codes)]) for factor in (3.0, 0.5))
    assert sharp[0] < 1.0 < blunt[0]
    for weight, factor in ((sharp, 3.0), (blunt, 0.5)):
        certain = softmax(weight[0] * factor * right, axis=1).max(axis=1).mean()
        assert certain == pytest.approx(0.9, abs=0.03)


def test_a_shift_is_believed_more_if_that_helped():
    learned = []
    for right in (([0.6] * 3, [0.95] * 3), ([0.95] * 3, [0.6] * 3)):
        usual, shifted = trials(*right, size=0.5, improvement=0.5)
        several = [usual._replace(size=0.1, improvement=value) for value in (-0.3, 0.0, 0.3)]
        learned.append(learn_committee(even(), [*several, shifted]))
    helped, harmed = learned
    assert helped.believe(0.5, 0.5) > harmed.believe(0.5, 0.5) + 0.1
    assert helped.believe(0.5, 0.5) > helped.believe(0.5, -0.3)
    assert harmed.belief[1] >= 0.0  # a better fit never lowers it


@pytest.mark.parametrize(
    ("without", "adapted", "adapts"),
    [
        (0.9, 0.99, True),
        (0.9, 0.892, True),  # less than a point
        (0.9, 0.888, False),
        (0.5, 0.477, True),  # less than a twentieth of the errors
        (0.5, 0.473, False),
    ],
)
def test_adapting_that_loses_clearly_is_switched_off(without, adapted, adapts):
    codes = np.zeros(2000, dtype=int)
    logs = np.zeros((3, 2000, 3))
    for expert, (right, height) in enumerate([(without, 1.0), (adapted, 30.0), (adapted, 30.0)]):
        n = round(2000 * right)  # the others outvote the first
        logs[expert, :n, 0], logs[expert, n:, 1] = height, height
    trial = Trial("whole stream", False, logs, logs, 0.0, 0.0, np.eye(len(logs)), codes)
    found = learn_committee(replace(even(), usual=np.array([0.0, 0.5, 0.5])), [trial])
    assert found.scores[0][1:] == pytest.approx((without, adapted))
    assert found.adapts == adapts
    assert ("less accurate" in found.reason) == (not adapts)


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
    known = validated.tracker.knowledge
    known = replace(known, committee=replace(known.committee, adapts=False, reason="switched off"))
    model = OnlineDaDiL(**validated.get_params(deep=False))
    model.adopt(known, validated.classes_, validated.sources_, 4)
    before = model.predict_proba(P.X_target)
    np.testing.assert_allclose(before, not_adapting(validated, P.X_target), atol=1e-9)
    stream(model, P.X_target)
    assert np.array_equal(model.predict_proba(P.X_target), before)
    adapted = stream(validated.spawn(), P.X_target).predict_proba(P.X_target)
    assert not np.allclose(adapted, before)
    assert "do not adapt" in model.report()


def test_the_end_of_a_stream_is_the_weighted_sum_of_the_experts(validated):
    model = stream(validated.spawn(), P.X_target)
    known = model.tracker.knowledge
    alone = []
    for number in range(len(model.committee_.experts)):
        weights = np.eye(len(model.committee_.experts))[number]
        committee = replace(known.committee, usual=weights, shifted=weights)
        one = OnlineDaDiL(classifier=model.classifier, label_shift=False, random_state=0)
        one.adopt(replace(known, committee=committee), model.classes_, model.sources_, 4)
        alone.append(stream(one, P.X_target).predict_proba(P.X_target))
        assert (alone[-1].argmax(axis=1) == P.y_target).mean() > 0.5
    one.adopt(known, model.classes_, model.sources_, 4)
    found = stream(one, P.X_target).predict_proba(P.X_target)
    expected = softmax(np.tensordot(model.committee_.usual, np.log(alone), 1), axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_every_expert_of_the_default_is_named_weighed_and_described():
    model = fit_default()
    committee, described = model.committee_, model.describe_experts()
    assert committee.experts == (
        "linear", "kernel", "trees",
        "linear, per domain", "kernel, per domain", "trees, per domain",
        "reconstruction", "components", "reconstruction, stacked", "components, stacked",
    )  # fmt: skip
    assert list(described) == list(committee.experts)
    for weights in (committee.usual, committee.shifted, committee.accuracy):
        assert weights.shape == (10,)
        assert (weights >= 0.0).all()
    assert committee.usual.std() > 0.01  # learned, not even
    lines = model.report().splitlines()
    share = committee.usual / committee.usual.sum()
    for number, text in enumerate(described.values()):
        (line,) = [line for line in lines if line.strip().startswith(f"{text}  ")]
        assert f"{share[number]:.0%}" in line
        assert f"{committee.accuracy[number]:.1%}" in line


def test_the_committee_is_more_accurate_than_its_plain_classifiers_alone():
    model = fit_default()
    before = model.score(PROBLEM.X_target, PROBLEM.y_target)
    stream(model, PROBLEM.X_target)
    assert model.score(PROBLEM.X_target, PROBLEM.y_target) > before + 0.02
