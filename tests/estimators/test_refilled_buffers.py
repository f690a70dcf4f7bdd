"""Rows of the caller are never kept: an array or frame that is refilled is answered as new rows."""

import numpy as np
import pytest

from baryflow import DaDiL, OnlineDaDiL, OnlineGaussianMixture
from baryflow.datasets import make_domains

pd = pytest.importorskip("pandas")

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=30, random_state=0)
BATCHES = [P.X_target[i : i + 5] for i in range(0, 90, 5)]
NAMES = list("abcd")


class Buffer:
    def __init__(self):
        self.X = np.empty((5, 4))

    def fill(self, batch):
        self.X[:] = batch


class Frame(Buffer):
    def __init__(self):
        self.X = pd.DataFrame(np.zeros((5, 4)), columns=NAMES)

    def fill(self, batch):
        self.X.iloc[:, :] = batch


def online(X):
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    return model.fit(X, P.y, P.domain)


def offline(X):
    both = np.concatenate([np.asarray(X), P.X_target])
    domain = np.concatenate([P.domain, np.full(len(P.X_target), -1)])
    y = np.concatenate([P.y, np.zeros(len(P.X_target), dtype=P.y.dtype)])
    rows = pd.DataFrame(both, columns=NAMES) if isinstance(X, pd.DataFrame) else both
    return DaDiL(classifier="linear", validate=False, random_state=0).fit(rows, y, domain)


def sources(buffer):
    return pd.DataFrame(P.X, columns=NAMES) if isinstance(buffer, Frame) else P.X


@pytest.mark.parametrize("kind", [Buffer, Frame])
def test_a_stream_through_one_buffer_is_the_same_stream(kind):
    buffer = kind()
    refilled, fresh = online(sources(buffer)), online(sources(buffer))
    for batch in BATCHES:
        buffer.fill(batch)
        other = buffer.X.copy()
        for ask in ("predict_proba", "novelty", "predict"):
            assert np.array_equal(getattr(refilled, ask)(buffer.X), getattr(fresh, ask)(other))
        refilled.partial_fit(buffer.X)
        fresh.partial_fit(other)
    buffer.fill(np.zeros((5, 4)))
    assert refilled.to_bytes() == fresh.to_bytes()


@pytest.mark.parametrize("kind", [Buffer, Frame])
def test_an_offline_model_answers_for_the_rows_it_is_given(kind):
    buffer = kind()
    model, other = offline(sources(buffer)), offline(sources(buffer))
    for batch in BATCHES:
        buffer.fill(batch)
        assert np.array_equal(model.predict_proba(buffer.X), other.predict_proba(buffer.X.copy()))


def test_labels_of_a_refilled_buffer_are_of_the_rows_it_held():
    buffer, refilled, fresh = Buffer(), online(P.X), online(P.X)
    for i, batch in enumerate(BATCHES[:8]):
        buffer.fill(batch)
        y = P.y_target[5 * i : 5 * i + 5]
        refilled.partial_fit(buffer.X, y).feedback(buffer.X[:3], y[:3])
        fresh.partial_fit(batch, y).feedback(batch[:3], y[:3])
    buffer.fill(np.zeros((5, 4)))
    assert refilled.to_bytes() == fresh.to_bytes()


def test_looking_changes_nothing():
    watched, other = online(P.X), online(P.X)
    for batch in BATCHES:
        watched.predict_proba(batch)
        watched.novelty(batch[:4])
        for model in (watched, other):
            model.partial_fit(batch)
    assert np.array_equal(watched.novelty(P.X_target[:6]), other.novelty(P.X_target[:6]))
    assert watched.to_bytes() == other.to_bytes()


def test_a_mixture_does_not_keep_the_rows_either():
    buffer, refilled, fresh = Buffer(), *(OnlineGaussianMixture() for _ in range(2))
    for batch in BATCHES:
        buffer.fill(batch)
        refilled.partial_fit(buffer.X)
        fresh.partial_fit(batch)
    buffer.fill(np.zeros((5, 4)))
    assert refilled.to_bytes() == fresh.to_bytes()
