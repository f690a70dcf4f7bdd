import numpy as np
import pytest

from baryflow.exceptions import InvalidInputError
from baryflow.features.normal import Normal
from baryflow.features.statistics import Layout, describe

LAYOUT = Layout.of(100)


def runs(n=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 100, 3))


def test_the_centre_of_a_domain_is_drawn_to_the_others_only_as_far_as_chance_goes():
    alike = {name: runs(seed=name) for name in range(4)}
    found = Normal.of(alike, LAYOUT)
    plain = [describe(alike[name], found.scale(name), LAYOUT).mean(axis=0) for name in (1, 2)]
    apart = np.abs(found.centre(1) - found.centre(2)).mean()
    assert apart < 0.5 * np.abs(plain[0] - plain[1]).mean()  # nothing but chance between them
    # One that differs keeps its own: its third channel follows the first.
    other = runs(seed=3)
    other[:, :, 2] = other[:, :, 0]
    found = Normal.of({**alike, 3: other}, LAYOUT)
    column = LAYOUT.names("abc").index("correlation: a ~ c")
    assert found.centre(3)[column] > 2.5
    assert found.centre(1)[column] < 0.5


def test_normal_windows_hardly_deviate_in_whatever_units():
    factor, offset = np.array([1.0, 1e3, 1e-3]), np.array([5.0, -1e4, 0.0])
    normal = {"a": runs(20), "b": offset + factor * runs(20, seed=1)}
    found = Normal.of(normal, LAYOUT)
    for name, seed in (("a", 2), ("b", 3)):
        new = runs(20, seed) * (1 if name == "a" else factor) + (0 if name == "a" else offset)
        away = found.deviations(describe(new, found.scale(name), LAYOUT), name)
        assert np.abs(away).mean() < 1.2
    assert np.abs(found.deviations(describe(new, found.scale("a"), LAYOUT), "a")).mean() > 2


def test_a_domain_that_comes_later_is_as_one_known_before():
    normal = {name: runs(seed=name) for name in range(4)}
    whole, part = Normal.of(normal, LAYOUT), Normal.of({n: normal[n] for n in range(3)}, LAYOUT)
    later = part.extended(normal[3], 3, LAYOUT)
    np.testing.assert_allclose(later.scale(3).spread, whole.scale(3).spread)
    assert np.abs(later.centre(3) - whole.centre(3)).mean() < 0.2 * whole.spread.mean()
    again = later.extended(normal[3], 3, LAYOUT)  # learned anew, not twice
    assert again.names == [0, 1, 2, 3]
    with pytest.raises(InvalidInputError, match=r"of domain 9, only of 0, 1, 2: call learn_normal"):
        part.centre(9)


def test_one_domain_of_one_window_with_a_dead_channel_is_enough():
    window = runs(1)
    window[:, :, 1] = np.nan
    found = Normal.of({"a": window}, LAYOUT)
    away = found.deviations(describe(window, found.scale("a"), LAYOUT), "a")
    assert np.isnan(away).any()
    assert (away[~np.isnan(away)] == 0).all()
