"""Calibrated probabilities, and the estimate of the accuracy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from baryflow.estimators._committee import (
    Calibration,
    Prediction,
    learn_calibration,
    measure_agreement,
)


def trial(accuracy, agreement, seed=0, n=400):
    """Return predictions that are always 90 % sure, and right for this share of the rows."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(4, size=n)
    said = np.where(rng.random(n) < accuracy, codes, (codes + 1) % 4)
    return Prediction(agreement, log_softmax(3.3 * np.eye(4)[said], axis=1), codes)


def confidence(calibration, agreement):
    logits = 3.3 * np.eye(4)[:1]
    return float(softmax(calibration.factor(agreement) * logits, axis=1).max())


def test_probabilities_follow_the_accuracy_at_each_agreement():
    outside = [trial(0.4, 0.3, seed) for seed in range(3)]
    inside = [trial(0.95, 0.9, seed) for seed in range(3)]
    found = learn_calibration([outside, inside])
    assert confidence(found, 0.3) == pytest.approx(0.4, abs=0.1)
    assert confidence(found, 0.9) == pytest.approx(0.95, abs=0.05)
    assert confidence(found, 0.3) < confidence(found, 0.6) < confidence(found, 0.9)
    # Nothing is known beyond the agreements of the trials.
    assert confidence(found, 0.01) == confidence(found, 0.3)
    assert confidence(found, 0.99) == confidence(found, 0.9)


def test_more_agreement_never_makes_less_sure():
    found = learn_calibration([[trial(0.95, 0.3)], [trial(0.5, 0.9)]])
    assert confidence(found, 0.9) >= confidence(found, 0.3)


def test_agreement_is_between_different_experts():
    agreements = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 1.0]])
    assert measure_agreement(agreements, np.array([1.0, 1.0, 0.0])) == pytest.approx(0.5)
    assert measure_agreement(agreements, np.ones(3)) == pytest.approx(0.7 / 3)
    assert measure_agreement(agreements, np.array([1.0, 0.0, 0.0])) == 1.0


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_the_estimate_is_a_share_that_novel_rows_lower(n, n_novel, seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(3), size=n)
    calibration, novel = Calibration.none(), np.arange(n) < n_novel
    found = calibration.estimate(probabilities.max(axis=1), novel, 0.01)
    assert 0.0 <= found <= 1.0
    if novel.all():
        assert found == 0.0
    wrong, right = (
        calibration.estimate(probabilities.max(axis=1), novel, 0.01, np.full(1000, value))
        for value in (False, True)
    )
    assert wrong <= found <= right
    assert wrong < 0.02
    assert novel.any() or right > 0.98  # labels of the past say nothing of novel rows
