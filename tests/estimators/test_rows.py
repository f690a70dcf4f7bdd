import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

from baryflow import DaDiL, MixtureClassifier, OnlineDaDiL, OnlineGaussianMixture
from baryflow.datasets import make_domains
from baryflow.estimators._input import match_columns
from baryflow.exceptions import InvalidInputError

P = make_domains(n_sources=2, n_classes=3, n_features=4, n_per_class=20, random_state=0)
SIGNED = np.where(P.domain == 2, -2, 1)  # offline one of them is the target
NAMES = ["p", "T", "flow", "level"]
FRAMES = {
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
}
FITTED = {
    "mixture": lambda X: OnlineGaussianMixture(6).fit(X),
    "classifier": lambda X: MixtureClassifier(random_state=0).fit(X, P.y),
    "offline": lambda X: DaDiL(classifier="linear", validate=False, random_state=0).fit(X, P.y, SIGNED),
    "online": lambda X: OnlineDaDiL(
        classifier="linear", validate=False, keep_sources=True, random_state=0
    ).fit(X, P.y, P.domain),
}
every_frame = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
every_model = pytest.mark.parametrize("make", FITTED.values(), ids=FITTED)


@every_frame
@every_model
def test_columns_are_known_by_their_names_in_any_order(make, frame):
    model, rows = make(frame(P.X)), frame(P.X_target)
    assert model.feature_names_in_.tolist() == NAMES
    expected = model.predict_proba(rows)
    for order in (NAMES, NAMES[::-1], ["T", "level", "p", "flow"]):
        assert np.array_equal(model.predict_proba(rows[order]), expected)
        assert np.array_equal(model.predict(rows[order]), model.predict(rows))
    # It is the name that counts: values under other names are other values.
    assert not np.array_equal(model.predict_proba(frame(P.X_target[:, ::-1])), expected)


@every_frame
def test_a_stream_in_another_order_teaches_the_same(frame):
    a, b = (FITTED["online"](frame(P.X)) for _ in range(2))
    rows = frame(P.X_target)
    a.partial_fit(rows)
    b.partial_fit(rows[NAMES[::-1]])
    late = frame(P.X[:40])
    a.add_source(late, P.y[:40], 9)
    b.add_source(late[NAMES[::-1]], P.y[:40], 9)
    assert np.array_equal(a.predict_proba(rows), b.predict_proba(rows))
    assert a.to_bytes() == b.to_bytes()


def test_pandas_and_polars_understand_each_other():
    model = FITTED["online"](FRAMES["pandas"](P.X))
    expected = model.predict(FRAMES["pandas"](P.X_target))
    assert np.array_equal(model.predict(FRAMES["polars"](P.X_target)[NAMES[::-1]]), expected)


@every_frame
@every_model
def test_columns_that_are_missing_or_too_many_are_named(make, frame):
    model, rows = make(frame(P.X)), frame(P.X_target)
    words = "feature names should match those that were passed during fit"
    with pytest.raises(ValueError, match=f"X lacks the column.s. 'T', 'level' .*{words}"):
        model.predict(rows[["p", "flow"]])
    if isinstance(rows, pl.DataFrame):
        renamed, more = rows.rename({"T": "t"}), rows.with_columns(pl.lit(1.0).alias("time"))
    else:
        renamed, more = rows.rename(columns={"T": "t"}), rows.assign(time=1.0)
    with pytest.raises(ValueError, match=f"X lacks the column.s. 'T' .*{words}"):
        model.predict(renamed)
    with pytest.raises(ValueError, match=f"not fitted on: 'time'; leave them out.*{words}"):
        model.predict(more)


@every_model
def test_rows_without_names_are_taken_by_position(make):
    model = make(FRAMES["pandas"](P.X))
    with_names = model.predict_proba(FRAMES["pandas"](P.X_target))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert np.array_equal(model.predict_proba(P.X_target), with_names)
    plain = make(P.X)
    assert not hasattr(plain, "feature_names_in_")
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        plain.predict(FRAMES["pandas"](P.X_target))


def test_many_missing_columns_are_counted():
    frame = pd.DataFrame(np.zeros((1, 1)), columns=["x"])
    with pytest.raises(InvalidInputError, match=r"'c0', 'c1', .*'c19' and 3 more"):
        match_columns(frame, np.array([f"c{i}" for i in range(23)], dtype=object))


def test_what_has_no_names_is_left_alone():
    X = np.zeros((2, 3))
    assert match_columns(X, NAMES) is X
    frame = pd.DataFrame(X)  # numbers for names
    assert match_columns(frame, NAMES) is frame
    named = FRAMES["pandas"](P.X)
    assert match_columns(named, None) is named


@every_frame
def test_dates_are_named(frame):
    rows = frame(P.X[:2])
    when = [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2)]
    if isinstance(rows, pl.DataFrame):
        rows = rows.with_columns(pl.Series("T", when))
    else:
        rows["T"] = when
    with pytest.raises(InvalidInputError, match="column 'T' holds dates"):
        OnlineGaussianMixture().fit(rows)
    with pytest.raises(InvalidInputError, match="X holds dates"):
        OnlineGaussianMixture().fit(np.array([["2026-01-01"]], dtype="datetime64[D]"))


@every_model
def test_a_fit_that_fails_leaves_the_columns_that_were_known(make):
    model = make(FRAMES["pandas"](P.X))
    bad = pd.DataFrame(np.full((len(P.X), 2), np.inf), columns=["a", "b"])
    with pytest.raises(ValueError, match="inf"):
        model.fit(bad, P.y)
    assert model.feature_names_in_.tolist() == NAMES
    assert model.n_features_in_ == 4
    model.predict(FRAMES["pandas"](P.X_target))
