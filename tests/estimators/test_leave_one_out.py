"""Leave-one-source-out: when it cannot be done, what it says, and that sources may lack things."""

import numpy as np
import pytest

from baryflow import DaDiL, OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._leave_one_out import _MOST_CLASSES
from tests.estimators.streams import PROBLEM, fit_default, stream

STREAMS = ["whole stream", "first rows", "class by class", "other class proportions"]
SMALL = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=20, random_state=0)
#: Shifted against each other, and learned in a third of the time that PROBLEM takes.
FEWER = make_domains(n_sources=3, n_classes=5, n_per_class=30, random_state=2)


def linear(**options):
    return OnlineDaDiL(classifier="linear", random_state=0, **options)


# -- where no source can be left out ----------------------------------------------------------------


def does_not_adapt(model, p, reason):
    """Check that a model says so, and that rows of the target change no prediction."""
    assert not model.committee_.adapts
    assert reason in model.committee_.reason
    before = model.predict_proba(p.X_target)
    stream(model, p.X_target)
    np.testing.assert_allclose(model.predict_proba(p.X_target), before, rtol=1e-9)
    report = model.report()
    for part in ("Decision: do not adapt", f"Why: {model.committee_.reason}.", "raw rows predict"):
        assert part in report
    assert 0.0 < model.reliability_ <= 1.0
    again = OnlineDaDiL.from_bytes(model.to_bytes())
    assert np.array_equal(again.predict_proba(p.X_target), model.predict_proba(p.X_target))
    assert again.report() == report


@pytest.mark.parametrize("classifier", ["linear", ["linear", "trees"]], ids=str)
def test_one_source_is_not_enough_to_adapt(classifier):
    p, one = PROBLEM, PROBLEM.domain == 1
    model = OnlineDaDiL(classifier=classifier, random_state=0).fit(p.X[one], p.y[one], p.domain[one])
    does_not_adapt(model, p, "only one source")


def test_classes_known_from_one_source_only_are_not_enough_to_adapt():
    p = PROBLEM
    rows = p.y // 2 + 1 == p.domain  # each source has two classes of its own
    model = linear().fit(p.X[rows], p.y[rows], p.domain[rows])
    does_not_adapt(model, p, "every source has a class that no other has")


def test_sources_with_few_rows_cannot_be_left_out():
    p = PROBLEM
    few = np.concatenate(
        [np.flatnonzero((p.domain == s) & (p.y == c))[:3] for s in (1, 2) for c in range(8)]
    )
    model = linear().fit(p.X[few], p.y[few], p.domain[few])
    does_not_adapt(model, p, "too few")


def test_offline_one_source_is_not_enough_either():
    p, one = PROBLEM, PROBLEM.domain == 1
    X = np.concatenate([p.X[one], p.X_target])
    y = np.concatenate([p.y[one], np.zeros_like(p.y_target)])
    domain = np.concatenate([p.domain[one], np.full(len(p.y_target), -1)])
    model = DaDiL(classifier="linear", random_state=0).fit(X, y, domain)
    online = linear().fit(p.X[one], p.y[one], p.domain[one])
    assert not model.committee_.adapts
    expected = online.predict_proba(p.X_target)
    np.testing.assert_allclose(model.predict_proba(p.X_target), expected, rtol=1e-9)
    assert "only one source" in model.report()


def test_a_source_without_which_a_class_is_missing_stays_in():
    p = FEWER
    rows = (p.y > 0) | (p.domain == 2)  # class 0 is known from one source only
    model = linear().fit(p.X[rows], p.y[rows], p.domain[rows])
    assert model.committee_.adapts
    assert model.committee_.scores


# -- what it says -----------------------------------------------------------------------------------


def test_the_table_of_accuracies_is_in_the_report():
    model = fit_default()
    committee, report = model.committee_, model.report()
    assert committee.adapts
    assert [name for name, *_ in committee.scores] == STREAMS
    assert "Leave-one-source-out accuracy" in report
    for name, before, after in committee.scores:
        assert 0.0 <= before <= 1.0
        assert 0.0 <= after <= 1.0
        (line,) = [line for line in report.splitlines() if line.startswith(f"  {name}  ")]
        assert line.split()[-2:] == [f"{before:.1%}", f"{after:.1%}"]
    means = np.mean([score[1:] for score in committee.scores], axis=0)
    assert means[1] > means[0]  # these sources are shifted against each other
    assert f"Why: {committee.reason}." in report.splitlines()


def test_without_label_shift_only_streams_without_it_decide():
    p = FEWER
    model = linear(label_shift=False).fit(p.X, p.y, p.domain)
    assert [name for name, *_ in model.committee_.scores] == STREAMS[:2]


def test_without_it_all_experts_count_the_same():
    model = linear(validate=False).fit(SMALL.X, SMALL.y, SMALL.domain)
    assert model.committee_.adapts
    assert model.committee_.scores == ()
    np.testing.assert_allclose(model.committee_.weights, 0.25)
    assert "switched off" in model.report()
    assert "Leave-one-source-out accuracy" not in model.report()


# -- columns and classes that some sources lack -----------------------------------------------------


@pytest.mark.parametrize("sources", [[2], [1, 2, 3]])
def test_a_column_that_does_not_vary_in_a_source(sources):
    p = FEWER
    X, target = p.X.copy(), p.X_target.copy()
    X[np.isin(p.domain, sources), 1] = 4.0
    if len(sources) == 3:
        target[:, 1] = 4.0
    model = linear().fit(X, p.y, p.domain)
    assert len(model.committee_.scores) == len(STREAMS)
    assert stream(model, target).score(target, p.y_target) > 0.8


@pytest.mark.parametrize("n_sources", [2, 4])
def test_of_many_classes_those_that_take_part_may_all_be_lacking_in_a_source(n_sources):
    n_classes = _MOST_CLASSES + 5
    chosen = np.random.default_rng(0).permutation(n_classes)[:_MOST_CLASSES]
    p = make_domains(4, n_classes, n_per_class=4, random_state=0)
    lacking = (p.domain == 1) & np.isin(p.y, chosen)
    kept = ~lacking & (p.domain <= n_sources)
    model = linear().fit(p.X[kept], p.y[kept], p.domain[kept])
    assert bool(model.committee_.scores) == (n_sources > 2)
