import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from baryflow import DaDiL
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from tests.strategies import read_only


@pytest.mark.filterwarnings("ignore:without sample_domain")
@parametrize_with_checks([DaDiL(classifier="linear", random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def linear(**options):
    return DaDiL(classifier="linear", **{"validate": False, "random_state": 0} | options)


@pytest.fixture(scope="module")
def problem():
    return make_domains(n_per_class=50, random_state=2)


@pytest.fixture(scope="module")
def few():
    """Fewer sources and classes, for tests that leave one out."""
    return make_domains(n_sources=3, n_classes=5, n_per_class=20, random_state=2)


def joined(p, negative=True):
    X = np.concatenate([p.X, p.X_target])
    y = np.concatenate([p.y, np.zeros_like(p.y_target)])
    if negative:
        domain = np.concatenate([p.domain, np.full(len(p.y_target), -5)])
    else:
        domain = np.array([f"unit {d}" for d in p.domain] + ["new"] * len(p.y_target))
    return X, y, domain


@pytest.fixture(scope="module")
def fitted(problem):
    return linear().fit(*joined(problem))


def test_it_beats_the_sources_own_classifier(problem, fitted):
    source = LogisticRegression(max_iter=1000).fit(problem.X, problem.y)
    ours = fitted.score(problem.X_target, problem.y_target)
    assert ours > source.score(problem.X_target, problem.y_target) + 0.04
    assert ours > 0.9


def test_what_it_found_is_open_to_inspection(problem, fitted):
    assert set(fitted.coordinates_) == {1, 2, 3, 4, "target"}
    for coordinates in fitted.coordinates_.values():
        assert coordinates.min() >= 0
        assert coordinates.sum() == pytest.approx(1.0)
    assert sum(fitted.resemblance_.values()) == pytest.approx(1.0)
    assert len(fitted.atoms_) == 3
    assert all(atom.n_classes == 8 for atom in fitted.atoms_)
    assert fitted.target_mixture_.n_classes == 8
    assert fitted.history_.losses.shape == (1, 2)
    assert np.isfinite(fitted.history_.losses).all()
    assert fitted.proportions_.sum() == pytest.approx(1.0)
    words = fitted.report()
    assert "Decision" in words
    assert "Why" in words
    assert "resembles" in words


@pytest.mark.parametrize("source", [1, 2, 3, 4])
def test_a_target_like_one_source_resembles_that_source(problem, source):
    p = problem
    twin = p.domain == source
    model = linear().fit(
        np.concatenate([p.X, p.X[twin]]),
        np.concatenate([p.y, p.y[twin]]),
        np.concatenate([p.domain, np.full(twin.sum(), -1)]),
    )
    assert model.resemblance_[source] > 0.85


def test_labels_of_the_target_are_ignored(problem, fitted):
    X, y, domain = joined(problem)
    y[domain < 0] = problem.y_target[::-1]
    again = linear().fit(X, y, domain)
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_labels_of_the_target_may_be_anything(problem, fitted):
    X, y, domain = joined(problem)
    holes = y.astype(float)
    holes[domain < 0] = np.nan
    again = linear().fit(X, holes, domain.astype(object))
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_domains_may_have_names(problem, fitted):
    X, y, domain = joined(problem, negative=False)
    named = linear().fit(X, y, domain, target="new")
    assert named.sources_ == ["unit 1", "unit 2", "unit 3", "unit 4"]
    np.testing.assert_allclose(named.predict_proba(X), fitted.predict_proba(X), atol=1e-9)
    frame = pd.DataFrame(X).rename(columns=str)
    same = linear().fit(frame, y, pd.Series(domain), target="new")
    np.testing.assert_allclose(same.predict_proba(frame), named.predict_proba(X), atol=1e-9)


def test_relabelling_classes_changes_nothing_but_names(problem, fitted):
    X, y, domain = joined(problem)
    letters = np.array(list("hgfedcba"))  # in the opposite order
    renamed = linear().fit(X, letters[y], domain)
    agreement = renamed.predict(problem.X_target) == letters[fitted.predict(problem.X_target)]
    assert agreement.mean() > 0.995
    np.testing.assert_allclose(
        renamed.predict_proba(problem.X_target)[:, ::-1],
        fitted.predict_proba(problem.X_target),
        atol=0.02,
    )


@pytest.mark.parametrize(
    "options",
    [
        {"label_shift": False},
        {"n_atoms": 2},
        {"validate": True},
        {"class_prior": {0: 0.125}},
        {"classifier": None},
        {"classifier": ["kernel", "trees"]},
    ],
    ids=str,
)
def test_every_piece_can_be_switched(few, options):
    model = DaDiL(**{"classifier": "linear", "validate": False, "random_state": 0} | options)
    model.fit(*joined(few))
    assert model.score(few.X_target, few.y_target) > 0.85


def test_the_same_seed_gives_the_same_bits(problem, fitted):
    again = linear().fit(*joined(problem))
    assert again.to_bytes() == fitted.to_bytes()
    loaded = DaDiL.from_bytes(again.to_bytes())
    assert np.array_equal(loaded.predict_proba(problem.X), fitted.predict_proba(problem.X))
    assert loaded.report() == fitted.report()


def test_label_shift_is_found_where_the_sources_vary():
    p = make_domains(n_per_class=80, random_state=4)
    rng = np.random.default_rng(0)
    keep = np.ones(len(p.y), dtype=bool)
    for source in range(1, 5):  # each source has its own proportions
        shares = rng.dirichlet(np.ones(8))
        for c in range(8):
            rows = np.flatnonzero((p.domain == source) & (p.y == c))
            keep[rows[max(5, int(80 * shares[c] / shares.max())) :]] = False
    few = np.isin(p.y_target, [0, 1, 2])  # the target lacks five of the eight classes
    X = np.concatenate([p.X[keep], p.X_target[few]])
    y = np.concatenate([p.y[keep], np.zeros(few.sum(), dtype=int)])
    domain = np.concatenate([p.domain[keep], np.full(few.sum(), -1)])
    with_shift = linear().fit(X, y, domain)
    without = linear(label_shift=False).fit(X, y, domain)
    assert with_shift.proportions_[:3].sum() > 0.6
    assert with_shift.score(p.X_target[few], p.y_target[few]) > without.score(
        p.X_target[few], p.y_target[few]
    )


# -- awkward problems -------------------------------------------------------------------------------


def test_a_class_missing_from_one_source(few):
    X, y, domain = joined(few)
    keep = ~((domain == 2) & (y == 3))
    model = linear(validate=True).fit(X[keep], y[keep], domain[keep])
    assert model.score(few.X_target, few.y_target) > 0.8


def test_a_source_with_one_row_per_class(few):
    X, y, domain = joined(few)
    keep = np.ones(len(y), dtype=bool)
    for c in range(5):
        keep[np.flatnonzero((domain == 3) & (y == c))[1:]] = False
    model = linear(validate=True).fit(X[keep], y[keep], domain[keep])
    assert model.score(few.X_target, few.y_target) > 0.6


def test_two_identical_sources_and_one_only(few):
    X, y, domain = joined(few)
    twins = np.flatnonzero(np.isin(domain, [1, -5]))
    again = np.flatnonzero(domain == 1)
    rows = np.concatenate([twins, again])
    names = np.concatenate([domain[twins], np.full(len(again), 2)])
    model = linear(validate=True).fit(X[rows], y[rows], names)
    assert model.resemblance_[1] == pytest.approx(0.5, abs=0.05)
    alone = linear(validate=True).fit(X[twins], y[twins], domain[twins])
    assert np.isfinite(alone.predict_proba(few.X_target)).all()
    assert alone.resemblance_ == {1: 1.0}


def test_a_target_of_one_class(few):
    X, y, domain = joined(few)
    one = few.y_target == 4
    rows = domain > 0
    rows[np.flatnonzero(domain < 0)[one]] = True
    model = linear(validate=True).fit(X[rows], y[rows], domain[rows])
    assert np.isfinite(model.predict_proba(few.X_target)).all()


def test_a_target_with_a_column_of_nan(few):
    X, y, domain = joined(few)
    X[domain < 0, 2] = np.nan
    with pytest.warns(UserWarning, match="column 2: no value at all"):
        model = linear(validate=True).fit(X, y, domain)
    gaps = few.X_target.copy()
    gaps[:, 2] = np.nan
    assert model.score(gaps, few.y_target) > 0.5


def test_rows_of_a_target_that_hold_nothing_teach_nothing(few):
    p = few
    n = len(p.X_target)
    some, nothing = p.X_target[::2], np.full((n // 2, p.X.shape[1]), np.nan)

    def fit(*parts):
        X = np.concatenate(parts)
        y = np.concatenate([p.y, np.zeros(len(X), dtype=int)])
        domain = np.concatenate([p.domain, np.full(len(X), -1)])
        return linear(validate=True).fit(np.concatenate([p.X, X]), y, domain)

    with_them, without = fit(some, nothing), fit(some)
    assert with_them.n_samples_seen_ == len(some)
    assert np.array_equal(with_them.predict_proba(p.X_target), without.predict_proba(p.X_target))
    with pytest.warns(UserWarning, match="no value at all"):
        blind = fit(nothing)
    assert blind.reliability_ == 0.0
    assert "0 target rows seen; the plain classifiers on raw rows predict" in blind.report()
    again = DaDiL.from_bytes(blind.to_bytes())
    assert np.array_equal(again.predict(p.X_target), blind.predict(p.X_target))
    assert len(again.history_) == 0


def test_a_class_known_from_one_source_only(few):
    X, y, domain = joined(few)
    keep = ~((domain > 1) & (y == 0))
    for_all = keep & ~((domain == 1) & (y == 1))
    model = linear(validate=True).fit(X[for_all], y[for_all], domain[for_all])
    assert np.isfinite(model.predict_proba(few.X_target)).all()


# -- the edge ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (np.zeros(480), "must not hold 0"),
        (np.ones(3), r"expected sample_domain to have shape \(n_samples=480,\), got \(3,\)"),
        (np.full(480, -1), "must mark some rows as target"),
        (np.full(480, 1.5), "names or whole numbers"),
        (np.full(480, np.inf), "names or whole numbers"),
        (np.array([1, "a"] * 240, dtype=object), "names or whole numbers"),
        (np.full(480, "target"), "no domain can be called 'target'"),
        (np.ones(480), "must mark some rows as target"),
    ],
)
def test_bad_domains_are_named(domain, message):
    p = make_domains(n_sources=1, n_per_class=60, random_state=0)
    with pytest.raises(InvalidInputError, match=message):
        DaDiL().fit(p.X, p.y, domain)


def test_bad_settings_are_named(problem):
    X, y, domain = joined(problem)
    for wrong in ({"classifier": "best"}, {"n_atoms": 0}, {"class_prior": {9: 0.5}}):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            DaDiL(**wrong).fit(X, y, domain)
    with pytest.raises(InvalidInputError, match="no row belongs to the target 'x'"):
        DaDiL().fit(X, y, domain, target="x")
    X[domain > 0, 0] = np.nan
    with pytest.raises(InvalidInputError, match="no source has any value at all in column number 0"):
        DaDiL().fit(X, y, domain)


def test_read_only_input_is_left_alone(problem):
    X, y, domain = map(read_only, joined(problem))
    linear().fit(X, y, domain).predict(X)
