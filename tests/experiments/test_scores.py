import numpy as np

from experiments import scores


class Pupil:
    """Says 1 until it has seen a row, then the sign."""

    seen = 0

    def predict(self, X):
        return (X[:, 0] > 0).astype(int) if self.seen else np.ones(len(X), dtype=int)

    def partial_fit(self, X):
        self.seen += len(X)


def test_every_batch_is_predicted_before_it_is_learned_from():
    y = np.array([0, 1, 0, 1, 0, 0, 1, 1, 1, 1])
    stream = scores.Stream(2.0 * y[:, None] - 1, y, np.array([[1.0], [-1.0]]), np.array([1, 0]))
    assert scores.follow(Pupil(), stream, 2) == {
        "rows": 10,
        "not_adapting": 0.6,
        "not_adapting_held_out": 0.5,
        "flowing": 0.9,  # the first row was not known yet
        "end": 1.0,
        "held_out": 1.0,
    }
