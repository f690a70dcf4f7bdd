import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import baryflow
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.features import SignalFeatures, normal, windows
from tests.strategies import read_only


@parametrize_with_checks([SignalFeatures(), SignalFeatures(3, pairs=False)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def plants(n=60, length=64, seed=0, names=(0, 1, 2), far=0.0):
    """Windows of machines that lie elsewhere each; class 1 swings, class 2 couples two channels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n * len(names), length, 3))
    y, domain = np.tile(np.arange(3), n * len(names) // 3), np.repeat(names, n)
    X[y == 1, :, 0] += 0.8 * np.sin(np.arange(length) * 0.9 + rng.uniform(0, 6, (sum(y == 1), 1)))
    X[y == 2, :, 2] += X[y == 2, :, 1]
    for name in names:
        X[domain == name] = (X[domain == name] + far * name) * (1 + far * abs(name))
    return X, y, domain


def test_features_tell_classes_of_a_machine_that_was_never_seen():
    X, y, domain = plants(120, far=5.0, names=(0, 1, 2, -1))
    known, normal = domain >= 0, y == 0
    model = SignalFeatures(40)
    F = model.fit_transform(X, y, domain, normal)
    assert F.shape == (len(X), 40)

    def score(Z, learned, told):
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        return model.fit(Z[learned], y[learned]).score(Z[told], y[told])

    found, raw = score(F, known, ~known), score(X.reshape(len(X), -1), known, ~known)
    half = np.arange(len(y)) % 2 == 0
    assert found > raw + 0.3
    assert found > score(F, known & half, known & ~half) - 0.03  # as good as on machines that were seen
    # Told of later, the target is centred nearly alike.
    late = SignalFeatures(40).fit(X[known], y[known], domain[known], normal[known])
    late.learn_normal(X[~known & normal])
    F_late = late.transform(X)
    both = np.intersect1d(late.columns_, model.columns_)
    assert len(both) > 25
    columns = [np.searchsorted(one.columns_, both) for one in (late, model)]
    a, b = F_late[~known][:, columns[0]], F[~known][:, columns[1]]
    assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.95


def test_labels_of_a_target_are_not_looked_at_nor_any_window_of_it_but_normal_ones():
    X, y, domain = plants(names=(0, 1, -1))
    normal = y == 0
    first = SignalFeatures(20).fit(X, y, domain, normal)
    other_y, other_X = y.copy(), X.copy()
    other_y[domain < 0] = 7
    other_X[(domain < 0) & ~normal] *= 50
    second = SignalFeatures(20).fit(other_X, other_y, domain, normal)
    assert first.to_bytes() == second.to_bytes()
    # Without being told, windows are taken for the target's.
    np.testing.assert_array_equal(first.transform(X[:5]), first.transform(X[:5], np.full(5, -1)))


@pytest.mark.parametrize("kind", ["windows", "flat", "float32"])
def test_however_windows_come_features_are_the_same(kind):
    rng = np.random.default_rng(0)
    signals, label = rng.normal(size=(300, 2)).astype(np.float32), rng.integers(2, size=300)
    cut = windows(signals, 20, 10, label=label)
    deep = np.asarray(cut)
    expected = SignalFeatures(10).fit_transform(deep, cut.label)
    if kind == "windows":
        found = SignalFeatures(10).fit_transform(cut, cut.label)
    elif kind == "flat":
        flat = deep.reshape(len(deep), -1)
        found = SignalFeatures(10, n_channels=2).fit_transform(read_only(flat), cut.label)
    else:
        found = SignalFeatures(10).fit_transform(deep.astype(np.float32), cut.label)
    np.testing.assert_array_equal(found, expected)


def test_many_windows_are_learned_from_by_a_few_of_each_kind(monkeypatch):
    monkeypatch.setattr(normal, "_MOST", 30)
    domain, y = np.repeat([0, 1], [900, 100]), np.zeros(1000, dtype=int)
    y[950:952] = 1
    rows = normal.a_few(np.arange(1000) > 10, domain, y)
    assert len(rows) <= 30
    assert rows.min() > 10
    assert {950, 951} <= set(rows.tolist())
    X, y, domain = plants(n=90)
    assert SignalFeatures(5).fit(X, y, domain, y == 0).transform(X).shape == (270, 5)


def test_names_are_of_channels():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(99, 2)), columns=["heat", "flow"])
    model = SignalFeatures().fit(windows(frame, 16))
    names = model.get_feature_names_out()
    assert {"mean: heat", "correlation: heat ~ flow"} <= set(names)
    assert len(names) == model.transform(windows(frame, 16)).shape[1] == len(set(names))
    assert "mean: a" in model.get_feature_names_out(["a", "b"])
    with pytest.raises(ValueError, match="input_features"):
        model.get_feature_names_out(["a", "b", "c"])


def test_it_works_in_a_pipeline_and_can_be_cloned():
    X, y, _ = plants()
    model = make_pipeline(SignalFeatures(12), LogisticRegression()).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.9
    assert clone(model[0]).get_params() == model[0].get_params()


def test_how_many_are_kept():
    X, y, _ = plants()
    assert SignalFeatures().fit(X, y).transform(X).shape[1] == 32  # three pairs of classes
    every = SignalFeatures(None).fit(X, y).transform(X).shape[1]
    assert every == SignalFeatures(5).fit(X).transform(X).shape[1] > 100  # nothing tells which


def test_a_channel_that_dies_makes_its_features_missing_and_no_others():
    X, y, _ = plants()
    model = SignalFeatures(None).fit(X, y)
    dead = X.copy()
    dead[0, :, 1] = np.nan
    F = model.transform(dead)
    about = np.array(["x1" in name for name in model.get_feature_names_out()])
    assert np.isnan(F[0, about]).all()
    np.testing.assert_array_equal(F[1:], model.transform(X)[1:])
    np.testing.assert_array_equal(F[0, ~about], model.transform(X)[0, ~about])


def test_it_travels_in_a_file(tmp_path):
    X, y, domain = plants(names=(0, 1, -1))
    model = SignalFeatures(20).fit(X, y, domain, y == 0).learn_normal(X[:4], "unit 7")
    model.save(tmp_path / "f.bary")
    again = baryflow.load(tmp_path / "f.bary")
    assert again.get_params() == model.get_params()
    for whose in (None, 0, "unit 7"):
        np.testing.assert_array_equal(again.transform(X, whose), model.transform(X, whose))
    assert again.to_bytes() == model.to_bytes()
    damaged = copy.deepcopy(model)
    damaged.columns_ = damaged.columns_ + 10**6
    with pytest.raises(FileFormatError, match="columns do not fit"):
        SignalFeatures.from_bytes(damaged.to_bytes())


def test_what_does_not_fit_is_told():
    X, y, domain = plants(n=9)
    model = SignalFeatures().fit(X, y)
    with pytest.raises(
        InvalidInputError, match=r"expected windows of shape \(n, length=64, n_channels=3\)"
    ):
        model.transform(X[:, :, :2])
    with pytest.raises(InvalidInputError, match="no whole windows"):
        SignalFeatures(n_channels=5).fit(X.reshape(27, -1))
    with pytest.raises(InvalidInputError, match="domain 2 has no normal window"):
        SignalFeatures().fit(X, y, domain, domain < 2)
    with pytest.raises(InvalidInputError, match="normal to be an array of bool"):
        SignalFeatures().fit(X, y, domain, y)
    with pytest.raises(InvalidInputError, match="all windows are of a target"):
        SignalFeatures().fit(X, y, np.full(27, -1))
    with pytest.raises(InvalidInputError, match="sample_domain to have shape"):
        model.transform(X, [1, 2])
    with pytest.raises(InvalidInputError, match="pairs must be True, False or 'auto'"):
        SignalFeatures(pairs="some").fit(X)
    with pytest.raises(InvalidInputError, match="max_features must be an integer"):
        SignalFeatures(0).fit(X)
