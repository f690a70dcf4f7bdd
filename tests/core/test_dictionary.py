from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baryflow.core.dictionary import Dictionary, Domain, Points, farthest_first
from baryflow.core.transport import plan_between
from tests.strategies import seeds


def problem(seed, *, n_domains=3, n_atoms=2, k=5, d=2, n_classes=3, target=True, uniform=False):
    """A dictionary away from its optimum, labelled domains and perhaps an unlabelled one."""
    rng = np.random.default_rng(seed)
    scale = 3.0

    def points(n):
        labels = scale * np.eye(n_classes)[np.arange(n) % n_classes]
        return np.hstack([rng.normal(size=(n, d)), rng.uniform(0.5, 2, size=(n, d)), labels])

    dictionary = Dictionary(np.stack([points(k) for _ in range(n_atoms)]), d, label_scale=scale)
    width = dictionary.atoms.shape[2]
    domains = []
    for number in range(n_domains + target):
        n = k if uniform else k + number
        slots = np.full(k, 1 / k) if uniform else rng.dirichlet(3 * np.ones(k))
        weights = np.full(n, 1 / n) if uniform else rng.dirichlet(3 * np.ones(n))
        Q = points(n)
        used = width
        if number == n_domains:
            Q[:, 2 * d :], used = 0.0, 2 * d
        domains.append(Domain(weights, Q, slots, rng.dirichlet(np.ones(n_atoms)), used))
    return dictionary, domains


def with_fixed_plans(dictionary, domains, atoms, coordinates):
    """The loss at other parameters, plans and matches held: written out, pair by pair."""
    total = 0.0
    for domain, lam in zip(domains, coordinates, strict=True):
        for j in range(dictionary.n_slots):
            slot = sum(lam[c] * atoms[c, domain.match[c, j]] for c in range(dictionary.n_atoms))
            for i, q in enumerate(domain.points):
                gap = (q - slot)[: domain.n_used]
                total += domain.plan[i, j] * float(gap @ gap)
    return total


@settings(max_examples=20)
@given(seeds, st.sampled_from([1e-2, 1.0, 100.0]))
def test_moving_atoms_is_the_exact_minimiser(seed, proximal):
    dictionary, domains = problem(seed)
    dictionary.proximal = proximal
    for domain in domains:
        dictionary.transport(domain)
    old = dictionary.atoms
    dictionary.std_floor = -np.inf  # without constraints the gradient vanishes at the minimum
    dictionary.move_atoms(domains)
    coordinates = [domain.coordinates for domain in domains]

    def objective(atoms):
        held = proximal / dictionary.n_slots * np.square(atoms - old).sum()
        return held + with_fixed_plans(dictionary, domains, atoms, coordinates)

    rng = np.random.default_rng(seed)
    lowest = objective(dictionary.atoms)
    for _ in range(6):  # central differences of a quadratic are exact
        step = np.zeros_like(old)
        spatial = Points(step, dictionary.n_features).spatial
        spatial[tuple(rng.integers(n) for n in spatial.shape)] = 1.0
        slope = objective(dictionary.atoms + step) - objective(dictionary.atoms - step)
        assert abs(slope) < 1e-9 * (1.0 + lowest)


@settings(max_examples=20)
@given(seeds)
def test_coordinates_and_labels_stay_on_the_simplex(seed):
    dictionary, domains = problem(seed)
    curve = dictionary.fit(domains, max_steps=8)
    assert curve.shape[1] == len(domains)
    for domain in domains:
        assert domain.coordinates.min() >= 0
        assert domain.coordinates.sum() == pytest.approx(1.0)
        assert sorted(domain.match[0]) == list(range(dictionary.n_slots))
        np.testing.assert_allclose(domain.plan.sum(axis=1), domain.weights, atol=1e-12)
        np.testing.assert_allclose(domain.plan.sum(axis=0), domain.slot_weights, atol=1e-12)
    atoms = Points(dictionary.atoms, dictionary.n_features)
    assert atoms.labels.min() >= 0
    np.testing.assert_allclose(atoms.labels.sum(axis=2), dictionary.label_scale)
    assert atoms.stds.min() >= 1e-3


@settings(max_examples=20)
@given(seeds)
def test_block_steps_lower_the_loss(seed):
    dictionary, domains = problem(seed)
    curve = dictionary.fit(domains, max_steps=20, tol=0.0).sum(axis=1)
    assert curve[-1] < curve[0]


