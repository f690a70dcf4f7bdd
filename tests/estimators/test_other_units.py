"""Columns of a source or of the target that are in other units, and columns that a source lacks."""

import warnings

import numpy as np
import pandas as pd
import pytest

from baryflow import DaDiL, OnlineDaDiL
from baryflow.estimators._predict import class_means, in_view
from baryflow.estimators._sensors import Units
from baryflow.exceptions import InvalidInputError

N_SOURCES, N_CLASSES, D = 5, 4, 6
NAMES = [f"tag {j}" for j in range(D)]


def means(model):
    return class_means(model.knowledge_, model.state_)


def seen(model, rows):
    return in_view(model.knowledge_, model.state_, rows)


def make_fleet(seed=0, rows=160):
    """Return machines with their own calibration around a level of 20; the last one is the target."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(N_CLASSES, D)) * 1.5
    X, y = [], []
    for _ in range(N_SOURCES + 1):
        classes = rng.integers(N_CLASSES, size=rows)
        gain, offset = np.exp(0.15 * rng.normal(size=D)), 0.3 * rng.normal(size=D)
        X.append(20.0 + offset + gain * (means[classes] + 0.5 * rng.normal(size=(rows, D))))
        y.append(classes)
    names = np.repeat(np.arange(1, N_SOURCES + 2), rows)
    known = names <= N_SOURCES
    X, y = np.concatenate(X), np.concatenate(y)
    return X[known], y[known], names[known], X[~known], y[~known]


X, Y, DOMAIN, T, TRUTH = make_fleet()


def fit(rows=X, **parameters):
    parameters = {"classifier": "linear", "validate": False, "random_state": 0} | parameters
    return OnlineDaDiL(keep_sources=True, **parameters).fit(rows, Y, DOMAIN)


def in_other_units(rows, columns=(0, 1)):
    """Return rows with a column in psi instead of bar and one in °F instead of °C."""
    rows = rows.copy()
    rows[:, columns[0]] *= 14.503774
    rows[:, columns[1]] = 1.8 * rows[:, columns[1]] + 32.0
    return rows


def stream(model, rows, size=32):
    """Return a model after a stream, and what it warned about."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for start in range(0, len(rows), size):
            model.partial_fit(rows[start : start + size])
    return model, [str(one.message) for one in said]


@pytest.fixture(scope="module")
def fitted():
    return fit()


@pytest.fixture(scope="module")
def followed(fitted):
    return stream(fitted.spawn(), T)[0]


# -- the target -------------------------------------------------------------------------------------


def test_a_target_in_other_units_is_converted_and_named(fitted, followed):
    model, said = stream(fitted.spawn(), in_other_units(T))
    assert model.score(in_other_units(T), TRUTH) > followed.score(T, TRUTH) - 0.01
    assert list(model.columns_) == [0, 1]
    assert "×14.5" in model.columns_[0]
    assert "psi" in model.columns_[0]
    assert "×1.8, offset +32" in model.columns_[1]
    assert len(said) == 1  # once, with the first batch
    assert "Column 0: about ×14.5" in model.report()


def test_what_is_shown_is_in_the_units_of_the_target(fitted, followed):
    model, _ = stream(fitted.spawn(), in_other_units(T))
    found, usual = model.compare_columns(), followed.compare_columns()
    np.testing.assert_allclose(found.target_means, in_other_units(usual.target_means[None])[0])
    np.testing.assert_allclose(found.target_stds[0], 14.503774 * usual.target_stds[0])
    assert found.factors[:2].tolist() == [14.503774, 1.8]
    assert found.offsets[:2].tolist() == [0.0, 32.0]
    assert (found.factors[2:] == 1.0).all()
    np.testing.assert_allclose(means(model), in_other_units(means(followed)), rtol=1e-6)
    some = T[:10]
    np.testing.assert_allclose(seen(model, in_other_units(some)), seen(followed, some), atol=1e-6)


def test_rows_one_at_a_time_are_converted_once_there_are_ten(fitted):
    rows = in_other_units(T[:40])
    model, _ = stream(fitted.spawn(), rows[:9], 1)
    assert "far outside" in model.columns_[0]  # they may still be glitches
    stream(model, rows[9:], 1)
    assert "×14.5" in model.columns_[0]
    assert (model.predict(rows) == TRUTH[:40]).mean() > 0.8


