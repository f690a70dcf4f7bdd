"""A report names all that it speaks of, and explains its words."""

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._history import History
from baryflow.estimators._report import look_back

P = make_domains(n_sources=3, n_classes=12, n_per_class=20, random_state=0)
CLASSES = np.array([f"fault {number}" for number in range(12)])
PLANTS = np.array(["", "north", "south", "west"])


@pytest.fixture(scope="module")
def model():
    return OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(
        P.X, CLASSES[P.y], PLANTS[P.domain]
    )


def report_of(model, rows):
    return OnlineDaDiL.from_bytes(model.to_bytes()).partial_fit(rows).report()


def test_sources_and_classes_are_named_all_of_them(model):
    first = model.report().splitlines()[0]
    assert first.startswith("3 sources: north, south, west. 12 classes: fault 0, fault 1, fault 10, ")
    assert all(name in first for name in CLASSES)
    assert "more" not in first


def test_a_label_shift_names_every_class(model):
    words = report_of(model, P.X_target[P.y_target == 3])
    (shift,) = [line for line in words.splitlines() if line.startswith("Label shift: ")]
    assert "proportions: fault 3: " in shift
    assert all(name in shift for name in CLASSES)


def test_words_are_explained_where_they_stand(model):
    words = report_of(model, P.X_target)
    for word, meaning in {
        "The target resembles ": "share of each source in it",
        "Label shift: ": "beyond chance",
        "Reliability of the last batch: ": "estimated share of right predictions",
        "Novelty of the last batch: ": "% of its rows are novel (less like everything known",
    }.items():
        (line,) = [line for line in words.splitlines() if word in line]
        assert meaning in line


def test_before_the_first_row_nothing_is_said_of_a_batch(model):
    assert "last batch" not in model.report()
    assert model.report().endswith("0 target rows seen; the plain classifiers on raw rows predict.")


def test_a_short_last_batch_does_not_speak_for_the_stream(model):
    rows = P.X_target[:68]
    model = OnlineDaDiL.from_bytes(model.to_bytes()).partial_fit(rows[:40]).partial_fit(rows[40:64])
    assert "Reliability of the last 64 rows: " in model.report()
    model.partial_fit(rows[64:])
    history = model.history_
    expected = float(np.average(history.reliability, weights=[40, 24, 4]))
    assert f"Reliability of the last 68 rows: {expected:.0%} (" in model.report()
    assert "Novelty of the last 68 rows: " in model.report()
    assert "% of them are novel" in model.report()


def test_looking_back_along_a_history_that_left_batches_out():
    history = History.empty(n_sources=1, n_classes=2)
    for batch in range(1101):  # of 32 rows each, but the last
        history = history.record(
            n_rows=32 * (batch + 1) - 28 * (batch == 1100), resemblance=[1.0], proportions=[0.5, 0.5],
            reliability=0.0 if batch == 1100 else 0.8, coverage=1.0, novelty=0.0,
            losses=(1.0, 1.0),
        )  # fmt: skip
    assert history.stride > 1
    found = look_back(history)
    assert not found.alone
    assert 0.3 < found.reliability < 0.8  # not that of four rows alone


def test_few_rows_are_called_few(model):
    assert "Reliability of the last 5 rows: " in report_of(model, P.X_target[:5])


def test_novel_rows_are_counted(model):
    rows = P.X_target.copy()
    rows[: len(rows) // 2] += 40.0 * P.X.std(axis=0)
    model = OnlineDaDiL.from_bytes(model.to_bytes())
    with pytest.warns(UserWarning, match="far outside"):
        model.partial_fit(rows)
    assert f"Novelty of the last batch: {model.history_.novelty[-1]:.0%} of its rows" in model.report()
    assert model.history_.novelty[-1] >= 0.5


@pytest.mark.parametrize("n_sources", [1, 3])
def test_the_decision_is_an_attribute_too(n_sources):
    some = P.domain <= n_sources
    model = OnlineDaDiL(classifier="linear", random_state=0).fit(P.X[some], P.y[some], P.domain[some])
    committee = model.committee_
    assert committee.adapts == (n_sources > 1)
    assert f"Decision: {'adapt' if committee.adapts else 'do not adapt'}" in model.report()
    assert f"Why: {committee.reason}." in model.report().splitlines()
