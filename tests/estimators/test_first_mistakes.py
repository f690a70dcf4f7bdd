"""What a new user runs into: infinities, counters, solvers that complain, files that are no models."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import baryflow
from baryflow import DaDiL, OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._input import InOrder
from baryflow.exceptions import FileFormatError, InvalidInputError

pd = pytest.importorskip("pandas")

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=10, random_state=0)
NAMES = ["flow", "head", "power", "speed"]


def linear(**options):
    return OnlineDaDiL(**{"classifier": "linear", "validate": False, "random_state": 0} | options)


def frame(X, names=NAMES):
    return pd.DataFrame(X, columns=names)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_an_infinity_names_its_column(value):
    X = P.X.copy()
    X[7, 2] = value
    with pytest.raises(InvalidInputError, match="power"):
        linear().fit(frame(X), P.y, P.domain)
    model = linear().fit(frame(P.X), P.y, P.domain)
    for rows in (frame(X), InOrder(X), InOrder(X.tolist())):
        with pytest.raises(InvalidInputError, match="power"):
            model.predict(rows)
    with pytest.raises(InvalidInputError, match=r"\(7, 2\)"):
        linear().fit(X, P.y, P.domain)  # without names


def with_counter(start):
    """Return the rows and a column that counts them from `start` on in each source."""
    numbers = np.concatenate([start + np.arange((P.domain == name).sum()) for name in (1, 2, 3)])
    assert (np.diff(P.domain) >= 0).all()
    return np.column_stack([P.X, numbers])


@pytest.mark.parametrize("start", [0, 5000])
def test_a_counter_is_pointed_out_by_name(start):
    X = frame(with_counter(start), [*NAMES, "record_id"])
    with pytest.warns(UserWarning, match="record_id") as found:
        linear().fit(X, P.y, P.domain)
    assert [one.filename for one in found] == [__file__]
    domain = np.where(P.domain == 3, -1, P.domain)
    with pytest.warns(UserWarning, match="record_id") as found:
        DaDiL(classifier="linear", validate=False).fit(X, P.y, domain)
    assert [one.filename for one in found] == [__file__]


def test_a_column_that_falls_once_or_hardly_any_rows_are_not_pointed_out():
    X = with_counter(0)
    X[[3, 4], 4] = X[[4, 3], 4]
    linear().fit(X, P.y, P.domain)  # a warning would be an error
    few = np.concatenate([np.flatnonzero((P.domain == 1) & (P.y == c))[:3] for c in (0, 1)])
    linear().fit(np.column_stack([P.X[few], np.arange(6.0)]), P.y[few], np.ones(6, dtype=int))


def test_a_solver_that_does_not_converge_is_named_in_our_words():
    with pytest.warns(ConvergenceWarning) as found:
        linear(classifier=LogisticRegression(max_iter=1)).fit(P.X, P.y, P.domain)
    for one in found:
        assert "LogisticRegression" in str(one.message)
        assert "lbfgs" not in str(one.message)


class Talkative(LogisticRegression):
    def fit(self, X, y, sample_weight=None):
        warnings.warn("heed this", RuntimeWarning, stacklevel=2)
        return super().fit(X, y, sample_weight)


def test_other_warnings_of_a_classifier_are_passed_on():
    with pytest.warns(RuntimeWarning, match="heed this"):
        linear(classifier=Talkative()).fit(P.X, P.y, P.domain)


@pytest.mark.parametrize(
    ("name", "kind"), [("x.csv", "CSV"), ("X.NDJSON", "NDJSON"), ("x.npz", "NumPy")]
)
def test_a_file_of_rows_is_not_taken_for_a_damaged_model(tmp_path, name, kind):
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(FileFormatError, match=rf"{kind}.*fit"):
        baryflow.load(tmp_path / name)
