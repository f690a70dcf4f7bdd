import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow import Mixture, barycenter, mw2_squared, smw2_squared
from baryflow.exceptions import InvalidInputError
from tests.strategies import mixtures, permute, random_mixture, seeds


@given(mixtures(n_features=3, n_classes=2), seeds)
def test_the_barycenter_of_a_mixture_with_itself_is_itself(P, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    copies = [permute(P, rng.permutation(P.n_components)) for _ in range(n)]
    B = barycenter(copies, rng.dirichlet(np.ones(n))).mixture
    # Components may come in another order, so compare as measures.
    assert smw2_squared(B, P) <= 1e-12 * (np.abs(P.means).max() + P.stds.max() + 1) ** 2
    assert B.mass == pytest.approx(P.mass)


@given(seeds)
def test_from_a_start_elsewhere_it_still_finds_the_mixture_itself(seed):
    rng = np.random.default_rng(seed)
    P = random_mixture(rng, 4, 2)
    start = Mixture(P.weights, P.means + 0.01 * rng.normal(size=P.means.shape), P.stds)
    B = barycenter([P, P], [0.3, 0.7], start=start).mixture
    np.testing.assert_allclose(B.means, P.means, atol=1e-12)
    np.testing.assert_allclose(B.stds, P.stds, atol=1e-12)


@given(
    st.lists(mixtures(n_features=2, n_classes=3), min_size=1, max_size=4),
    seeds,
    st.one_of(st.none(), st.integers(1, 9)),
)
def test_the_objective_never_rises_and_everything_stays_in_place(atoms, seed, n_components):
    coordinates = np.random.default_rng(seed).dirichlet(np.ones(len(atoms)))
    found = barycenter(atoms, coordinates, n_components=n_components)
    B, trace = found.mixture, found.losses
    size = max(np.abs(a.means).max() + a.stds.max() for a in atoms) ** 2
    assert np.diff(trace).max(initial=0.0) <= 1e-12 * size
    if n_components is not None:
        assert B.n_components == n_components
    assert B.weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(B.labels.sum(axis=1), 1.0)
    assert B.stds.min() >= min(a.stds.min() for a in atoms) - 1e-12
    assert B.mass == pytest.approx(coordinates @ [a.mass for a in atoms])


@given(seeds)
def test_the_trace_is_the_objective(seed):
    rng = np.random.default_rng(seed)
    atoms = [random_mixture(rng, k, 2) for k in (3, 5)]
    found = barycenter(atoms, [0.4, 0.6])
    B, trace = found.mixture, found.losses
    objective = 0.4 * mw2_squared(B, atoms[0]) + 0.6 * mw2_squared(B, atoms[1])
    assert trace[-1] == pytest.approx(objective, rel=1e-9)


@given(seeds)
def test_permuting_the_mixtures_or_their_components_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    atoms = [random_mixture(rng, 4, 2, n_classes=2) for _ in range(3)]
    coordinates = np.array([0.5, 0.3, 0.2])
    B = barycenter(atoms, coordinates).mixture
    order = rng.permutation(3)
    assert (
        barycenter([atoms[i] for i in order], coordinates[order]).mixture == B
        or smw2_squared(barycenter([atoms[i] for i in order], coordinates[order]).mixture, B) < 1e-12
    )
    shuffled = [permute(a, rng.permutation(4)) for a in atoms]
    assert smw2_squared(barycenter(shuffled, coordinates).mixture, B) < 1e-12


def test_gaussians_meet_at_the_weighted_mean():
    P = Mixture([1], [[0.0]], [[1.0]])
    Q = Mixture([1], [[4.0]], [[3.0]])
    B = barycenter([P, Q], [0.75, 0.25]).mixture
    assert (B.means.item(), B.stds.item()) == (1.0, 1.5)


def test_without_coordinates_all_count_the_same():
    P, Q = (Mixture([1], [[m]], [[1.0]]) for m in (0.0, 4.0))
    assert barycenter([P, Q]).mixture.means.item() == 2.0


def test_a_coordinate_of_zero_plays_no_part():
    rng = np.random.default_rng(0)
    P, Q = (random_mixture(rng, 3, 2) for _ in range(2))
    assert barycenter([P, Q], [1.0, 0.0]).mixture == barycenter([P], [1.0]).mixture


def test_labels_keep_classes_apart():
    eye = np.eye(2)
    P = Mixture([0.5, 0.5], [[0.0], [1.0]], np.ones((2, 1)), eye)
    Q = Mixture([0.5, 0.5], [[1.0], [0.0]], np.ones((2, 1)), eye)
    assert barycenter([P, Q], label_cost=100.0).mixture.labels.tolist() == eye.tolist()
    assert barycenter([P, Q], label_cost=100.0).mixture.means.ravel().tolist() == [0.5, 0.5]


def test_an_unlabelled_start_gets_labels():
    rng = np.random.default_rng(0)
    atoms = [random_mixture(rng, 3, 2, n_classes=2) for _ in range(2)]
    found = barycenter(atoms, start=atoms[0].with_labels(None))
    B, trace = found.mixture, found.losses
    assert B.n_classes == 2
    assert np.diff(trace).max(initial=0.0) <= 1e-12


def test_a_warm_start_at_the_solution_stays_there():
    rng = np.random.default_rng(0)
    atoms = [random_mixture(rng, 5, 3) for _ in range(3)]
    found = barycenter(atoms, [0.2, 0.3, 0.5])
    B, cold = found.mixture, found.losses
    found = barycenter(atoms, [0.2, 0.3, 0.5], start=B)
    again, warm = found.mixture, found.losses
    assert len(warm) <= len(cold)
    np.testing.assert_allclose(again.means, B.means, atol=1e-12)


def test_a_component_of_weight_zero_stays_where_it_is():
    P = Mixture([1.0, 0.0], [[0.0], [9.0]], np.ones((2, 1)))
    Q = Mixture([1.0], [[2.0]], np.ones((1, 1)))
    assert barycenter([P, Q], [0.6, 0.4]).mixture.means.ravel() == pytest.approx([0.8, 9.0])


def test_bad_input_is_named():
    P = Mixture([1.0], [[0.0]], [[1.0]])
    wide = Mixture([1.0], [[0.0, 0.0]], [[1.0, 1.0]])
    for arguments, message in [
        (([],), "mixtures must hold at least one"),
        (([P, 3],), "got int at 1"),
        (([P, wide],), "must agree in features and classes"),
        (([P, P.with_labels([[1.0]])],), "must agree in features and classes"),
        (([P, P], [0.5, 0.6]), "coordinates must be non-negative and sum to 1"),
        (([P, P], [1.0]), r"expected coordinates to have shape \(n_mixtures=2,\)"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            barycenter(*arguments)
    with pytest.raises(InvalidInputError, match="start"):
        barycenter([P], start=wide)
    with pytest.raises(InvalidInputError, match="contradicts start"):
        barycenter([P], start=P, n_components=2)


def test_iterations_that_run_out_have_not_converged():
    rng = np.random.default_rng(0)
    atoms = [random_mixture(rng, 12, 2) for _ in range(3)]
    whole = barycenter(atoms)
    assert whole.converged
    assert whole.n_iter == len(whole.losses) - 1 > 1
    cut = barycenter(atoms, max_iter=1, tol=0.0)
    assert not cut.converged
    assert cut.n_iter == 1
    assert cut.losses.tolist() == whole.losses[:2].tolist()
