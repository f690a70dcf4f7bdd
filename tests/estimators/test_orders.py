import numpy as np
import pytest

from baryflow.estimators._orders import stream_order


@pytest.mark.parametrize("order", ["shuffled", "runs", "class"])
def test_orders_are_permutations(order):
    y = np.repeat(np.arange(4), 50)
    turn = stream_order(y, order, np.random.default_rng(0))
    assert np.array_equal(np.sort(turn), np.arange(200))
    changes = (np.diff(y[turn]) != 0).sum()
    assert {"shuffled": changes > 100, "runs": changes < 12, "class": changes == 3}[order]
