from copy import deepcopy

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators.adaptation import log_average
from tests.estimators.streams import mixed_problem, mixed_rows, stream


def test_the_geometric_mean_of_probabilities():
    a, b = np.array([[0.9, 0.1]]), np.array([[0.5, 0.5]])
    np.testing.assert_allclose(log_average([a, b], [1.0, 0.0]), a, atol=2e-3)
    np.testing.assert_allclose(log_average([a, b], [0.5, 0.5]), [[0.75, 0.25]], atol=2e-3)
    veto = log_average([np.array([[1.0, 0.0]]), np.array([[0.01, 0.99]])], [0.5, 0.5])
    assert veto.min() > 0.01  # nobody can veto alone
    assert np.isfinite(veto).all()


# -- the pieces of an update ------------------------------------------------------------------------


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
    right = {}
    for votes in (True, False):
        model = OnlineDaDiL(
            view=False, proportions=False, votes=votes, predictor="plan", validate=False, random_state=0
        )
        model.fit(X, y, domain).partial_fit(X_target)
        right[votes] = model.score(X_target, y_target)
        assert (model._session.adaptation.bent.target.extra_costs is not None) == votes
    assert right[True] > 0.95
    assert right[False] < 0.75


@pytest.fixture(scope="module")
def updated():
    p = make_domains(n_per_class=60, random_state=2)
    model = OnlineDaDiL(validate=False, random_state=0).fit(p.X, p.y, p.domain)
    return p, stream(model, p.X_target)


def slot_errors(adapted, dictionary, domain, p):
    """Return how far the classes of a reconstruction are from those of the target, in the view."""
    model = adapted.model
    slots = dictionary.reconstruction(domain)[:, : model.n_dimensions]
    Z = model.project(p.X_target, adapted.mix.centre, adapted.mix.scale)
    truth = np.stack([Z[p.y_target == c].mean(axis=0) for c in range(model.n_classes)])
    classes = [slots[model.slot_classes == c].mean(axis=0) for c in range(model.n_classes)]
    return np.linalg.norm(classes - truth, axis=1)


def test_block_steps_take_the_atoms_to_the_target(updated):
    p, model = updated
    adapted = model._session.adaptation
    before, after = model.loss_curve_[-1]
    assert after < 0.85 * before
    bent, sources = adapted.bent, adapted.model.dictionary
    assert np.abs(bent.dictionary.atoms - sources.atoms).max() > 0.1
    # What transport and coordinates can do without moving an atom.
    bare, dictionary = bent.target.copy(), sources.copy()
    for _ in range(10):
        dictionary.transport(bare)
        dictionary.move_coordinates(bare)
    still = slot_errors(adapted, dictionary, bare, p).mean()
    assert slot_errors(adapted, bent.dictionary, bent.target, p).mean() < 0.8 * still


def test_every_further_step_lowers_the_loss(updated):
    p, _ = updated
    model = OnlineDaDiL(validate=False, random_state=0).fit(p.X, p.y, p.domain)
    losses = []
    for n in (1, 3, 9):
        model.fit(p.X, p.y, p.domain).set_params(n_steps=n).partial_fit(p.X_target)
        losses.append(model._session.adaptation.bent.target.loss)
    assert losses[0] > losses[1] > losses[2]


def test_warm_steps_move_the_atoms_too():
    p = make_domains(n_per_class=30, random_state=2)
    model = OnlineDaDiL.paper(random_state=0).fit(p.X, p.y, p.domain).partial_fit(p.X_target[:120])
    first = model._session.adaptation.bent.dictionary.atoms
    assert np.abs(first - model._session.knowledge.model.dictionary.atoms).max() > 1e-4
    model.partial_fit(p.X_target[120:])
    assert np.abs(model._session.adaptation.bent.dictionary.atoms - first).max() > 1e-4


def test_classes_are_seen_after_ten_rows(updated):
    p, _ = updated
    model = OnlineDaDiL(validate=False, random_state=0).fit(p.X, p.y, p.domain)
    model.partial_fit(p.X_target[:16])
    adapted = model._session.adaptation
    np.testing.assert_allclose(adapted.classes_seen, np.minimum(16 * adapted.mix.shares / 10, 1.0))
    stream(model, p.X_target[16:])
    assert model._session.adaptation.seen == 1.0


# -- any mix ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[1])
def scores(request):
    """Return accuracies of the source classifier and of the adapted one, for a mix, class by class."""
    p, rows = mixed_problem(request.param)
    model = OnlineDaDiL(random_state=0).fit(p.X[rows], p.y[rows], p.domain[rows])

    def play(mix):
        found = []
        for c in (0, 2, 4, 5):
            kept = mixed_rows(p.y_target, mix, c)
            again = deepcopy(model)  # without rehearsing again
            before = again.score(p.X_target[kept], p.y_target[kept])
            stream(again, p.X_target[kept])
            found.append((before, again.score(p.X_target[kept], p.y_target[kept])))
        return np.array(found).T

    return play


def test_much_of_one_class_does_no_harm(scores):
    before, after = scores("80 %")
    assert (after >= before - 0.02).all()
    assert after.mean() >= 0.94
    assert (after >= 0.9).mean() >= 3 / 4  # class 5 of seed 1 overlaps another: 0.85, from 0.71


def test_one_class_only_does_no_harm(scores):
    before, after = scores("one class")
    assert (after >= before - 0.02).all()
    assert after.mean() >= 0.9
