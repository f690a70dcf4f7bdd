"""A report names all that it speaks of, and explains its words."""

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

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


def test_class_proportions_are_in_words(model):
    model = OnlineDaDiL.from_bytes(model.to_bytes()).partial_fit(P.X_target[P.y_target == 3])
    assert model.describe_proportions() in model.report().splitlines()
    for one in model.explanations_:
        c = max(one.proportions, key=one.proportions.get)
        if one.weight > 0.1 and one.name not in ("expected", "not adapting"):
            assert f"{c} {one.proportions[c]:.0%}" in model.describe_proportions()


def test_words_are_explained_where_they_stand(model):
    words = report_of(model, P.X_target)
    for word, meaning in {
        "The target resembles ": "share of each source in it",
        "Class proportions ": "% likely): ",
        "Reliability of the last batch: ": "estimated share of right predictions",
        "Novelty of the last batch: ": "% of its rows are novel (less like everything known",
    }.items():
        (line,) = [line for line in words.splitlines() if word in line]
        assert meaning in line


def test_before_the_first_row_nothing_is_said_of_a_batch(model):
    assert "last batch" not in model.report()
    assert model.report().endswith("0 target rows seen; the plain classifiers on raw rows predict.")


def test_reliability_is_one_figure(model):
    model = OnlineDaDiL.from_bytes(model.to_bytes())
    for rows in (P.X_target[:40], P.X_target[40:64], P.X_target[64:69]):
        model.partial_fit(rows)
        assert f"Reliability of the last batch: {model.reliability_:.0%} (" in model.report()
        if model.history_.n_rows[-1] == model.n_samples_seen_:  # it adapted to these rows
            assert model.history_.reliability[-1] == model.reliability_
            assert model.history_.novelty[-1] == model.novelty_


def test_reliability_follows_labels_in_every_place(model):
    model = OnlineDaDiL.from_bytes(model.to_bytes()).partial_fit(P.X_target[:64])
    before = model.reliability_
    model.feedback(P.X_target[:20], CLASSES[P.y_target[:20]], certify=True)
    assert model.reliability_ != before
    assert model.history_.reliability[-1] == model.reliability_
    assert len(model.history_) == 1


def test_novel_rows_are_counted(model):
    rows = P.X_target.copy()
    rows[: len(rows) // 2] += 40.0 * P.X.std(axis=0)
    model = OnlineDaDiL.from_bytes(model.to_bytes())
    with pytest.warns(UserWarning, match="far outside"):
        model.partial_fit(rows)
    assert f"Novelty of the last batch: {model.novelty_:.0%} of its rows" in model.report()
    assert model.history_.novelty[-1] >= 0.5


@pytest.mark.parametrize("n_sources", [1, 3])
def test_the_decision_is_an_attribute_too(n_sources):
    some = P.domain <= n_sources
    model = OnlineDaDiL(classifier="linear", random_state=0).fit(P.X[some], P.y[some], P.domain[some])
    committee = model.committee_
    assert committee.adapts == (n_sources > 1)
    assert f"Decision: {'adapt' if committee.adapts else 'do not adapt'}" in model.report()
    assert f"Why: {committee.reason}." in model.report().splitlines()
