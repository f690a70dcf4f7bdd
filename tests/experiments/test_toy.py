import csv
from pathlib import Path

import numpy as np
import pytest

from experiments.toy import __main__ as toy
from experiments.toy import run


def committed():
    with (Path(toy.RESULTS) / "toy.csv").open() as file:
        return list(csv.DictReader(file))


def mean_nll(rows, order, method):
    return np.mean([float(r["nll"]) for r in rows if (r["order"], r["method"]) == (order, method)])


def test_it_runs_at_reduced_size(tmp_path, capsys):
    toy.main(["--seeds", "1", "--out", str(tmp_path)])
    assert {p.name for p in tmp_path.iterdir()} == {
        "toy.csv", "toy.md", "fig1.png", "fig2.png", "nll.png",
    }  # fmt: skip
    assert "| default |" in capsys.readouterr().out


def test_the_committed_results_can_be_made_again():
    again = list(run.one_seed("interleaved", 3))
    before = [r for r in committed() if (r["order"], r["seed"]) == ("interleaved", "3")]
    assert [r["method"] for r in before] == [r["method"] for r in again]
    for old, new in zip(before, again, strict=True):
        assert float(old["nll"]) == pytest.approx(new["nll"], rel=1e-3), new["method"]


@pytest.mark.parametrize("order", run.ORDERS)
def test_the_committed_results_reach_their_bars(order):
    rows = committed()
    assert len({r["seed"] for r in rows}) == 20
    offline = mean_nll(rows, order, "offline")
    default = mean_nll(rows, order, "default")
    assert default <= 1.03 * offline
    assert mean_nll(rows, order, "shards") == pytest.approx(default, rel=0.02)
    assert mean_nll(rows, order, "paper") < mean_nll(rows, order, "kl")
