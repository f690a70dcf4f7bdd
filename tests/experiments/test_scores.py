from types import SimpleNamespace

import numpy as np
import pytest

from experiments import scores


class Pupil:
    """Says 1, three times of four, until it has seen a row, then the sign."""

    classes_ = np.array([0, 1])
    committee_ = SimpleNamespace(adapts=True)
    explanations_ = (
        SimpleNamespace(name="votes", weight=0.375),
        SimpleNamespace(name="not adapting", weight=0.25),
        SimpleNamespace(name="expected", weight=0.25),
        SimpleNamespace(name="fixed point", weight=0.125),
    )
    reliability_ = 0.0

    def predict_proba(self, X):
        if self.reliability_ == 0:
            return np.tile([0.25, 0.75], (len(X), 1))
        return np.eye(2)[(X[:, 0] > 0).astype(int)]

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)

    def partial_fit(self, X):
        self.reliability_ += 0.1 * (len(X) > 0)


def test_every_batch_is_predicted_before_it_is_learned_from():
    y = np.array([0, 1, 0, 1, 0, 0, 1, 1, 1, 1])
    stream = scores.Stream(2.0 * y[:, None] - 1, y, np.array([[1.0], [-1.0]]), np.array([1, 0]))
    seen = []
    found = scores.follow(Pupil(), stream, 2, lambda model: seen.append(model.reliability_))
    assert found["rows"] == 10
    assert found["flowing"] == 0.9  # the first row was not known yet
    assert (found["first_fifth"], found["last_fifth"]) == (0.5, 1)
    assert (found["ece_first"], found["ece_last"]) == (0.25, 0)
    assert (found["not_adapting"], found["not_adapting_held_out"]) == (0.6, 0.5)
    assert (found["not_adapting_first_fifth"], found["not_adapting_last_fifth"]) == (0.5, 1)
    assert found["ece_not_adapting"] == pytest.approx(0.25)
    assert (found["end"], found["held_out"]) == (1, 1)
    assert (found["adapts"], found["shift_belief"]) == (True, 0.5)
    assert len(seen) == 5
    assert found["reliability_first"] == pytest.approx(0.1)
    assert found["reliability"] == pytest.approx(0.3)


def test_calibration_error_is_the_gap_between_confidence_and_accuracy():
    proba = np.array([[0.9, 0.1]] * 10 + [[0.35, 0.65]] * 10)
    right = np.array([True] * 7 + [False] * 3 + [True] * 9 + [False])
    assert scores.calibration_error(proba, right) == pytest.approx((0.2 + 0.25) / 2)
    assert scores.calibration_error(np.array([[1.0, 0.0]]), np.array([True])) == 0
