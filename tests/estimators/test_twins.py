"""Twins of one model: they share what the sources taught, and nothing else."""

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
X = P.X_target


def fitted():
    return OnlineDaDiL(validate=False, random_state=0).fit(P.X, P.y, P.domain)


def test_a_twin_is_the_same_bits_and_goes_its_own_way():
    model = fitted()
    model.partial_fit(X[:64])
    twin, copy = model.spawn(), OnlineDaDiL.from_bytes(model.to_bytes())
    assert twin.to_bytes() == model.to_bytes()
    before = model.to_bytes()
    for one in (twin, copy):
        one.partial_fit(X[64:128])
    assert twin.to_bytes() == copy.to_bytes() != before
    assert model.to_bytes() == before
    assert model.predict_proba(X) == pytest.approx(
        OnlineDaDiL.from_bytes(before).predict_proba(X), abs=0
    )


def test_what_the_sources_taught_is_in_memory_once():
    model = fitted()
    assert model.spawn()._session.knowledge is model._session.knowledge


def test_a_state_is_all_that_a_later_twin_needs():
    model = fitted()
    first = model.spawn()
    for batch in X[:96].reshape(3, 32, -1):
        first.partial_fit(batch)
    later = model.spawn(first.target_state())
    assert np.array_equal(later.predict_proba(X), first.predict_proba(X))
    assert later.resemblance_ == first.resemblance_
    assert later.n_samples_seen_ == 96
    assert model.n_samples_seen_ == 0
