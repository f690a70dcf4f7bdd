"""Which orders of rows are watched: those in which classes are seen to return."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baryflow.drift.ranking import Watch, find_memory, find_stride


def is_watched(classes, n_classes, *, points=None, apart=0.0, size=32):
    """Return whether a stream with these predicted classes would ever be watched."""
    watch = Watch(n_classes, float(n_classes), apart, 200, 0)
    points = np.zeros((len(classes), 0)) if points is None else points
    for start in range(0, len(classes), size):
        watch.learn(classes[start : start + size], points[start : start + size])
        if watch.ready:
            return True
    assert watch.reason
    return False


@settings(max_examples=60, deadline=None)
@given(
    n_classes=st.integers(2, 12),
    lengths=st.lists(st.integers(60, 400), min_size=12, max_size=12),
    wrong=st.floats(0.0, 0.1),
    seed=st.integers(0, 1000),
)
def test_a_stream_in_which_each_class_comes_once_is_never_watched(n_classes, lengths, wrong, seed):
    rng = np.random.default_rng(seed)
    classes = np.repeat(np.arange(n_classes), lengths[:n_classes])
    mistaken = rng.random(len(classes)) < wrong
    # A class is mistaken for its neighbour: half of the time for the one before, which has come.
    step = rng.choice([-1, 1], len(classes))
    classes = np.where(mistaken, (classes + step) % n_classes, classes)
    assert not is_watched(classes, n_classes)


@settings(max_examples=20, deadline=None)
@given(n_classes=st.integers(2, 12), run=st.integers(1, 8), seed=st.integers(0, 1000))
def test_a_stream_in_which_classes_return_soon_is_watched(n_classes, run, seed):
    classes = np.repeat(np.random.default_rng(seed).integers(n_classes, size=300), run)
    assert is_watched(classes, n_classes)


def test_rows_as_close_together_as_one_class_are_not_watched():
    """Whatever is predicted: one class can be mistaken for all others."""
    rng = np.random.default_rng(0)
    classes, points = rng.integers(4, size=400), rng.normal(size=(400, 2))
    assert not is_watched(classes, 4, points=points, apart=6.0)
    assert is_watched(classes, 4, points=points + 3.0 * (classes % 2)[:, None], apart=6.0)


@pytest.mark.parametrize("run", [1, 5, 20])
def test_rows_a_run_apart_are_independent(run):
    rng = np.random.default_rng(0)
    classes = np.repeat(rng.integers(6, size=200), run)
    assert 0.7 * run <= find_stride(classes, 6) <= 1.6 * run


def test_ranks_that_move_slowly_have_a_long_memory():
    rng = np.random.default_rng(0)
    even, slow = rng.random((300, 1)), np.repeat(rng.random(30), 10)[:, None]
    assert find_memory(even) == 1
    assert 6 <= find_memory(np.hstack([even, slow])) <= 20
    assert find_memory(np.linspace(0.0, 1.0, 300)[:, None]) == 0