def test_a_stream_in_other_units_resumes_bit_for_bit(fitted):
    rows = in_other_units(T)
    model, _ = stream(fitted.spawn(), rows[:64])
    again = OnlineDaDiL.from_bytes(model.to_bytes())
    for one in (model, again):
        stream(one, rows[64:])
    assert again.to_bytes() == model.to_bytes()


def test_what_is_asked_together_does_not_matter(fitted):
    rows = in_other_units(T)
    rows[3, 2] = 1e6
    for seen in (0, 96):
        model, _ = stream(fitted.spawn(), rows[:seen])
        some = rows[:8]
        each = np.concatenate([model.predict_proba(row[None]) for row in some])
        np.testing.assert_allclose(model.predict_proba(some), each, rtol=1e-12)


def test_a_sensor_that_returns_to_the_units_of_the_sources_is_as_before(fitted, followed):
    model, _ = stream(fitted.spawn(), np.concatenate([in_other_units(T[:96]), T[96:]]))
    assert model.columns_.keys().isdisjoint({0, 1}) or all(
        "×" not in words for words in model.columns_.values()
    )
    assert model.score(T[96:], TRUTH[96:]) > followed.score(T[96:], TRUTH[96:]) - 0.05


def test_a_jump_after_good_rows_is_a_fault_until_it_outlasts_them(fitted):
    model, _ = stream(fitted.spawn(), T[:96])
    stream(model, in_other_units(T[96:]))
    for column in (0, 1):
        assert "64 of 160 values are far outside" in model.columns_[column]
    assert not model.compare_columns().offsets.any()
    stream(model, in_other_units(T[:96]))
    assert "psi" in model.columns_[0]
    assert "°F" in model.columns_[1]


def test_a_code_for_no_value_is_no_unit(fitted):
    rows = T.copy()
    rows[:, 2] = -999.0
    rows[::7, 2] = T[::7, 2]
    model, _ = stream(fitted.spawn(), rows)
    assert list(model.columns_) == [2]
    assert "×" not in model.columns_[2]
    assert "typical value" in model.columns_[2]


@pytest.mark.parametrize("size", [1, 32])
def test_wild_values_are_glitches_from_the_beginning(fitted, followed, size):
    rows = T[:96].copy()
    wild = np.random.default_rng(0).random(rows.shape) < 0.05
    wild[:3, 0] = True
    rows[wild] = np.random.default_rng(1).choice([1e6, -999.0, 1e12], size=int(wild.sum()))
    model, _ = stream(fitted.spawn(), rows, size)
    expected, _ = stream(fitted.spawn(), np.where(wild, np.nan, rows), size)
    assert not model.compare_columns().offsets.any()
    np.testing.assert_allclose(model.predict_proba(T), expected.predict_proba(T), atol=1e-9)


def test_a_target_that_spreads_more_than_any_source_keeps_its_values(fitted):
    rows = T.copy()
    centre = rows[:, 3].mean()
    rows[:, 3] = centre + 8.0 * (rows[:, 3] - centre)  # about the same centre
    model, _ = stream(fitted.spawn(), rows)
    assert model.state_.tally.glitches[3] < 0.1 * len(rows)
    values = in_other_units(rows)  # and after its units are known
    model, _ = stream(fitted.spawn(), values)
    assert model.state_.tally.glitches[3] < 0.1 * len(rows)


def test_offline_a_target_in_other_units_is_converted():
    rows = np.concatenate([X, in_other_units(T)])
    domain = np.concatenate([DOMAIN, np.full(len(T), -1)])
    y = np.concatenate([Y, np.zeros(len(T), dtype=int)])
    model = DaDiL(classifier="linear", validate=False, random_state=0)
    with pytest.warns(UserWarning, match="psi"):
        model.fit(rows, y, domain)
    plain = DaDiL(classifier="linear", validate=False, random_state=0).fit(
        np.concatenate([X, T]), y, domain
    )
    assert model.score(in_other_units(T), TRUTH) > plain.score(T, TRUTH) - 0.01