@settings(max_examples=20)
@given(seeds)
def test_a_firmer_step_is_shorter_and_still_lowers_the_loss(seed):
    start, domains = problem(seed)
    for domain in domains:
        start.transport(domain)
    coordinates = [domain.coordinates for domain in domains]
    before = with_fixed_plans(start, domains, start.atoms, coordinates)
    moves = []
    for proximal in (1e-2, 1.0, 10.0, 100.0):
        dictionary = replace(start, proximal=proximal)
        dictionary.move_atoms(domains)
        moves.append(float(np.linalg.norm(dictionary.atoms - start.atoms)))
        assert with_fixed_plans(start, domains, dictionary.atoms, coordinates) < before
    assert moves == sorted(moves, reverse=True)
    assert moves[-1] < 0.1 * moves[0]
    curve = replace(start, proximal=100.0).fit([d.copy() for d in domains], tol=0.0).sum(axis=1)
    assert curve[-1] < curve[0]


def test_one_domain_on_one_atom_moves_it_a_known_part_of_the_way():
    dictionary, (domain,) = problem(0, n_domains=1, n_atoms=1, target=False, uniform=True)
    dictionary.transport(domain)
    means, goal = dictionary.atoms[0, :, :2], domain.goal[:, :2]
    copy = replace(dictionary, proximal=3.0)
    copy.move_atoms([domain])
    np.testing.assert_allclose(copy.atoms[0, :, :2], means + (goal - means) / 4)
    assert dictionary.proximal == 1e-2
    assert copy.copy().proximal == 3.0


def test_as_many_atoms_as_domains_rebuild_them_exactly():
    dictionary, domains = problem(0, n_domains=2, n_atoms=2, target=False, uniform=True)
    dictionary.atoms = np.stack([domain.points for domain in domains])
    for number, domain in enumerate(domains):
        domain.coordinates = np.eye(2)[number]
    curve = dictionary.fit(domains, max_steps=3)
    assert curve[-1].max() < 1e-12


@settings(max_examples=20)
@given(seeds)
def test_the_reconstruction_is_the_barycenter_of_atoms_weighted_like_the_domain(seed):
    dictionary, (domain,) = problem(seed, n_domains=1, target=False)
    before = None
    while not np.array_equal(before, domain.match):
        before = domain.match
        dictionary.transport(domain)
    slots = dictionary.reconstruction(domain)
    for atom, match in zip(dictionary.atoms, domain.match, strict=True):
        costs = np.square(slots[:, None] - atom).sum(axis=2)
        weights = np.empty(len(slots))
        weights[match] = domain.slot_weights
        best = plan_between(domain.slot_weights, weights, costs)
        ours = domain.slot_weights @ costs[np.arange(len(slots)), match]
        assert ours == pytest.approx(np.vdot(best, costs), rel=1e-9)


@settings(max_examples=20)
@given(seeds, st.booleans())
def test_a_goal_is_the_mean_of_what_the_plan_sends(seed, uniform):
    dictionary, domains = problem(seed, uniform=uniform)
    for domain in domains:
        dictionary.transport(domain)
        sent = domain.plan.T @ domain.points / domain.plan.sum(axis=0)[:, None]
        np.testing.assert_allclose(domain.goal, sent, atol=1e-9)


def test_frozen_domains_pull_but_do_not_move():
    dictionary, domains = problem(1)
    for domain in domains:
        dictionary.transport(domain)
    frozen = [domain.copy() for domain in domains[:-1]]
    before = [(d.coordinates.copy(), d.match.copy(), d.plan.copy()) for d in frozen]
    dictionary.step(domains[-1:], frozen)
    for domain, (coordinates, match, plan) in zip(frozen, before, strict=True):
        assert np.array_equal(domain.coordinates, coordinates)
        assert np.array_equal(domain.match, match)
        assert np.array_equal(domain.plan, plan)


@settings(max_examples=15)
@given(seeds)
def test_the_order_of_components_and_domains_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    dictionary, domains = problem(seed)
    other, twins = problem(seed)
    for twin in twins:
        order = rng.permutation(len(twin.weights))
        twin.weights, twin.points = twin.weights[order], twin.points[order]
    turn = rng.permutation(len(twins))
    twins = [twins[i] for i in turn]
    first = dictionary.fit(domains, max_steps=3, tol=0.0)
    second = other.fit(twins, max_steps=3, tol=0.0)
    np.testing.assert_allclose(second, first[:, turn], rtol=1e-6)
    np.testing.assert_allclose(other.atoms, dictionary.atoms, rtol=1e-5, atol=1e-6)


def test_farthest_first_starts_in_the_middle():
    points = [np.array([[x]]) for x in (0.0, 1.0, 10.0, 5.0)]
    assert farthest_first(points, 3) == [3, 0, 2]


def test_coordinates_do_not_depend_on_an_offset():
    found = []
    for offset in (0.0, 1e6):
        dictionary, (*_, target) = problem(0, n_atoms=3)
        dictionary.transport(target)  # plans at the origin, where distances have all their digits
        dictionary.atoms[:, :, :2] += offset
        target.goal[:, :2] += offset
        dictionary.move_coordinates(target)
        found.append(target.coordinates)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    assert (found[0] > 0.0).sum() > 1
