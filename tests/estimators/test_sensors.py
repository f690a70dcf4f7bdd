import warnings

import numpy as np
import pandas as pd
import pytest

import baryflow
from baryflow import DaDiL, OnlineDaDiL
from baryflow.datasets import make_domains


@pytest.fixture(scope="module")
def problem():
    return make_domains(n_per_class=60, random_state=1)


def streamed(X, y, domain, T):
    model = OnlineDaDiL(rehearse=False, random_state=0).fit(X, y, domain)
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
        assert sum(f"column {column}:" in words for words in said) == 1  # told once
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
        (lambda T: np.where(np.arange(8) == 2, 1000.0 * T, T), "another unit"),
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
    model = OnlineDaDiL(rehearse=False, random_state=0)
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
    plain = DaDiL(rehearse=False, random_state=0).fit(np.concatenate([p.X, p.X_target]), y, domain)
    with pytest.warns(UserWarning, match="column 0: 1 of 480 values are far outside"):
        damaged = DaDiL(rehearse=False, random_state=0).fit(np.concatenate([p.X, T]), y, domain)
    assert plain.columns_ == {}
    assert list(damaged.columns_) == list(range(8))
    assert damaged.score(T, p.y_target) > plain.score(p.X_target, p.y_target) - 0.02
