"""Labels of target rows: what they teach, new classes, rows worth asking about, and what they prove."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError

P = make_domains(n_per_class=60, shift=3.0, random_state=1)
NAMES = np.array(["pump", "valve", "seal", "bearing", "motor", "filter", "belt", "gear"])


def linear(**options):
    return OnlineDaDiL(**{"classifier": "linear", "validate": False, "random_state": 0} | options)


FITTED = linear().fit(P.X, NAMES[P.y], P.domain)
SEEN = FITTED.spawn().partial_fit(P.X_target)
TRUE = NAMES[P.y_target]


def seen():
    return SEEN.spawn()


def without(name, **options):
    """Return a model whose sources lack a class; it has seen the target."""
    keep = NAMES[P.y] != name
    model = linear(**options).fit(P.X[keep], NAMES[P.y][keep], P.domain[keep])
    return model.partial_fit(P.X_target)


def pick(k, seed=0):
    """Return k rows of every class."""
    order = np.random.default_rng(seed).permutation(len(TRUE))
    return np.concatenate([order[TRUE[order] == name][:k] for name in NAMES])


def accuracy(model, rows):
    return float((model.predict(P.X_target[rows]) == TRUE[rows]).mean())


# -- what labels teach -----------------------------------------------------------------------------


def test_labels_help_on_rows_that_have_none():
    # Columns turned against each other: the committee is wrong about more rows.
    skew = np.triu(np.random.default_rng(0).normal(size=(8, 8)), 1)
    X = P.X_target @ expm(0.25 * (skew - skew.T))
    model, found = FITTED.spawn().partial_fit(X), []
    for k in (0, 1, 3, 10):
        rows = pick(k)
        rest = np.setdiff1d(np.arange(len(TRUE)), rows)
        after = model.spawn().feedback(X[rows], TRUE[rows]) if k else model
        found.append((after.predict(X[rest]) == TRUE[rest]).mean())
    assert found[1] > found[0] - 0.01
    assert found[2] > found[0] + 0.005
    assert found[3] > found[0] + 0.02


def test_labels_do_not_harm_where_predictions_are_right():
    model, rows = seen(), pick(3)
    rest = np.setdiff1d(np.arange(len(TRUE)), rows)
    before = accuracy(model, rest)
    assert accuracy(model.feedback(P.X_target[rows], TRUE[rows]), rest) > before - 0.02


@pytest.mark.parametrize("order", range(4))
def test_corrections_of_errors_alone_do_not_spoil_the_rest(order):
    rows = np.random.default_rng(order).permutation(len(TRUE))
    model = FITTED.spawn().partial_fit(P.X_target[rows])
    some, rest = np.array_split(np.random.default_rng(0).permutation(len(TRUE)), 2)
    wrong = some[model.predict(P.X_target[some]) != TRUE[some]][:10]
    before = accuracy(model, rest)  # of rows that were not looked at when errors were chosen
    model.feedback(P.X_target[wrong], TRUE[wrong])
    assert accuracy(model, rest) > before - 0.03


def test_labels_of_one_class_alone_do_not_make_all_rows_that_class():
    model, rows = seen(), np.flatnonzero(TRUE == "seal")[:10]
    before = accuracy(model, np.arange(len(TRUE)))
    assert accuracy(model.feedback(P.X_target[rows], TRUE[rows]), np.arange(len(TRUE))) > before - 0.03


def test_one_wrong_label_in_ten_costs_little():
    right, rows = seen(), pick(5)
    rest = np.setdiff1d(np.arange(len(TRUE)), rows)
    labels = TRUE[rows].copy()
    labels[::10] = np.roll(NAMES, 1)[np.searchsorted(np.sort(NAMES), labels[::10]) % 8]
    wrong = seen().feedback(P.X_target[rows], labels)
    right.feedback(P.X_target[rows], TRUE[rows])
    assert accuracy(wrong, rest) > accuracy(right, rest) - 0.03


def test_no_row_is_counted_again():
    model = seen()
    model.feedback(P.X_target[:20], TRUE[:20])
    assert model.n_samples_seen_ == SEEN.n_samples_seen_
    assert model.state_.mass == SEEN.state_.mass
    assert model.n_labels_ == 20


def test_the_latest_label_of_a_row_counts():
    labels = np.roll(TRUE[:30], 1)
    twice = seen().feedback(P.X_target[:30], labels).feedback(P.X_target[:30], TRUE[:30])
    once = seen().feedback(P.X_target[:30], TRUE[:30])
    assert twice.n_labels_ == 60
    # Penalties were weighed with the first labels; the rows and labels are the same.
    state = [model.state_.labelled for model in (once, twice)]
    assert np.array_equal(state[0].rows, state[1].rows)
    assert np.array_equal(state[0].codes, state[1].codes)


def test_partial_labels_come_with_the_rows():
    batch, labels = P.X_target[:64], TRUE[:64].astype(object)
    labels[10:] = None
    for certify in (False, True):
        together = FITTED.spawn().partial_fit(batch, labels, certify=certify)
        apart = FITTED.spawn().partial_fit(batch).feedback(batch[:10], labels[:10], certify=certify)
        assert together.n_labels_ == apart.n_labels_ == 10
        assert np.array_equal(together.predict_proba(batch), apart.predict_proba(batch))


def test_numbers_have_marks_of_no_label():
    model = linear().fit(P.X, P.y, P.domain).partial_fit(P.X_target)
    for mark in (-1, np.nan, None):
        labels = [*P.y_target[:5].tolist(), mark]
        assert model.spawn().feedback(P.X_target[:6], labels).n_labels_ == 5
    assert model.spawn().feedback(P.X_target[:6], [None] * 6).n_labels_ == 0
    assert model.spawn().feedback(P.X_target[:1], [3.0]).classes_.dtype == model.classes_.dtype


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([3], "classes are names"),
        (["unknown"], "what novel rows are called"),
        (["pump"] * 2, "2 labels"),
    ],
)
def test_labels_that_cannot_be(labels, message):
    model = seen()
    with pytest.raises(InvalidInputError, match=message):
        model.feedback(P.X_target[:1], labels)
    assert model.n_labels_ == 0


def test_labels_need_rows_seen():
    with pytest.raises(InvalidInputError, match="no target row was seen"):
        FITTED.spawn().feedback(P.X_target[:1], TRUE[:1])


def test_forgetting_the_target_forgets_its_labels():
    model = seen().feedback(P.X_target[:30], TRUE[:30]).feedback(P.X_target[:2], ["leak", "leak"])
    model.forget()
    assert model.classes_.tolist() == FITTED.classes_.tolist()
    assert np.array_equal(model.predict_proba(P.X_target), FITTED.predict_proba(P.X_target))
    model.partial_fit(P.X_target)
    assert np.array_equal(model.predict_proba(P.X_target), SEEN.predict_proba(P.X_target))


@given(cuts=st.lists(st.integers(1, 9), min_size=1, max_size=5), data=st.data())
@settings(max_examples=6, deadline=None)
def test_saved_on_the_way_it_continues_bit_for_bit(cuts, data):
    one, other, start = FITTED.spawn(), FITTED.spawn(), 0
    for cut in cuts:
        rows = slice(start, start + 8 * cut)
        start += 8 * cut
        labels = [name if data.draw(st.booleans()) else None for name in TRUE[rows]]
        one.partial_fit(P.X_target[rows], labels)
        other = FITTED.spawn(OnlineDaDiL.from_bytes(other.to_bytes()).state_)
        other.partial_fit(P.X_target[rows], labels)
    assert np.array_equal(one.predict_proba(P.X_target), other.predict_proba(P.X_target))
    assert one.to_bytes() == other.to_bytes()


def test_a_model_with_a_new_class_can_be_saved_loaded_and_changed():
    one = FITTED.spawn().partial_fit(P.X_target[:64]).feedback(P.X_target[:3], ["rust"] * 3)
    other = OnlineDaDiL.from_bytes(one.to_bytes())
    for model in (one, other):
        model.set_params(half_life=500.0).partial_fit(P.X_target[64:128])
    assert one.classes_.tolist()[-1] == "rust"
    assert np.array_equal(one.predict_proba(P.X_target), other.predict_proba(P.X_target))


def test_labels_and_rows_kept_are_bounded():
    model = seen()
    sizes = []
    for _ in range(4):
        for seed in range(3):
            rows = np.random.default_rng(seed).permutation(len(TRUE))
            model.feedback(P.X_target[rows] + seed * 1e-3, TRUE[rows])
        sizes.append(len(model.to_bytes()))
    assert np.bincount(model.state_.labelled.codes).max() <= 50
    assert max(sizes) - min(sizes) < 2000


def test_a_source_may_bring_the_class_that_was_named():
    model = without("seal", keep_sources=True)
    rows = np.flatnonzero(TRUE == "seal")[:5]
    model.feedback(P.X_target[rows], TRUE[rows]).feedback(P.X_target[:4] + 30.0, ["leak"] * 4)
    one = P.domain == 1
    model.add_source(P.X[one], NAMES[P.y[one]], 9)
    assert sorted(model.classes_[:-1]) == sorted(NAMES)
    assert model.classes_[-1] == "leak"
    assert model.n_labels_ == 9
    named = model.classes_[model.state_.labelled.codes]
    assert named.tolist() == ["seal"] * 5 + ["leak"] * 4


# -- classes that no source has --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pump", "bearing", "gear"])
def test_five_labels_teach_a_class(name):
    model = without(name)
    rows = np.flatnonzero(name == TRUE)
    others = np.flatnonzero(name != TRUE)
    before = accuracy(model, others)
    model.feedback(P.X_target[rows[:5]], TRUE[rows[:5]])
    assert model.classes_[-1] == name
    assert model.predict_proba(P.X_target).shape == (len(TRUE), 8)
    assert (model.predict(P.X_target[rows[5:]]) == name).mean() > 0.75
    assert accuracy(model, others) > before - 0.08
    assert np.isnan(model.proportions_[-1])
    assert name in model.report()
    model.partial_fit(P.X_target[:32])  # the history has a column for it
    assert model.history_.proportions.shape[1] == 8


def test_a_class_that_was_named_is_not_novel():
    model = without("gear")
    rows = np.flatnonzero(TRUE == "gear")
    before = model.novelty(P.X_target[rows])
    after = model.feedback(P.X_target[rows[:5]], TRUE[rows[:5]]).novelty(P.X_target[rows])
    assert (after <= before).all()
    assert after.mean() < 0.5 * before.mean()


# -- rows worth asking about -----------------------------------------------------------------------


def test_queried_rows_are_uncertain_and_have_no_label():
    model = seen()
    asked = model.query(12)
    assert len(asked) == len(set(asked.positions.tolist())) == 12
    assert np.array_equal(asked.rows, P.X_target[asked.positions])
    assert asked.probabilities.mean() < model.predict_proba(P.X_target).max(axis=1).mean()
    model.feedback(asked.rows, TRUE[asked.positions])
    assert not set(model.query(12).positions.tolist()) & set(asked.positions.tolist())


def test_the_same_model_asks_the_same():
    assert np.array_equal(seen().query(9).positions, seen().query(9).positions)


def test_few_rows_are_all_asked_about():
    model = FITTED.spawn().partial_fit(P.X_target[:5])
    assert sorted(model.query(20).positions.tolist()) == [0, 1, 2, 3, 4]
    model.feedback(P.X_target[:5], TRUE[:5])
    assert len(model.query(20)) == 0


def test_rows_are_known_by_their_positions():
    model = FITTED.spawn()
    model.absorb(P.X_target[:50], positions=np.arange(1000, 1050))
    rows, found = model.state_.recent.at(np.array([1003, 7, 1049]))
    assert found.tolist() == [True, False, True]
    assert np.array_equal(rows, P.X_target[[3, 49]])


# -- what labels prove -----------------------------------------------------------------------------


def test_labels_that_come_with_rows_prove_nothing_unless_they_were_drawn_at_random():
    model = FITTED.spawn()
    for rows in np.array_split(np.arange(len(TRUE)), 10):
        sure = model.predict_proba(P.X_target[rows]).max(axis=1) > 0.9
        model.partial_fit(P.X_target[rows], np.where(sure, TRUE[rows], None))
    assert model.n_labels_ > 20
    assert model.certificate_.n == 0
    assert "Right for at least" not in model.report()


def test_labels_that_come_with_rows_prove_accuracy_on_request():
    model = FITTED.spawn()
    for rows in np.array_split(np.arange(len(TRUE)), 10):
        model.partial_fit(P.X_target[rows], TRUE[rows], certify=True)
    assert model.certificate_.n == len(TRUE)
    assert 0.6 < model.certificate_.accuracy < 1.0
    assert "Right for at least" in model.report()


def test_a_row_proves_something_once():
    model = seen()
    for _ in range(3):
        model.feedback(P.X_target[[0, 1, 1, 2]], TRUE[[0, 1, 1, 2]], certify=True)
    assert model.certificate_.n == 3
    model.feedback(P.X_target[:5], TRUE[:5], certify=True)
    assert model.certificate_.n == 5


def test_only_labels_of_rows_chosen_at_random_prove_something():
    model = seen().feedback(P.X_target[:20], TRUE[:20])
    assert model.certificate_.n == 0
    assert model.feedback(P.X_target[20:40], TRUE[20:40], certify=True).certificate_.n == 20


def test_it_falls_back_where_adapting_is_shown_to_harm():
    # One class alone: with its own moments it looks like the mean of all. Not adapting is out.
    known = FITTED.knowledge_
    committee = replace(known.committee, explains=False)
    model = linear(label_shift=False).adopt(
        replace(known, committee=committee), FITTED.classes_, FITTED.sources_, 8
    )
    other = model.spawn()
    rows = np.repeat(np.flatnonzero(TRUE == "pump"), 4)
    X = P.X_target[rows] + np.random.default_rng(1).normal(0.0, 0.01, (len(rows), 8))
    plain, late = (model.predict(X) == "pump").mean(), []
    for some in np.array_split(np.random.default_rng(0).permutation(len(rows)), 12):
        late.append((model.predict(X[some]) == "pump").mean())
        model.partial_fit(X[some], ["pump"] * len(some), certify=True)
    other.partial_fit(X)
    assert (other.predict(X) == "pump").mean() < plain - 0.2  # without labels
    assert model.certificate_.harm
    assert "worse than not adapting" in model.report()
    assert np.mean(late[3:]) > plain - 0.05
    again = OnlineDaDiL.from_bytes(model.to_bytes())
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_labels_of_rows_chosen_at_random_sharpen_reliability():
    sure, doubtful = seen(), seen()
    rows = np.random.default_rng(0).permutation(len(TRUE))[:100]
    wrong = np.roll(TRUE, 7)
    sure.feedback(P.X_target[rows], SEEN.predict(P.X_target[rows]), certify=True)
    doubtful.feedback(P.X_target[rows] + 1e-9, wrong[rows], certify=True)
    batch = P.X_target[:64] + 1e-6
    assert sure.partial_fit(batch).reliability_ > doubtful.partial_fit(batch).reliability_ + 0.1


@pytest.mark.parametrize("k", [5, 20])
def test_many_corrections_of_one_group_of_rows_are_not_forgotten(k):
    group = np.random.default_rng(2).normal(P.X_target[TRUE == "seal"].mean(axis=0) + 2.5, 0.3, (60, 8))
    model = seen().partial_fit(group)
    predicted = set(model.predict(group).tolist())
    name = next(name for name in NAMES.tolist() if name not in predicted)
    model.feedback(group[:k], [name] * k)
    assert (model.predict(group[k:]) == name).mean() > 0.8
