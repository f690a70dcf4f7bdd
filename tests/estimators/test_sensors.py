import re
import warnings
from functools import reduce
from itertools import groupby, pairwise
from operator import add

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import baryflow
from baryflow import DaDiL, OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._sensors import Tally


@pytest.fixture(scope="module")
def problem():
    return make_domains(n_per_class=60, random_state=1)


def streamed(X, y, domain, T):
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(X, y, domain)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for start in range(0, len(T), 32):
            model.partial_fit(T[start : start + 32])
    return model, [str(w.message) for w in said]


@pytest.fixture(scope="module")
def untouched(problem):
    p = problem
    model, said = streamed(p.X, p.y, p.domain, p.X_target)
    assert not said
    assert model.columns_ == {}
    return model.score(p.X_target, p.y_target)


def test_a_few_glitches_cost_nothing_and_are_told(problem, untouched):
    p = problem
    T = p.X_target.copy()
    rows = np.random.default_rng(0).integers(len(T), size=8)
    T[rows, np.arange(8)] = 1e4
    model, said = streamed(p.X, p.y, p.domain, T)
    assert model.score(T, p.y_target) > untouched - 0.02
    assert set(model.columns_) == set(range(8))
    assert all("1 of 480 values" in words for words in model.columns_.values())
    for column in range(8):
        named = [re.search(rf"columns? ([\d, ]+, )?{column}[,:]", words) for words in said]
        assert sum(one is not None for one in named) == 1  # told once
    assert "Column 3: 1 of 480 values are far outside" in model.report()


def test_glitches_in_rows_to_predict_do_not_matter_much(problem):
    p = problem
    model, _ = streamed(p.X, p.y, p.domain, p.X_target)
    T = p.X_target[:50].copy()
    T[:, 2] = -1e6
    agree = model.predict(T) == model.predict(p.X_target[:50])
    assert agree.mean() > 0.8
    assert model.columns_ == {}  # predicting counts nothing


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda T: np.where(np.arange(8) == 2, 1000.0 * T, T), "×1000"),
        (lambda T: np.where(np.arange(8) == 2, np.nan, T), "no value at all"),
        (lambda T: np.where(np.arange(8) == 2, T[0], T), "hardly varies"),
    ],
    ids=["unit", "silent", "stuck"],
)
def test_a_column_that_cannot_be_right_is_named_and_survived(problem, untouched, damage, words):
    p = problem
    T = damage(p.X_target)
    model, said = streamed(p.X, p.y, p.domain, T)
    assert list(model.columns_) == [2]
    assert words in model.columns_[2]
    assert any(words in message for message in said)
    without = np.delete(np.arange(8), 2)
    least, _ = streamed(p.X[:, without], p.y, p.domain, p.X_target[:, without])
    assert model.score(T, p.y_target) > least.score(p.X_target[:, without], p.y_target) - 0.1
    assert model.score(T, p.y_target) > 0.8


def test_a_column_constant_but_for_rounding_changes_nothing(problem, untouched):
    p = problem
    noise = 1e-16 * np.random.default_rng(0).standard_normal((len(p.X), 1))
    X = np.hstack([p.X, 0.1 * (1.0 + noise)])
    T = np.hstack([p.X_target, np.full((len(p.X_target), 1), 0.1 + 1e-9)])
    model, said = streamed(X, p.y, p.domain, T)
    assert model.score(T, p.y_target) == pytest.approx(untouched, abs=0.01)
    assert not said
    T[:, -1] = 7e5  # also if it is something else altogether
    model, said = streamed(X, p.y, p.domain, T)
    assert model.score(T, p.y_target) == pytest.approx(untouched, abs=0.01)


def test_columns_are_named_as_the_user_names_them_and_kept(problem, tmp_path):
    p = problem
    names = [f"sensor {i}" for i in range(8)]
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=True, random_state=0)
    model.fit(pd.DataFrame(p.X, columns=names), p.y, p.domain)
    T = p.X_target[:64].copy()
    T[5, 4] = 1e5
    with pytest.warns(UserWarning, match="column 'sensor 4': 1 of 64 values"):
        model.partial_fit(pd.DataFrame(T, columns=names))
    model.save(tmp_path / "m.bary")
    again = baryflow.load(tmp_path / "m.bary")
    assert again.columns_ == model.columns_ == {"sensor 4": model.columns_["sensor 4"]}
    again.add_source(pd.DataFrame(p.X[:80], columns=names), p.y[:80], 9)
    assert again.columns_ == model.columns_


def test_offline_glitches_are_missing_too(problem):
    p = problem
    T = p.X_target.copy()
    T[np.random.default_rng(0).integers(len(T), size=8), np.arange(8)] = 1e4
    domain = np.concatenate([p.domain, np.full(len(T), -1)])
    y = np.concatenate([p.y, np.zeros(len(T), dtype=int)])
    plain = DaDiL(classifier="linear", validate=False, random_state=0).fit(
        np.concatenate([p.X, p.X_target]), y, domain
    )
    with pytest.warns(UserWarning, match="columns 0, 1, 2, 3, 4: 1 of 480 values are far outside"):
        damaged = DaDiL(classifier="linear", validate=False, random_state=0).fit(
            np.concatenate([p.X, T]), y, domain
        )
    assert plain.columns_ == {}
    assert list(damaged.columns_) == list(range(8))
    assert damaged.score(T, p.y_target) > plain.score(p.X_target, p.y_target) - 0.02


