"""The paper's method against the core's fast versions, POT, scikit-learn and finite differences."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

import baryflow
from baryflow import Mixture, MixtureClassifier, fit_mixture, paper
from baryflow.core.dictionary import Dictionary, Domain
from baryflow.datasets import make_crescents, make_domains
from baryflow.estimators._orders import stream_order
from baryflow.exceptions import InvalidInputError
from tests.core.test_summary import plain_compress
from tests.strategies import as_scikit, blobs, mixtures, random_mixture, seeds

QUICK = {"random_state": 0, "max_components": 8}


@pytest.mark.filterwarnings("ignore:without sample_domain")
@parametrize_with_checks(
    [
        paper.OnlineGMM(random_state=0),
        paper.OnlineGMM(compression="kullback-leibler", random_state=0),
        paper.GMMDaDiL(n_steps=5, **QUICK),
        paper.OnlineGMMDaDiL(source_steps=5, batch_steps=1, **QUICK),
        paper.OnlineGMMDaDiL(source_steps=200, batch_steps=1, optimizer="adam", **QUICK),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# -- 2.1 mixtures ------------------------------------------------------------------------------------


def test_likelihood_and_bic_are_those_of_scikit_learn():
    X, _ = make_crescents(random_state=0)
    P = paper.em(X, 4, random_state=0)
    theirs = as_scikit(P)
    assert paper.log_likelihood(P, X) == pytest.approx(theirs.score(X), rel=1e-12)
    assert paper.bic(P, X) == pytest.approx(theirs.bic(X), rel=1e-12)
    assert P.mass == 600
    fitted = GaussianMixture(4, covariance_type="diag", n_init=5, random_state=0).fit(X)
    assert paper.log_likelihood(P, X) > fitted.score(X) - 0.2


def test_a_labelled_mixture_describes_each_class():
    X, y = make_crescents(random_state=0)
    P = paper.labelled_gmm(X, y, 4, 2, random_state=0)  # there is no fourth class
    assert (P.n_components, P.n_classes, P.mass) == (6, 4, 600)
    np.testing.assert_allclose(P.weights @ P.labels, [1 / 3, 1 / 3, 1 / 3, 0.0])
    for label in range(3):
        mine = P.labels[:, label] == 1.0
        mean = P.weights[mine] @ P.means[mine] / P.weights[mine].sum()
        np.testing.assert_allclose(mean, X[y == label].mean(axis=0), rtol=1e-9)
    with pytest.raises(InvalidInputError, match="integers"):
        paper.labelled_gmm(X, y, 2)


@given(mixtures(n_features=2, n_classes=3), seeds)
def test_map_is_the_sum_over_components(P, seed):
    scale = np.abs(P.means).max()
    X = scale * np.random.default_rng(seed).normal(size=(5, 2))
    found = paper.map_estimate(P, X)
    for x, label in zip(X, found, strict=True):
        logs = [
            np.log(w) - np.log(s).sum() - 0.5 * np.square((x - m) / s).sum()
            for w, m, s in zip(P.weights, P.means, P.stds, strict=True)
        ]
        shares = np.exp(logs - np.max(logs))
        totals = [sum(shares[k] * P.labels[k, j] for k in range(len(logs))) for j in range(3)]
        assert totals[label] == pytest.approx(max(totals), rel=1e-6)
    with pytest.raises(InvalidInputError, match="labels"):
        paper.map_estimate(P.with_labels(None), X)


# -- 2.2 transport -----------------------------------------------------------------------------------


@given(mixtures(n_features=3, n_classes=2), mixtures(n_features=3, n_classes=2))
def test_distances_are_those_of_the_core_and_of_pot(P, Q):
    squares = np.square(paper.gaussian_w2(P, Q))
    size = squares.max() or 1.0
    np.testing.assert_allclose(squares, baryflow.w2_squared(P, Q), rtol=1e-9, atol=1e-9 * size)
    exact = ot.emd2(P.weights, Q.weights, squares / size) * size
    near = {"rel": 1e-9, "abs": 1e-9 * size}
    assert paper.mw2_squared(P, Q) == pytest.approx(baryflow.mw2_squared(P, Q), **near)
    assert paper.mw2_squared(P, Q) == pytest.approx(exact, **near)
    assert paper.wasserstein(P.weights, Q.weights, squares) == pytest.approx(exact, **near)
    supervised = baryflow.smw2_squared(P, Q, label_cost=size)
    assert paper.smw2_squared(P, Q, size) == pytest.approx(supervised, **near)
    plan = paper.mixture_plan(P, Q)
    np.testing.assert_allclose(plan.sum(axis=1), P.weights, atol=1e-9)
    np.testing.assert_allclose(plan.sum(axis=0), Q.weights, atol=1e-9)


@given(mixtures(n_classes=3), st.sampled_from([0.0, 2.0]))
def test_the_barycenter_of_a_mixture_with_itself_is_that_mixture(P, label_cost):
    B = paper.barycenter([P, P], [0.3, 0.7], label_cost=label_cost)
    np.testing.assert_allclose(B.weights, P.weights)
    for name in ("means", "stds", "labels"):
        np.testing.assert_allclose(getattr(B, name), getattr(P, name), rtol=1e-9)


@given(seeds, st.integers(1, 5), st.booleans(), st.booleans())
def test_barycenters_are_those_of_the_core(seed, n_components, uniform, labelled):
    rng = np.random.default_rng(seed)
    some = [
        random_mixture(rng, n_components, 2, n_classes=3 if labelled else None, uniform=uniform)
        for _ in range(3)
    ]
    coordinates = rng.dirichlet(np.ones(3))
    cost = 2.0 if labelled else 0.0
    mine = paper.barycenter(some, coordinates, label_cost=cost, start=some[0])
    core = baryflow.barycenter(some, coordinates, label_cost=cost, start=some[0], tol=0.0).mixture
    for name in ("weights", "means", "stds", "labels") if labelled else ("weights", "means", "stds"):
        np.testing.assert_allclose(getattr(mine, name), getattr(core, name), rtol=1e-9, atol=1e-9)


def test_what_does_not_fit_is_refused():
    rng = np.random.default_rng(0)
    P, Q = (random_mixture(rng, 2, d) for d in (2, 3))
    labelled, other = (random_mixture(rng, 2, 2, n_classes=n) for n in (3, 4))
    for wrong in (
        lambda: paper.smw2_squared(P, P, 0.0),
        lambda: paper.barycenter([P, labelled], [0.5, 0.5]),
        lambda: paper.barycenter([labelled, other], [0.5, 0.5]),
        lambda: paper.barycenter([labelled], [1.0], start=P),
        lambda: paper.compress_gmm(labelled, 1),
        lambda: paper.absorb_by_kl(labelled, labelled, 3),
        lambda: paper.empirical_risk([], []),
        lambda: paper.online_gmm_fit([np.zeros((3, 2))], 20, 5),
        lambda: paper.OnlineGMM(5, min_components=20).partial_fit(np.zeros((3, 2))),
        lambda: paper.gaussian_w2(P, Q),
        lambda: paper.smw2_squared(P, P, 1.0),  # no labels
        lambda: paper.optimal_transport([0.5, 0.5], [1.0], [[1.0]]),
        lambda: paper.barycenter([P, P], [0.5, 0.6]),
        lambda: paper.empirical_risk([1, 2], [1]),
        lambda: paper.get_best_gmm(np.zeros((3, 2)), 2, 1),
        lambda: paper.online_gmm_fit([]),
    ):
        with pytest.raises(InvalidInputError):
            wrong()
    assert paper.empirical_risk([1, 2, 3, 4], [1, 2, 3, 0]) == 0.25


# -- 3.1 the online mixture --------------------------------------------------------------------------


def clusters(n_clusters, n_rows, seed=0):
    """Rows of clusters so far apart that nobody can take two for one."""
    rng = np.random.default_rng(seed)
    centres = 100.0 * np.arange(n_clusters).repeat(n_rows)[:, None]
    return centres + rng.normal(size=(n_clusters * n_rows, 2))


def test_the_lowest_bic_wins():
    X = clusters(3, 20)
    P = paper.get_best_gmm(X, 1, 6, random_state=0)
    assert P.n_components == 3
    assert paper.bic(P, X) <= min(paper.bic(fit_mixture(X, k, random_state=0), X) for k in (1, 2, 4, 5))


@pytest.mark.parametrize(
    ("n_clusters", "n_rows", "expected"),
    [
        (6, 10, 6),  # as many as there are
        (12, 10, 8),  # ΔK at most
        (4, 1, 3),  # fewer than rows: ΔK < |X_t|
        (1, 1, 1),  # but one at least
    ],
)
def test_a_batch_may_become_fewer_components_than_rows(n_clusters, n_rows, expected):
    model = paper.OnlineGMM(50, min_components=5, batch_components=8, random_state=0)
    model.partial_fit(clusters(5, 4))
    before = model.mixture_.n_components
    model.partial_fit(clusters(n_clusters, n_rows))
    assert model.mixture_.n_components - before == expected


@given(mixtures(), st.integers(1, 4))
def test_merging_keeps_the_weight_and_compressing_is_the_double_loop(P, limit):
    if P.n_components > 1:
        weight, mean, _ = paper.gauss_merge(P, 0, 1)
        assert weight == pytest.approx(P.weights[:2].sum())
        pair = P.weights[:2] / P.weights[:2].sum()
        np.testing.assert_allclose(mean, pair @ P.means[:2], rtol=1e-9, atol=1e-12)
    found = paper.compress_gmm(P, limit)
    assert found.n_components <= limit
    assert found.mass == P.mass
    np.testing.assert_allclose(found.weights.sum(), 1.0)
    np.testing.assert_allclose(found.mean(), P.mean(), rtol=1e-9, atol=1e-9 * np.abs(P.means).max())
    weights, means, stds = plain_compress(P, limit, "w2", "wasserstein")
    size = np.abs(P.means).max()
    order, other = found.means[:, 0].argsort(), means[:, 0].argsort()
    np.testing.assert_allclose(found.weights[order], weights[other], atol=1e-9)
    np.testing.assert_allclose(found.means[order], means[other], atol=1e-9 * size)
    np.testing.assert_allclose(found.stds[order], stds[other], rtol=1e-9)


def test_rows_count_the_same_in_every_batch():
    few, many = paper.em(np.zeros((10, 1)), 1), paper.em(np.ones((30, 1)), 1)
    both = paper.concat_components(few, many)
    np.testing.assert_allclose(both.weights, [0.25, 0.75])
    assert both.mass == 40


@pytest.mark.parametrize("seed", [0, 1])
def test_the_class_is_algorithm_1(seed):
    X, _ = make_crescents(random_state=seed)
    batches = np.array_split(X, range(32, len(X), 32))
    function = paper.online_gmm_fit(batches, random_state=seed)
    model = paper.OnlineGMM(random_state=seed)
    for batch in batches:
        model.partial_fit(batch)
    assert model.mixture_ == function
    assert model.mixture_ == clone(model).fit(X).mixture_
    assert (function.n_components, function.mass) == (15, 600)


def test_a_stream_equals_the_pseudo_code():
    # With one Gaussian per batch EM leaves nothing to chance: Algorithms 1, 3 and 4 run as printed.
    X = blobs(np.random.default_rng(1), 320, 3)
    model = paper.OnlineGMM(4, min_components=1, batch_components=1)
    pi, mu, sigma, seen = np.zeros(0), np.zeros((0, 3)), np.zeros((0, 3)), 0
    for batch in np.split(X, 10):
        model.partial_fit(batch)
        pi = np.append(pi * seen / (seen + 32), 32 / (seen + 32))
        mu, sigma = np.vstack([mu, batch.mean(axis=0)]), np.vstack([sigma, batch.std(axis=0)])
        seen += 32
        if len(pi) > 4:
            pi, mu, sigma = plain_compress(Mixture(pi, mu, sigma), 4, "w2", "wasserstein")
    ours = model.mixture_
    order, theirs = ours.means[:, 0].argsort(), mu[:, 0].argsort()
    np.testing.assert_allclose(ours.weights[order], pi[theirs], rtol=1e-9)
    np.testing.assert_allclose(ours.means[order], mu[theirs], rtol=1e-9)
    np.testing.assert_allclose(ours.stds[order], sigma[theirs], rtol=1e-9)


def test_rows_are_held_until_the_first_fit_is_possible():
    X = clusters(5, 4)
    model = paper.OnlineGMM(min_components=5, random_state=0)
    for row in X[[0, 4, 8, 12]]:
        model.partial_fit(row[None])
    assert (model.mixture_.n_components, model.mixture_.mass) == (4, 4)
    model.partial_fit(X[16:])
    assert (model.mixture_.n_components, model.mixture_.mass) == (5, 8)
    model.partial_fit(X[:1])
    assert model.mixture_.mass == 9


@pytest.mark.parametrize("compression", ["wasserstein", "kullback-leibler"])
def test_the_paper_s_way_follows_a_stream_better_than_its_rival(compression):
    X, _ = make_crescents(random_state=0)
    offline = fit_mixture(X, 15, n_init=3, random_state=0).log_density(X).mean()
    model = paper.OnlineGMM(compression=compression, random_state=0).fit(X)
    lost = offline - model.score(X)
    assert model.mixture_.n_components == 15
    assert (lost < 1.5) == (compression == "wasserstein")


def test_only_new_components_are_removed_by_the_rival():
    old = Mixture([0.5, 0.5], [[0.0], [10.0]], [[1.0], [1.0]], mass=30)
    new = Mixture([0.5, 0.5], [[0.1], [50.0]], [[1.0], [1.0]], mass=10)
    found = paper.absorb_by_kl(old, new, 3)
    np.testing.assert_allclose(found.means.ravel(), [0.0, 10.0, 50.0])
    np.testing.assert_allclose(found.weights, [0.5, 0.375, 0.125])
    assert found.mass == 40


# -- 3.2 the dictionary ------------------------------------------------------------------------------


def dictionary_problem(seed, n_atoms=3, n_slots=4, d=2, n_classes=3):
    """Two sources, a target, atoms of equal weight, and coordinates."""
    rng = np.random.default_rng(seed)
    sources = [random_mixture(rng, 5, d, n_classes=n_classes) for _ in range(2)]
    target = random_mixture(rng, 6, d)
    atoms = [random_mixture(rng, n_slots, d, n_classes=n_classes, uniform=True) for _ in range(n_atoms)]
    return sources, target, atoms, rng.dirichlet(np.full(n_atoms, 3.0), size=3)


@settings(max_examples=20)
@given(seeds)
def test_the_loss_is_that_of_the_core(seed):
    sources, target, atoms, coordinates = dictionary_problem(seed)
    beta = 2.0
    points = [np.hstack([a.means, a.stds, np.sqrt(beta) * a.labels]) for a in atoms]
    dictionary = Dictionary(np.stack(points), 2, label_scale=np.sqrt(beta))
    total = 0.0
    for Q, weights in zip([*sources, target], coordinates, strict=True):
        labels = np.zeros((Q.n_components, 3)) if Q.labels is None else np.sqrt(beta) * Q.labels
        domain = Domain(
            Q.weights,
            np.hstack([Q.means, Q.stds, labels]),
            np.full(4, 0.25),
            weights,
            4 if Q.labels is None else 7,
        )
        for _ in range(30):
            loss = dictionary.transport(domain)
        total += loss
    assert paper.dictionary_loss(sources, target, atoms, coordinates, beta) == pytest.approx(
        total, rel=1e-9
    )


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_finite_differences(seed):
    sources, target, atoms, coordinates = dictionary_problem(seed)
    of_atoms, of_coordinates = paper.dictionary_gradient(sources, target, atoms, coordinates, 2.0)
    rng, step = np.random.default_rng(seed), 1e-6

    def moved(size, way):
        d_means, d_stds, d_labels = np.split(size * way, [2, 4], axis=2)
        return [
            Mixture(a.weights, a.means + m, a.stds + s, a.labels + y)
            for a, m, s, y in zip(atoms, d_means, d_stds, d_labels, strict=True)
        ]

    for _ in range(3):
        way = rng.normal(size=of_atoms.shape)
        way[:, :, 4:] -= way[:, :, 4:].mean(axis=2, keepdims=True)  # labels stay on the simplex
        up, down = (
            paper.dictionary_loss(sources, target, moved(size, way), coordinates, 2.0)
            for size in (step, -step)
        )
        assert np.vdot(of_atoms, way) == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-6)
        turn = rng.normal(size=coordinates.shape)
        turn -= turn.mean(axis=1, keepdims=True)
        up, down = (
            paper.dictionary_loss(sources, target, atoms, coordinates + size * turn, 2.0)
            for size in (step, -step)
        )
        assert np.vdot(of_coordinates, turn) == pytest.approx(
            (up - down) / (2 * step), rel=1e-4, abs=1e-6
        )


def test_loss_and_gradient_refuse_the_same():
    sources, target, atoms, coordinates = dictionary_problem(0)
    a = atoms[0]
    uneven = Mixture([0.7, 0.1, 0.1, 0.1], a.means, a.stds, a.labels)
    wide = random_mixture(np.random.default_rng(0), 6, 3)
    short = random_mixture(np.random.default_rng(0), 3, 2, n_classes=3, uniform=True)
    unlabelled = [source.with_labels(None) for source in sources]
    for wrong in (
        (sources, target, [uneven, *atoms[1:]], coordinates, 2.0),
        (sources, target, [short, *atoms[1:]], coordinates, 2.0),
        (sources, target, [a.with_labels(None), *atoms[1:]], coordinates, 2.0),
        (sources, target, [], coordinates, 2.0),
        (unlabelled, target, atoms, coordinates, 2.0),
        (sources, wide, atoms, coordinates, 2.0),
        (sources, target, atoms, 2.0 * coordinates, 2.0),
        (sources, target, atoms, coordinates[:-1], 2.0),
        (sources, target, atoms, np.full((3, 2), 0.5), 2.0),
        (sources, target, atoms, coordinates[0], 2.0),
        (sources, target, atoms, coordinates, -1.0),
    ):
        for function in (paper.dictionary_loss, paper.dictionary_gradient):
            with pytest.raises(InvalidInputError):
                function(*wrong)


def test_labels_may_cost_nothing():
    sources, target, atoms, coordinates = dictionary_problem(0)
    of_atoms, _ = paper.dictionary_gradient(sources, target, atoms, coordinates, 0.0)
    assert not of_atoms[:, :, 4:].any()
    step, a = 1e-6, atoms[0]
    up, down = (
        paper.dictionary_loss(
            sources,
            target,
            [Mixture(a.weights, a.means + size, a.stds, a.labels), *atoms[1:]],
            coordinates,
            0.0,
        )
        for size in (step, -step)
    )
    assert of_atoms[0, :, :2].sum() == pytest.approx((up - down) / (2 * step), rel=1e-4)


PROBLEM = make_domains(n_per_class=30, random_state=1)


def stream(model, X, size=32):
    for start in range(0, len(X), size):
        model.partial_fit(X[start : start + size])
    return model


@pytest.fixture(scope="module", params=["block", "adam"])
def streamed(request):
    """A model at the end of its stream, and the accuracy before it."""
    scale = PROBLEM.X.std(axis=0)
    model = paper.OnlineGMMDaDiL(optimizer=request.param, random_state=0)
    model.fit(PROBLEM.X / scale, PROBLEM.y, PROBLEM.domain)
    before = model.score(PROBLEM.X_target / scale, PROBLEM.y_target)
    return stream(model, PROBLEM.X_target / scale), before, PROBLEM.X_target / scale


def test_a_stream_is_adapted_to_and_optimised_after_its_end(streamed):
    model, before, X = streamed
    end = model.score(X, PROBLEM.y_target)
    assert end > before
    assert model.target_mixture_.mass == len(X)
    curve = model.loss_curve_
    assert np.isnan(curve[:200, -1]).all()
    assert np.isfinite(curve[200:]).all()
    mixture = model.target_mixture_
    model.optimise(100)
    assert model.target_mixture_ == mixture  # no row is needed again
    assert len(model.loss_curve_) == len(curve) + 100
    assert model.loss_curve_[-1].sum() < curve[-1].sum()
    assert model.score(X, PROBLEM.y_target) > end - 0.05


def test_a_stream_of_few_classes_at_a_time_does_not_lock_in():
    # Classes lie near each other, and a batch of 32 shows few of them.
    p = make_domains(3, 29, n_per_class=20, shift=0.3, noise=0.4, own=0.5, random_state=0)
    centre, scale = p.X.mean(axis=0), p.X.std(axis=0)
    X, X_target = (p.X - centre) / scale, (p.X_target - centre) / scale
    model = paper.OnlineGMMDaDiL(source_steps=50, random_state=0).fit(X, p.y, p.domain)
    stream(model, X_target[stream_order(p.y_target, "runs", np.random.default_rng(0))])
    source = MixtureClassifier(random_state=0).fit(X, p.y).score(X_target, p.y_target)
    assert model.score(X_target, p.y_target) > source


def test_what_is_shown_is_what_the_loss_says(streamed):
    model, _, _ = streamed
    assert set(model.coordinates_) == {*model.sources_, "target"}
    coordinates = np.stack([model.coordinates_[name] for name in [*model.sources_, "target"]])
    np.testing.assert_allclose(coordinates.sum(axis=1), 1.0)
    assert coordinates.min() >= 0.0
    assert all(np.allclose(atom.labels.sum(axis=1), 1.0) for atom in model.atoms_)
    before = model.loss_curve_[-1, -1]
    shown = paper.mw2_squared(model.target_mixture_, model.reconstruction_)
    assert shown == pytest.approx(before, rel=0.1)  # one step later


def test_the_same_seed_gives_the_same_bits():
    a, b = (
        stream(
            paper.OnlineGMMDaDiL(source_steps=20, optimizer="adam", random_state=3).fit(
                PROBLEM.X, PROBLEM.y, PROBLEM.domain
            ),
            PROBLEM.X_target[:96],
        )
        for _ in range(2)
    )
    assert a.reconstruction_ == b.reconstruction_
    assert a.loss_curve_.tobytes() == b.loss_curve_.tobytes()


def test_the_first_adam_step_of_the_target_has_the_length_of_the_learning_rate():
    centre, scale = PROBLEM.X.mean(axis=0), PROBLEM.X.std(axis=0)
    # A seed for which the gradient has entries of both signs.
    model = paper.OnlineGMMDaDiL(4, source_steps=20, batch_steps=1, optimizer="adam", random_state=4)
    model.fit((PROBLEM.X - centre) / scale, PROBLEM.y, PROBLEM.domain)
    before = model.coordinates_["target"]
    model.partial_fit((PROBLEM.X_target[:32] - centre) / scale)
    moved = model.coordinates_["target"] - before
    # Up or down by the learning rate; the projection to the simplex shifts all by the same.
    assert np.ptp(moved) == pytest.approx(2 * model.learning_rate, rel=1e-6)


def test_a_second_fit_forgets_the_target():
    model = paper.OnlineGMMDaDiL(source_steps=1, batch_steps=1, random_state=0)
    model.fit(PROBLEM.X, PROBLEM.y, PROBLEM.domain).partial_fit(PROBLEM.X_target[:32])
    assert model.target_mixture_.mass == 32
    assert not hasattr(model.fit(PROBLEM.X, PROBLEM.y, PROBLEM.domain), "target_mixture_")


def test_fewer_components_than_classes():
    model = paper.OnlineGMMDaDiL(max_components=2, source_steps=1, batch_steps=1, random_state=0)
    model.fit(PROBLEM.X, PROBLEM.y, PROBLEM.domain).partial_fit(PROBLEM.X_target[:32])
    assert model.target_mixture_.n_components == 2


def test_target_rows_among_named_sources_and_their_labels_are_recognised():
    X = np.concatenate([PROBLEM.X, PROBLEM.X_target[:64]])
    numbers = [*PROBLEM.domain.tolist(), *[-1] * 64]
    known = PROBLEM.y.tolist()
    quick = paper.GMMDaDiL(n_steps=1, random_state=0)
    expected = clone(quick).fit(X, [*known, *[0] * 64], numbers).reconstruction_
    names = [n if n < 0 else f"mode {n}" for n in numbers]
    for domain in (np.array(numbers, dtype=object), names, np.array(names, dtype=object)):
        for unknown in (np.nan, None):
            model = clone(quick).fit(X, [*known, *[unknown] * 64], domain)
            assert model.reconstruction_ == expected
            assert len(model.sources_) == len(set(numbers)) - 1
    with pytest.raises(InvalidInputError, match="negative"):
        paper.OnlineGMMDaDiL().fit(X, [*known, *[0] * 64], np.array(numbers, dtype=object))
    for value in (0, 1.5, None, True, "target", "mode 1"):
        with pytest.raises(InvalidInputError, match="sample_domain"):
            quick.fit(X, [*known, *[0] * 64], np.array([value, *numbers[1:]], dtype=object))


def test_offline_and_online_end_alike():
    X = np.concatenate([PROBLEM.X, PROBLEM.X_target])
    y = np.concatenate([PROBLEM.y, np.zeros_like(PROBLEM.y_target)])
    domain = np.concatenate([PROBLEM.domain, np.full(len(PROBLEM.y_target), -1)])
    offline = paper.GMMDaDiL(random_state=0).fit(X, y, domain)
    online = paper.OnlineGMMDaDiL(random_state=0).fit(PROBLEM.X, PROBLEM.y, PROBLEM.domain)
    stream(online, PROBLEM.X_target).optimise(100)
    scores = [m.score(PROBLEM.X_target, PROBLEM.y_target) for m in (offline, online)]
    assert abs(scores[0] - scores[1]) < 0.05
    other = paper.GMMDaDiL(random_state=0).fit(X, np.where(domain < 0, 1, y), domain)
    assert other.reconstruction_ == offline.reconstruction_  # labels of the target play no part


def test_a_source_may_lack_a_class_and_classes_may_be_names():
    keep = ~((PROBLEM.domain == PROBLEM.domain.max()) & (PROBLEM.y == 0))
    names = np.array([f"fault {label}" for label in PROBLEM.y])
    model = paper.OnlineGMMDaDiL(components_per_class=2, source_steps=20, random_state=0)
    model.fit(PROBLEM.X[keep], names[keep], PROBLEM.domain[keep])
    stream(model, PROBLEM.X_target[:64])
    assert set(model.predict(PROBLEM.X_target)) <= set(names)
    assert model.atoms_[0].n_components == 2 * len(set(names))


@pytest.mark.parametrize(
    "wrong",
    [
        {"optimizer": "sgd"},
        {"learning_rate": 0.0},
        {"n_atoms": 0},
        {"label_cost": -1.0},
        {"components_per_class": 0},
        {"max_components": 0},
        {"max_components": 2, "min_components": 3},
        {"source_steps": -1},
    ],
)
def test_parameters_that_do_not_fit_are_refused(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong)).replace("source_", "n_")):
        paper.OnlineGMMDaDiL(**wrong).fit(PROBLEM.X, PROBLEM.y, PROBLEM.domain)


def test_domains_that_do_not_fit_are_refused():
    online, offline = paper.OnlineGMMDaDiL(), paper.GMMDaDiL()
    for domain in (np.zeros(len(PROBLEM.y), dtype=int), -PROBLEM.domain, PROBLEM.domain[:-1]):
        with pytest.raises(InvalidInputError):
            online.fit(PROBLEM.X, PROBLEM.y, domain)
    for domain in (PROBLEM.domain, -PROBLEM.domain):  # no target, no source
        with pytest.raises(InvalidInputError, match="negative"):
            offline.fit(PROBLEM.X, PROBLEM.y, domain)


def test_every_equation_and_algorithm_is_found():
    first = " ".join((getattr(paper, name).__doc__ or "").split("\n")[0] for name in paper.__all__)
    # Equation 10 is a mean over an unknown distribution; equation 11 is its estimate.
    expected = [f"Equation {n}" for n in (*range(1, 10), 11, 12)] + [
        f"Algorithm {n}" for n in range(1, 5)
    ]
    assert [words for words in expected if words not in first] == []
    table = paper.__doc__.partition("Where the paper is open")[0]
    assert [name for name in paper.__all__ if f"`{name}`" not in table] == []
