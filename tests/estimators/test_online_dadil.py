import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import baryflow
from baryflow import OnlineDaDiL
from baryflow.estimators._orders import stream_order
from baryflow.exceptions import InvalidInputError
from tests.estimators.streams import PROBLEM, default, fit, stream, validated
from tests.strategies import read_only


@pytest.mark.filterwarnings("ignore:without sample_domain")
@parametrize_with_checks([OnlineDaDiL(classifier="linear", random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def linear(**options):
    options = {"keep_sources": True, "random_state": 0} | options
    return OnlineDaDiL(classifier="linear", validate=False, **options)


CONFIGURATIONS = {
    "default": default,
    "linear": linear,
    "validated": validated,
    "forgetting": lambda: linear(half_life=300.0),
    "without label shift": lambda: linear(label_shift=False),
    "class prior": lambda: linear(class_prior={3: 0.2}),
    "one atom fewer": lambda: linear(n_atoms=2),
}
every_configuration = pytest.mark.parametrize("make", CONFIGURATIONS.values(), ids=CONFIGURATIONS)


@pytest.fixture(scope="module")
def problem():
    return PROBLEM


@pytest.fixture(scope="module")
def streamed(problem):
    return stream(fit(default, problem), problem.X_target)


# -- it adapts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["shuffled", "runs", "class"])
def test_it_adapts_in_every_order(problem, order):
    model = fit(linear, problem)
    before = model.score(problem.X_target, problem.y_target)
    turn = stream_order(problem.y_target, order, np.random.default_rng(0))
    stream(model, problem.X_target[turn])
    assert model.score(problem.X_target, problem.y_target) > before + 0.02
    assert model.reliability_ > 0.7


@every_configuration
def test_every_configuration_learns(make, problem):
    model = fit(make, problem)
    before = model.score(problem.X_target, problem.y_target)
    stream(model, problem.X_target)
    assert model.score(problem.X_target, problem.y_target) > before


def test_the_end_hardly_depends_on_the_order(problem):
    a, b = (fit(linear, problem) for _ in range(2))
    stream(a, problem.X_target)
    stream(b, problem.X_target[::-1])
    agree = a.predict(problem.X_target) == b.predict(problem.X_target)
    assert agree.mean() > 0.93
    np.testing.assert_allclose(
        a.compare_columns().target_means, b.compare_columns().target_means, rtol=1e-9
    )
    np.testing.assert_allclose(a.proportions_, b.proportions_, atol=0.05)


def test_a_stream_of_one_class_covers_less(problem):
    one = problem.X_target[problem.y_target == 3]
    alone = stream(fit(default, problem), one, 8)
    mixed = fit(default, problem).partial_fit(problem.X_target[: len(one)])
    assert alone.proportions_.max() > mixed.proportions_.max()
    assert alone.coverage_ < mixed.coverage_
    assert np.isfinite(alone.predict_proba(problem.X_target)).all()


def test_what_it_found_is_open_to_inspection(problem, streamed):
    assert set(streamed.coordinates_) == {1, 2, 3, 4, "target"}
    assert streamed.n_samples_seen_ == len(problem.X_target)
    assert sum(streamed.resemblance_.values()) == pytest.approx(1.0)
    assert len(streamed.history_) <= 10
    assert streamed.target_mixture_.n_classes == 8
    np.testing.assert_allclose(streamed.proportions_, 1 / 8, atol=0.1)
    assert streamed.proportions_.sum() == pytest.approx(1.0)
    assert 0.0 < streamed.reliability_ <= 1.0
    words = streamed.report()
    assert "target rows seen" in words
    assert "Why" in words
    assert streamed.describe_proportions() in words
    assert streamed.coverage_ > 0.8
    assert f"{streamed.coverage_:.0%} of the classes were seen" in words
    assert f"Reliability of the last batch: {streamed.reliability_:.0%}" in words


def test_memory_is_bounded(problem):
    model = fit(linear, problem)
    sizes = []
    for _ in range(12):
        stream(model, problem.X_target)
        sizes.append(len(model.to_bytes()))
    # Once 1,000 rows are remembered, the history and the curve of losses grow by a few numbers for each
    # adaptation, and nothing else.
    assert max(sizes[8:]) - max(sizes[4:8]) < 10 * 8 * 20 + 2000


def test_relabelling_domains_and_classes_changes_nothing_but_names(problem):
    p = problem
    names = np.array(["", "d", "c", "b", "a"])
    letters = np.array(list("hgfedcba"))
    model = stream(fit(linear, problem), p.X_target)
    renamed = stream(linear().fit(p.X, letters[p.y], names[p.domain]), p.X_target)
    agree = renamed.predict(p.X_target) == letters[model.predict(p.X_target)]
    assert agree.mean() > 0.99


# -- novelty ----------------------------------------------------------------------------------------


def test_named_classes_answer_unknown(problem):
    letters = np.array(list("abcdefgh"))
    model = linear(unknown=0.999)
    model.fit(problem.X, letters[problem.y], problem.domain)
    assert set(model.predict(problem.X_target[:5] + 60.0)) == {"unknown"}
    model.set_params(unknown_label="?")
    assert set(model.predict(problem.X_target[:5] + 60.0)) == {"?"}


# -- one more source --------------------------------------------------------------------------------


def test_a_source_added_later_may_bring_new_classes(problem):
    p = problem
    old = p.y < 6
    first = old & (p.domain < 4)
    model = linear()
    model.fit(p.X[first], p.y[first], p.domain[first])
    stream(model, p.X_target)
    assert set(model.classes_) == set(range(6))
    late = p.domain == 4
    model.add_source(p.X[late], p.y[late], name=4)
    assert set(model.classes_) == set(range(8))
    assert model.sources_ == [1, 2, 3, 4]
    assert model.n_samples_seen_ == len(p.X_target)
    assert model.score(p.X_target, p.y_target) > 0.6
    assert (model.predict(p.X_target) >= 6).any()
    with pytest.raises(InvalidInputError, match="a source 4 already"):
        model.add_source(p.X[late], p.y[late], name=4)


def test_adding_a_source_needs_the_old_rows(problem):
    p = problem
    model = linear(keep_sources=False).fit(p.X, p.y, p.domain)
    with pytest.raises(InvalidInputError, match="keep_sources=True"):
        model.add_source(p.X[:10], p.y[:10], name=9)


# -- saving -----------------------------------------------------------------------------------------


def test_sources_with_gaps_are_saved_too(problem, tmp_path):
    p = problem
    X = p.X.copy()
    X[::7, 0] = np.nan
    model = linear().fit(X, p.y, p.domain)
    model.partial_fit(p.X_target[:40]).save(tmp_path / "m.bary")
    again = baryflow.load(tmp_path / "m.bary")
    assert np.array_equal(again.predict_proba(p.X_target), model.predict_proba(p.X_target))
    again.add_source(p.X[:40], p.y[:40], 9)


def test_a_model_with_a_source_added_is_saved_too(problem, tmp_path):
    p = problem
    first = (p.y < 6) & (p.domain < 4)
    model = linear().fit(p.X[first], p.y[first], p.domain[first])
    stream(model, p.X_target[:160])
    model.add_source(p.X[p.domain == 4], p.y[p.domain == 4], 4)
    model.save(tmp_path / "m.bary")
    again = baryflow.load(tmp_path / "m.bary")
    for other in (model, again):
        stream(other, p.X_target[160:])
    assert np.array_equal(again.predict_proba(p.X_target), model.predict_proba(p.X_target))


def test_parameters_changed_on_the_way(problem, tmp_path):
    p = problem
    model = stream(fit(linear, p), p.X_target[:96])
    model.set_params(half_life=20.0, target_components=12, label_shift=False)
    model.save(tmp_path / "m.bary")
    again = baryflow.load(tmp_path / "m.bary")
    for other in (model, again):
        stream(other, p.X_target[96:160])
    assert model.state_.mass < 70
    assert {one.name for one in model.explanations_} <= {"expected", "not adapting"}
    assert np.array_equal(again.predict_proba(p.X_target), model.predict_proba(p.X_target))
    for wrong in ({"classifier": "kernel"}, {"validate": True}, {"n_atoms": 2}):
        name = next(iter(wrong))
        before = model.get_params()[name]
        with pytest.raises(
            InvalidInputError, match=f"{name} was {before!r} when the sources were learned"
        ):
            model.set_params(**wrong).partial_fit(p.X_target)
        model.set_params(**{name: before})
    model.partial_fit(p.X_target[160:])


def test_a_failed_source_leaves_the_model_as_it_was(problem):
    p = problem
    model = stream(fit(linear, p), p.X_target[:96])
    before = model.predict_proba(p.X_target)
    with pytest.raises(UserWarning, match="unit"):  # warnings are errors here
        model.add_source(1000.0 + p.X[:30], np.full(30, 77), 9)
    assert np.array_equal(model.predict_proba(p.X_target), before)
    assert 77 not in model.classes_


def test_sources_are_copied(problem):
    p = problem
    X = p.X.copy()
    models = [linear().fit(rows, p.y, p.domain) for rows in (X, p.X)]
    X[:] = 0.0
    found = [one.add_source(p.X_target, p.y_target, 9).predict_proba(p.X_target) for one in models]
    assert np.array_equal(*found)


@pytest.mark.parametrize(
    ("name", "message"),
    [("north", "a positive number"), (-3, "a positive number"), (0, "must not hold 0")],
)
def test_names_of_new_sources_are_checked(problem, name, message):
    p = problem
    model = linear().fit(p.X, p.y, p.domain)
    with pytest.raises(InvalidInputError, match=message):
        model.add_source(p.X[:40], p.y[:40], name)
    with pytest.raises(InvalidInputError, match="classes of the same kind"):
        model.add_source(p.X[:40], p.y[:40].astype(str), 9)


def test_unknown_never_hides_a_class(problem):
    p = problem
    two = p.y < 2
    for names, label in (([False, True], -1), (["no", "yes"], "unknown"), ([0, 1], -1)):
        y = np.array(names)[p.y[two]]
        model = linear(unknown=0.99)
        model.fit(p.X[two], y, p.domain[two])
        assert set(model.predict(p.X_target[:5] + 90.0).tolist()) == {label}
        assert 0 <= model.score(p.X[two], y) <= 1
    model.set_params(unknown_label="?")
    assert set(model.predict(p.X_target[:5] + 90.0).tolist()) == {"?"}
    model.set_params(unknown_label=1)
    with pytest.raises(InvalidInputError, match="1 is a class"):
        model.predict(p.X_target)


def test_a_number_too_large_is_refused_and_does_no_harm(problem):
    p = problem
    model = stream(fit(linear, p), p.X_target[:64])
    before = model.predict_proba(p.X_target)
    glitch = p.X_target[:4].copy()
    glitch[2, 1] = 1e300
    for call in (model.partial_fit, model.predict_proba):
        with pytest.raises(InvalidInputError, match=r"X holds 1e\+300 at position \(2, 1\)"):
            call(glitch)
    assert np.array_equal(model.predict_proba(p.X_target), before)
    model.partial_fit(p.X_target[64:96])


def test_a_second_fit_forgets_the_first_target(problem):
    p = problem
    model = stream(fit(linear, p), p.X_target[:64])
    model.fit(p.X[:, :5], p.y, p.domain)
    assert not hasattr(model, "target_mixture_")
    assert model.n_samples_seen_ == 0


def test_a_model_without_target_and_with_names_can_be_saved(problem, tmp_path):
    import pandas as pd

    p = problem
    frame = pd.DataFrame(p.X, columns=[f"x{i}" for i in range(8)])
    letters = np.array(list("abcdefgh"))
    plants = np.array(["", "north", "south", "east", "west"])[p.domain]
    model = linear().fit(frame, letters[p.y], plants)
    model.save(tmp_path / "m.bary")
    again = baryflow.load(tmp_path / "m.bary")
    assert again.sources_ == model.sources_
    assert again.feature_names_in_.tolist() == list(frame.columns)
    assert np.array_equal(again.predict(frame), model.predict(frame))
    late = frame[:40]
    again.add_source(late, letters[p.y][:40], "late")
    assert "late" in again.sources_


# -- the edge ---------------------------------------------------------------------------------------


def test_gaps_in_target_rows(problem):
    X = problem.X_target.copy()
    X[:, 3] = np.nan
    X[::5, 0] = np.nan
    model = fit(linear, problem)
    with pytest.warns(UserWarning, match="column 3: no value at all"):
        stream(model, X)
    assert model.score(X, problem.y_target) > 0.5


def test_one_row_at_a_time(problem):
    model = stream(fit(default, problem), problem.X_target[:12], 1)
    assert model.n_samples_seen_ == 12
    assert np.isfinite(model.predict_proba(problem.X_target)).all()


def test_bad_calls_are_named(problem):
    p = problem
    with pytest.raises(NotFittedError):
        OnlineDaDiL().partial_fit(p.X_target)
    with pytest.raises(NotFittedError):
        OnlineDaDiL().predict(p.X_target)
    with pytest.raises(InvalidInputError, match="pass those to partial_fit"):
        OnlineDaDiL().fit(p.X, p.y, -p.domain)
    model = fit(linear, p)
    with pytest.raises(ValueError, match="8 features"):
        model.partial_fit(p.X_target[:, :3])
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(np.full((1, 8), np.inf))
    with pytest.raises(InvalidInputError, match="sample_weight must not be negative"):
        model.partial_fit(p.X_target[:2], sample_weight=[1, -1])
    for wrong in (
        {"n_atoms": 0},
        {"target_components": 0},
        {"unknown": 2.0},
        {"half_life": 0.0},
        {"class_prior": {9: 0.5}},
        {"classifier": "best"},
    ):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            OnlineDaDiL(**wrong).fit(p.X, p.y, p.domain)


def test_read_only_input_is_left_alone(problem):
    p = problem
    model = linear()
    model.fit(read_only(p.X), read_only(p.y), read_only(p.domain))
    model.partial_fit(read_only(p.X_target[:40])).predict(read_only(p.X_target))
