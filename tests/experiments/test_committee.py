"""The prototype of a committee: how its weights are learned, and what its committed figures show."""

import csv

import numpy as np
import pytest
from scipy.special import expit

from experiments.committee.__main__ import RESULTS
from experiments.committee.weights import learn_belief, learn_weights


def test_the_expert_that_knows_gets_the_weight():
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=300)
    right = 3.0 * np.eye(3)[codes] + rng.normal(size=(300, 3))
    wrong = rng.normal(size=(300, 3))
    good, bad = learn_weights([(np.stack([right, wrong]), codes, 1.0)], [np.full(2, 0.5)])
    assert good > 1.5 * bad


def test_a_shift_is_believed_where_it_was_real():
    codes = np.zeros(50, dtype=int)
    sure, lost = np.tile([4.0, 0.0], (50, 1)), np.tile([0.0, 4.0], (50, 1))
    calm, moved = np.array([1.0, 0.1, 0.0]), np.array([1.0, 0.8, 0.9])
    found = learn_belief([(calm, sure, lost, codes, 1.0), (moved, lost, sure, codes, 1.0)])
    assert expit(found @ calm) < 0.1
    assert expit(found @ moved) > 0.9


@pytest.fixture(scope="module")
def results():
    with RESULTS.open() as file:
        return list(csv.DictReader(file))


def mean(rows, which, column):
    sets = sorted({row["set"] for row in rows})
    found = {s: [float(r[column]) for r in rows if r["set"] == s and which(r["play"])] for s in sets}
    return {s: np.mean(values) for s, values in found.items()}


def test_as_they_come_it_beats_the_picked_classifier_on_every_set_and_by_three_points(results):
    ours, picked = (mean(results, lambda play: play == "as is", c) for c in ("committee", "picked"))
    assert all(ours[s] >= picked[s] for s in ours)
    assert np.mean(list(ours.values())) >= np.mean(list(picked.values())) + 3.0


def test_in_other_mixes_it_is_better_on_average(results):
    mixes = ("50 %", "80 %", "95 %", "half absent", "one class")
    ours, picked = (mean(results, lambda play: play in mixes, c) for c in ("committee", "picked"))
    assert np.mean(list(ours.values())) >= np.mean(list(picked.values())) + 10.0
