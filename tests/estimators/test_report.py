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
    return OnlineDaDiL(rehearse=False, random_state=0).fit(P.X, CLASSES[P.y], PLANTS[P.domain])


def report_of(model, rows):
    return OnlineDaDiL.from_bytes(model.to_bytes()).partial_fit(rows).report()


def test_sources_and_classes_are_named_all_of_them(model):
    first = model.report().splitlines()[0]
    assert first.startswith("3 sources: north, south, west. 12 classes: fault 0, fault 1, fault 10, ")
    assert all(name in first for name in CLASSES)
    assert "more" not in first


def test_a_mix_names_every_class(model):
    words = report_of(model, P.X_target[P.y_target == 3])
    (mix,) = [line for line in words.splitlines() if line.startswith("Class mix: fault 3: ")]
    assert all(name in mix for name in CLASSES)


def test_words_are_explained_where_they_stand(model):
    words = report_of(model, P.X_target)
    for word, meaning in {
        "Experts": ", each of which gives every class a probability, are averaged",
        "The target resembles ": "(how much of each source is in it; shift and scale do not count).",
        "Class mix: ": "(the shares of the classes: ",
        "Reliability of the last batch: ": "(how far to trust its predictions: how sure they are",
        "Novelty of the last batch: ": "% of its rows are novel (less like anything known than 99% of",
    }.items():
        (line,) = [line for line in words.splitlines() if word in line]
        assert meaning in line


def test_before_the_first_row_nothing_is_said_of_a_batch(model):
    assert "last batch" not in model.report()
    assert model.report().endswith("0 target rows seen; predictions are the source classifier's.")


def test_novel_rows_are_counted(model):
    rows = P.X_target.copy()
    rows[: len(rows) // 2] += 40.0 * P.X.std(axis=0)
    model = OnlineDaDiL.from_bytes(model.to_bytes())
    with pytest.warns(UserWarning, match="far outside"):
        model.partial_fit(rows)
    assert f"Novelty of the last batch: {model.history_.novelty[-1]:.0%} of its rows" in model.report()
    assert model.history_.novelty[-1] >= 0.5


@pytest.mark.parametrize("predictor", ["auto", "source"])
def test_the_decision_is_an_attribute_too(predictor):
    model = OnlineDaDiL(predictor=predictor, rehearse=False, random_state=0)
    model.fit(P.X, P.y, P.domain)
    decision = model.decision_
    assert decision.adapts == (predictor != "source")
    assert f"Decision: {'adapt' if decision.adapts else 'do not adapt'}" in model.report()
    assert f"Why: {decision.reason}." in model.report().splitlines()
