"""Adapting: the dictionary goes to the target, whatever its class proportions are."""

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._adapt import fit_dictionary
from baryflow.estimators._explanations import Candidate, TargetSummary
from baryflow.estimators._predict import class_means, in_view
from tests.estimators.streams import PROBLEM, Fleet, fit, fit_default, mixed_rows, stream, validated

P = make_domains(n_per_class=60, random_state=2)


def linear():
    return OnlineDaDiL(classifier="linear", validate=False, random_state=0)


def crossed():
    """Return sources whose classes differ in column 0 and lie on both sides in column 1, and a target
    whose classes lie on one side each: the nearest slots of a class are half of them the other class's.
    """
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 60)

    def rows(side, offset):
        means = np.column_stack([2.0 * y - 1.0, 1.4 * side])
        return means + offset + 0.2 * rng.normal(size=(120, 2))

    sources = [rows(np.repeat([1, -1], 60), offset) for offset in (-0.1, 0.0, 0.1)]
    return np.concatenate(sources), np.tile(y, 3), np.repeat([1, 2, 3], 120), rows(1 - 2 * y, 0.0), y


def test_votes_keep_the_plan_from_crossing_classes():
    X, y, domain, X_target, y_target = crossed()
    model = linear().fit(X, y, domain).partial_fit(X_target)
    # The components alone, labelled through the plan.
    labels = model.state_.adapted.labelled.predict_proba(
        in_view(model.knowledge_, model.state_, X_target)
    )
    assert (labels.argmax(axis=1) == y_target).mean() > 0.95
    assert model.score(X_target, y_target) > 0.95


def test_class_probabilities_of_components_enter_the_plan():
    fleet = Fleet(1)
    model = linear().fit(fleet.X, fleet.y, fleet.domain).knowledge_.model
    X, y = fleet.target(40, 40, 40, 40)
    seen, even = TargetSummary.of_rows(X), np.full(4, 0.25)
    calibration = model.moments.at(seen.mean, seen.variance, even, seen.mass)
    candidate = Candidate("given", even, *calibration)
    right = []
    for posteriors in (np.full((len(X), 4), 0.25), np.eye(4)[y]):
        labels = fit_dictionary(model, seen, candidate, posteriors).labelled.labels
        right.append((labels.argmax(axis=1) == y).mean())
    assert 0.7 < right[0] < 0.95
    assert right[1] > right[0] + 0.03


def test_block_steps_take_the_atoms_to_the_target():
    model = fit(linear, P)
    atoms = np.stack([atom.means for atom in model.atoms_])
    truth = np.stack([P.X_target[P.y_target == c].mean(axis=0) for c in range(8)])
    errors = [
        np.linalg.norm(
            (class_means(model.knowledge_, model.state_) - truth) / P.X.std(axis=0), axis=1
        ).mean()
    ]
    stream(model, P.X_target)
    errors.append(
        np.linalg.norm(
            (class_means(model.knowledge_, model.state_) - truth) / P.X.std(axis=0), axis=1
        ).mean()
    )
    assert errors[1] < 0.5 * errors[0]
    before, after = model.history_.losses[-1]
    assert after < 0.85 * before
    assert np.abs(np.stack([atom.means for atom in model.atoms_]) - atoms).max() > 0.1


def test_every_adaptation_starts_from_the_sources():
    at_once = fit(linear, P).partial_fit(P.X_target)
    in_parts = stream(fit(linear, P), P.X_target, 60)
    np.testing.assert_allclose(
        *(class_means(one.knowledge_, one.state_) for one in (in_parts, at_once)), atol=0.3
    )
    assert (in_parts.predict(P.X_target) == at_once.predict(P.X_target)).mean() > 0.95


def test_classes_are_seen_after_ten_rows_of_each():
    model = OnlineDaDiL(classifier="linear", validate=False, label_shift=False, random_state=0)
    model.fit(P.X, P.y, P.domain)
    for n_rows, seen in ((16, 0.2), (24, 0.5), (90, 1.0)):  # of eight classes
        model.partial_fit(P.X_target[:n_rows])
        assert model.coverage_ == pytest.approx(seen, abs=0.05)
        assert f"{model.coverage_:.0%} of the classes were seen" in model.report()


def test_a_target_at_quite_another_level_is_found_though_the_plain_classifiers_are_wrong():
    rng = np.random.default_rng(0)
    p, order = PROBLEM, rng.permutation(len(PROBLEM.y_target))
    shift = 1.5 * p.X.std(axis=0) * rng.choice([-1, 1], p.X.shape[1])
    X, y = p.X_target[order] + shift, p.y_target[order]
    model = fit(validated, p)
    before = model.score(X, y)
    assert before < 0.5
    assert stream(model, X, 60).score(X, y) > before + 0.25


# -- any class proportions --------------------------------------------------------------------------


@pytest.mark.parametrize("proportions", ["balanced", "80 %"])
def test_no_class_proportions_do_harm(proportions):
    p, found = PROBLEM, []
    for c in range(8 if proportions == "80 %" else 2):
        rows = mixed_rows(p.y_target, proportions, c)
        X, y = p.X_target[rows], p.y_target[rows]
        model = fit_default()
        before = model.score(X, y)
        found.append((before, stream(model, X).score(X, y)))
    before, after = np.mean(found, axis=0)
    assert after >= before - 0.01
    assert after > 0.75