# -- the sources ------------------------------------------------------------------------------------


def test_a_source_in_other_units_is_named_and_costs_nothing(followed):
    rows = X.copy()
    rows[DOMAIN == 3] = in_other_units(rows[DOMAIN == 3])
    with pytest.warns(UserWarning, match="tag") as said:
        model = fit(pd.DataFrame(rows, columns=NAMES))
    words = [str(one.message) for one in said]
    assert len(words) == 2
    assert "source '3', column 'tag 0': about ×14.5, offset +0" in words[0]
    assert "source '3', column 'tag 1': about ×1.8, offset +32" in words[1]
    assert "°F" in words[1]
    named = pd.DataFrame(T, columns=NAMES)
    model, said = stream(model, named)
    assert said == []
    np.testing.assert_allclose(model.predict_proba(named), followed.predict_proba(T), atol=1e-6)


def test_sources_with_their_own_calibration_are_not_converted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(5):
            X, y, domain, *_ = make_fleet(seed)
            fit_to = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
            fit_to.fit(X, y, domain)


def test_a_source_in_other_units_does_not_widen_the_limits():
    rows = X.copy()
    rows[DOMAIN == 3] = in_other_units(rows[DOMAIN == 3])
    with pytest.warns(UserWarning, match="°F"), pytest.warns(UserWarning, match="psi"):
        model = fit(rows)
    wild = T.copy()
    wild[50, 0] = 200.0  # usual in psi
    model, _ = stream(model, wild)
    assert list(model.columns_) == [0]
    assert "1 of 160 values" in model.columns_[0]


def test_a_factor_that_is_no_known_unit_is_told_in_figures():
    rows = X.copy()
    rows[DOMAIN == 2, 4] *= 500.0
    with pytest.warns(UserWarning, match=r"about ×\d{3}, offset \+0 \(another unit"):
        fit(rows)


def test_units_convert_there_and_back():
    units = Units.same(3).put(1, 32.0, 1.8)
    rows = np.array([[1.0, 212.0, np.nan]])
    assert units.convert(rows)[0, :2].tolist() == [1.0, 100.0]
    np.testing.assert_allclose(units.revert(units.convert(rows)), rows)
    assert Units.same(3).convert(rows) is rows


# -- columns that a source lacks --------------------------------------------------------------------


def test_a_column_that_one_source_lacks_is_taken_from_the_others(followed):
    rows = X.copy()
    rows[DOMAIN == 2, 3] = np.nan
    model = fit(rows)
    assert np.isfinite(means(model)).all()
    model, said = stream(model, T)
    assert said == []
    assert model.score(T, TRUTH) > followed.score(T, TRUTH) - 0.01
    model, said = stream(fit(rows), np.where(np.arange(D) == 3, np.nan, T))  # the target lacks it, too
    assert "no value at all" in said[0]
    assert model.score(np.where(np.arange(D) == 3, np.nan, T), TRUTH) > 0.8


def test_sources_may_lack_different_columns_and_be_left_out(followed):
    rows = X.copy()
    for number in range(1, N_SOURCES + 1):
        rows[number == DOMAIN, number] = np.nan
    model = fit(rows, validate=True)
    assert len(model.committee_.scores) > 0
    model, _ = stream(model, T)
    assert model.score(T, TRUTH) > followed.score(T, TRUTH) - 0.05


def test_a_column_that_a_source_lacks_can_still_be_stuck():
    rows = X.copy()
    rows[DOMAIN == 2, 3] = np.nan
    stuck = np.concatenate([T, T])
    stuck[100:, 3] = stuck[100, 3]
    _, said = stream(fit(rows), stuck)
    assert "stopped varying" in said[0]


def test_a_column_that_no_source_has_is_refused():
    rows = X.copy()
    rows[:, 3] = np.nan
    with pytest.raises(InvalidInputError, match="no source has"):
        fit(rows)


def test_a_source_that_comes_late_may_lack_a_column():
    model, _ = stream(fit(), T[:64])
    late = X[DOMAIN == 1].copy()
    late[:, 0] = np.nan
    model.add_source(late, Y[DOMAIN == 1], 9)
    assert 9 in model.sources_
    assert model.score(T, TRUTH) > 0.8
