"""Rows that all exist already are learned from in larger batches, and adapting is not later for it."""

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.runtime import SessionConfig
from baryflow.runtime.session import Rows

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=400, random_state=0)


@pytest.fixture(scope="module")
def model():
    few = np.arange(len(P.X)) % 10 == 0
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    return model.fit(P.X[few], P.y[few], sample_domain=P.domain[few])


def follow(model, sizes, **options):
    """Return records, events and the session after rows that come in pieces of some sizes."""
    session, records, events, start = SessionConfig(model, 32, "report", **options).begin(), [], [], 0
    while start < len(P.X_target):
        values = P.X_target[start : start + sizes[0]]
        n, sizes = len(values), [*sizes[1:], sizes[0]]
        positions = np.arange(start + 1, start + n + 1)
        result = session.apply(Rows(values, positions, [""] * n, [""] * n))
        records, events, start = records + result.records, events + result.events, start + n
    return records, events, session


def test_they_do_not_depend_on_how_rows_are_delivered(model):
    expected = follow(model, [len(P.X_target)], largest_batch=128)
    for sizes in ([32], [7, 300, 50]):
        found = follow(model, sizes, largest_batch=128)
        assert found[0] == expected[0]
        assert found[1] == expected[1]


def test_the_model_adapts_after_the_same_rows(model):
    _, small, one = follow(model, [64])
    _, large, other = follow(model, [64], largest_batch=128)
    assert np.array_equal(one.model.state_.history.n_rows, other.model.state_.history.n_rows)
    rows = [event.details["rows"] for event in large if event.kind == "batch"]
    assert set(rows) > {32, 128}
    assert all(n % 32 == 0 for n in rows)
    assert len(rows) < sum(event.kind == "batch" for event in small)