@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_values_within_three_times_the_reach_of_all_sources_are_believed(shift):
    """Few rows, or sources that differ much, are no reason for narrow limits."""
    rng = np.random.default_rng(0)
    domain, y = np.repeat([1, 2], 12), np.tile([0, 1], 12)
    X = rng.normal(size=(24, 3)) + 2.0 * y[:, None] + shift * (domain == 2)[:, None]
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(X, y, domain)
    centre, scale = X.mean(axis=0), X.std(axis=0)
    T = X[domain == 1].copy()
    farthest = 2.99 * np.maximum(np.abs(X - centre).max(axis=0), 4.0 * scale)
    T[3], T[5] = centre + farthest, centre - farthest
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(T)
    assert model.columns_ == {}


# -- columns that stop varying ----------------------------------------------------------------------


def quick(columns=None, gaps=False):
    """Return a model of three columns of noise and those given, and a source of target rows."""
    rng = np.random.default_rng(0)
    n = 600
    y, domain = rng.integers(3, size=n), np.repeat([1, 2, 3], 200)
    X = np.column_stack([rng.normal(size=(n, 3)) + 3.0 * np.eye(3)[y], *(columns(y) if columns else ())])
    if gaps:
        X[rng.random(X.shape) < 0.05] = np.nan
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
        X, y, domain
    )

    def target(n, seed=1):
        rng = np.random.default_rng(seed)
        y = rng.integers(3, size=n)
        return rng.normal(size=(n, 3)) + 3.0 * np.eye(3)[y]

    return model, target


def feed(model, T, size=100):
    for start in range(0, len(T), size):
        model.partial_fit(T[start : start + size])
    return model


@pytest.mark.parametrize("gaps", [False, True])
def test_a_sensor_that_sticks_later_is_named_until_it_recovers(gaps):
    model, target = quick(gaps=gaps)
    T = target(1000)
    T[200:500, 1] = T[200, 1]
    T[260:290, 1] = np.nan  # missing values neither move it nor free it
    feed(model, T[:250])
    assert model.columns_ == {}
    with pytest.warns(UserWarning, match="column 1: has stopped varying"):
        feed(model, T[250:400])
    again = OnlineDaDiL.from_bytes(model.to_bytes())
    assert again.columns_ == model.columns_
    for resumed in (model, again):
        assert list(resumed.columns_) == [1]
        assert "Column 1: has stopped varying" in resumed.report()
        feed(resumed, T[400:500])
        assert list(resumed.columns_) == [1]
        feed(resumed, T[500:600])
        assert resumed.columns_ == {}
    assert again.to_bytes() == model.to_bytes()


def test_a_stuck_sensor_is_named_also_after_a_glitch():
    model, target = quick()
    T = target(500)
    T[10, 1] = 1e6
    T[200:, 1] = T[200, 1]
    with pytest.warns(UserWarning, match="column 1: 1 of 100 values are far outside"):
        feed(model, T)
    assert "stopped varying" in model.columns_[1]


def test_columns_that_keep_a_value_for_long_in_the_sources_too_are_not_stuck():
    def columns(y):
        rng = np.random.default_rng(2)
        saturated = np.where(y == 2, 100.0, 50.0 + rng.normal(size=len(y)))  # in one class
        setting = np.repeat(rng.normal(size=len(y) // 50), 50)  # changes rarely
        config = rng.integers(20, size=len(y))  # in no particular order
        switch = rng.random(len(y)) < 0.97
        return saturated, setting, config, switch, np.full(len(y), 7.0)

    model, target = quick(columns)
    T = target(1500)
    T = np.hstack([T, np.tile([100.0, 0.3, 4.0, 1.0, 7.0], (len(T), 1))])
    T[:300:2, 3] = 50.0
    T[:300, 3:7] += np.random.default_rng(3).uniform(-0.4, 0.4, size=(300, 4))  # they have varied before
    feed(model, T)
    assert model.columns_ == {}


@given(
    st.lists(st.tuples(st.sampled_from([1.0, 2.0, np.nan]), st.sampled_from([1.0, 9e9])), max_size=12),
    st.lists(st.integers(0, 12), max_size=3),
)
def test_tallies_of_pieces_add_up_to_that_of_the_whole(rows, cuts):
    raw = np.array(rows, dtype=float).reshape(-1, 2)
    screened = np.where(raw > 1e6, np.nan, raw)
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    parts = [Tally.of(raw[a:b], screened[a:b]) for a, b in pairwise(edges)]
    whole = Tally.of(raw, screened)
    for name, expected in vars(whole).items():
        np.testing.assert_array_equal(getattr(reduce(add, parts), name), expected, err_msg=name)
    for column in range(2):
        values = screened[~np.isnan(screened[:, column]), column].tolist()
        runs = [len(list(run)) for _, run in groupby(values)] or [0]
        assert (whole.leading[column], whole.trailing[column]) == (runs[0], runs[-1])
