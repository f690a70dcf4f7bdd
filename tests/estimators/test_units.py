"""What a column is measured in does not matter."""

from functools import cache

import numpy as np
import pytest

from baryflow import DaDiL, OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._predict import class_means

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=20, random_state=0)
CLASSIFIERS = ["linear", "trees"]


def predictions(factors, classifier):
    """Return what models say of rows whose columns are multiplied."""
    parameters = {"classifier": classifier, "validate": False, "random_state": 0}
    return online(factors, parameters | {"keep_sources": True}), offline(factors, parameters)


@cache
def as_they_are(classifier):
    return predictions(np.ones(4), classifier)


def online(factors, parameters):
    """Return what is said before, in and after a stream, and with a source that comes late."""
    known = P.domain < 3
    model = OnlineDaDiL(**parameters)
    model.fit(P.X[known] * factors, P.y[known], P.domain[known])
    T, found = P.X_target * factors, []
    for start in range(0, 60, 20):
        found.append(model.predict_proba(T))
        model.partial_fit(T[start : start + 20])
    found.append(model.predict_proba(T))
    model.add_source(P.X[~known] * factors, P.y[~known], 3)
    found += [
        model.predict_proba(T),
        model.novelty(T)[:, None],
        class_means(model.knowledge_, model.state_) / factors,
    ]
    return np.concatenate([table.ravel() for table in found])


def offline(factors, parameters):
    X = np.concatenate([P.X, P.X_target]) * factors
    y, domain = np.append(P.y, P.y_target), np.append(P.domain, np.full(len(P.y_target), -1))
    model = DaDiL(**parameters).fit(X, y, domain)
    return model.predict_proba(P.X_target * factors)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
@pytest.mark.parametrize("exponents", [(-6.0, 6.0, 0.3, -2.1), (4.7, 1.0, -3.4, 5.9)], ids=str)
def test_other_units_change_no_prediction(classifier, exponents):
    factors = 10.0 ** np.array(exponents)
    pairs = zip(predictions(factors, classifier), as_they_are(classifier), strict=True)
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, atol=1e-4)
