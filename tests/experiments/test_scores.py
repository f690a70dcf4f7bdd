from types import SimpleNamespace

import numpy as np
import pytest

from experiments import scores


class Pupil:
    """Says 0 until it has seen a row, then the sign; its source classifier always says 1."""

    classes_ = np.array([0, 1])
    _follower = SimpleNamespace(
        learned=SimpleNamespace(
            decision=SimpleNamespace(summary=lambda: "learned"),
            model=SimpleNamespace(pooled_proba=lambda X: np.tile([0.25, 0.75], (len(X), 1))),
        )
    )
    reliability_ = 0.0

    def predict_proba(self, X):
        says = (X[:, 0] > 0) & (self.reliability_ > 0)
        return np.eye(2)[says.astype(int)]

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)

    def partial_fit(self, X):
        self.reliability_ += 0.1 * (len(X) > 0)


def test_every_batch_is_predicted_before_it_is_learned_from():
    y = np.array([1, 1, 0, 1, 0, 0, 1, 1, 1, 1])
    stream = scores.Stream(2.0 * y[:, None] - 1, y, np.array([[1.0], [-1.0]]), np.array([1, 0]))
    seen = []
    found = scores.follow(Pupil(), stream, 2, lambda model: seen.append(model.reliability_))
    assert found["rows"] == 10
    assert found["prequential"] == 0.8  # the first two rows were not known yet
    assert (found["first_fifth"], found["last_fifth"]) == (0, 1)
    assert (found["ece_first"], found["ece_last"]) == (1, 0)
    assert found["source_prequential"] == found["source_end"] == 0.7
    assert found["ece_source"] == pytest.approx(0.25)
    assert (found["end"], found["held_out"], found["source_held_out"]) == (1, 1, 0.5)
    assert len(seen) == 5
    assert found["reliability_first"] == pytest.approx(0.1)
    assert found["reliability"] == pytest.approx(0.3)


def test_calibration_error_is_the_gap_between_confidence_and_accuracy():
    proba = np.array([[0.9, 0.1]] * 10 + [[0.35, 0.65]] * 10)
    right = np.array([True] * 7 + [False] * 3 + [True] * 9 + [False])
    assert scores.calibration_error(proba, right) == pytest.approx((0.2 + 0.25) / 2)
    assert scores.calibration_error(np.array([[1.0, 0.0]]), np.array([True])) == 0
