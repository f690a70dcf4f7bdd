import numpy as np

from baryflow.features.selection import discriminative, most_discriminative
from tests.strategies import read_only


def made():
    rng = np.random.default_rng(0)
    y, domain = np.tile(np.arange(3), 40), np.repeat([1, 2], 60)
    Z = rng.normal(size=(120, 200)).astype(np.float32)
    Z[:, 0] += 5 * y  # tells all classes apart, in both domains
    Z[:, 1] += 9 * np.where(domain == 1, y, -y)  # tells them apart, but the other way round
    Z[:, 2] += 3 * (y == 1)
    return read_only(Z), y, domain


def test_telling_columns_are_those_that_separate_alike_everywhere():
    found = discriminative(*made())
    assert {0, 2} <= set(found)
    assert 1 not in found
    assert len(found) < 3 * 8 + 1  # eight for each of three pairs


def test_the_most_telling_are_the_best_of_some_pair_and_missing_values_are_no_hindrance():
    Z, y, domain = made()
    Z = Z.copy()
    Z[::7, 0] = np.nan
    assert most_discriminative(Z, y, domain, 1).tolist() == [0]
    assert most_discriminative(Z, y, domain, 2).tolist() == [0, 2]
    assert len(most_discriminative(Z, y, domain, 500)) == 200
