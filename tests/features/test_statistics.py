import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.features.statistics import Layout, Scale, bridge, describe
from tests.strategies import read_only, seeds


def unit(n):
    return Scale(np.zeros(n), np.ones(n))


def table(X, **options):
    """Return statistics by name, of the first window."""
    layout = Layout.of(X.shape[1], **options)
    found = describe(X, unit(X.shape[2]), layout)[0]
    return dict(zip(layout.names([f"x{i}" for i in range(X.shape[2])]), found, strict=True))


@given(seed=seeds, length=st.integers(1, 70), n_channels=st.integers(1, 6), n=st.integers(1, 9))
def test_every_shape_has_finite_statistics_that_do_not_depend_on_company(seed, length, n_channels, n):
    X = np.random.default_rng(seed).normal(size=(n, length, n_channels))
    layout = Layout.of(length)
    found = describe(read_only(X), unit(n_channels), layout)
    assert found.shape == (n, len(layout.names(["x"] * n_channels)))
    assert all(len(part) == found.shape[1] for part in layout.channels(n_channels))
    assert np.isfinite(found).all()
    for row in range(n):
        alone = describe(X[row : row + 1], unit(n_channels), layout)[0]
        np.testing.assert_array_equal(alone, found[row])


def test_statistics_are_what_they_are_called():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1, 256, 3))
    X[0, :, 1] = np.sin(2 * np.pi * 4 * np.arange(256) / 256)  # four periods
    X[0, :, 2] = 5 + np.linspace(-1, 1, 256)
    found = table(X)
    assert found["mean: x2"] == pytest.approx(5, abs=1e-3)
    assert found["slope: x2"] == pytest.approx(1, rel=1e-3)
    assert found["mean of rows 0-31: x2"] == pytest.approx(X[0, :32, 2].mean(), rel=1e-3)
    assert np.exp(found["spread: x0"]) == pytest.approx(X[0, :, 0].std(), rel=0.01)
    assert np.exp(found["spread of rows 0-63: x0"]) == pytest.approx(X[0, :64, 0].std(), rel=0.01)
    assert np.exp(found["change over 4: x0"]) == pytest.approx(
        (X[0, 4:, 0] - X[0, :-4, 0]).std(), rel=0.01
    )
    bands = {name: value for name, value in found.items() if name.startswith("power") and "x1" in name}
    assert max(bands, key=bands.get) == "power in 3-4 periods: x1"
    assert found["autocorrelation at 1: x1"] == pytest.approx(np.cos(2 * np.pi * 4 / 256), abs=1e-3)
    wanted = np.arctanh(np.corrcoef(X[0, :, 0], X[0, :, 1])[0, 1])
    assert found["correlation: x0 ~ x1"] == pytest.approx(wanted, abs=0.01)
    assert not any("~" in name for name in table(X, pairs=False))


def test_correlation_at_a_scale_sees_what_moves_together_at_that_scale_only():
    rng = np.random.default_rng(0)
    slow = np.repeat(rng.normal(size=32), 8)
    X = 0.3 * rng.normal(size=(1, 256, 2)) + slow[None, :, None]
    found = table(X)
    assert found["correlation at 16: x0 ~ x1"] > 1 > abs(found["correlation at 2: x0 ~ x1"])


def test_gaps_are_bridged_and_a_channel_without_values_says_nothing():
    X = np.array([[[0.0, np.nan], [np.nan, np.nan], [2.0, np.nan], [np.nan, np.nan]]])
    filled, gone = bridge(read_only(X))
    assert filled[0, :, 0].tolist() == [0, 1, 2, 2]
    assert gone.tolist() == [[False, True]]
    found = table(X)
    assert all(np.isnan(value) == ("x1" in name) for name, value in found.items())


def test_values_far_out_stay_finite():
    X = np.full((1, 32, 2), 1e30)
    X[0, ::2] = -1e30
    assert np.isfinite(list(table(X).values())).all()
