import numpy as np
import pytest

from benchmarks import pages
from experiments import results
from experiments.paper import __main__ as paper
from experiments.paper import toy

TOY = results.read(paper.RESULTS / "toy.csv")


def mean_nll(order, method):
    found = [float(r["nll"]) for r in TOY if (r["order"], r["method"]) == (order, method)]
    assert len(found) == 20
    return np.mean(found)


@pytest.mark.parametrize("what", ["figure1", "figure2"])
def test_a_command_draws_a_figure(what, tmp_path):
    assert paper.main([what, "--out", str(tmp_path)]) == 0
    assert (tmp_path / f"{what}.png").read_bytes().startswith(b"\x89PNG")


def test_the_toy_runs_at_reduced_size(tmp_path, capsys):
    assert paper.main(["toy", "--seeds", "1", "--out", str(tmp_path)]) == 0
    assert {p.name for p in tmp_path.iterdir()} == {"toy.csv", "toy-nll.png"}
    assert "| default |" in capsys.readouterr().out


def test_the_toy_s_results_can_be_made_again():
    again = list(toy.one_seed("interleaved", 3))
    before = [r for r in TOY if (r["order"], r["seed"]) == ("interleaved", "3")]
    assert [r["method"] for r in before] == [r["method"] for r in again]
    for old, new in zip(before, again, strict=True):
        assert float(old["nll"]) == pytest.approx(new["nll"], rel=1e-3), new["method"]


@pytest.mark.parametrize("order", toy.ORDERS)
def test_the_toy_s_results_reach_their_bars(order):
    offline, default = mean_nll(order, "offline"), mean_nll(order, "default")
    assert default <= 1.03 * offline
    assert mean_nll(order, "shards") == pytest.approx(default, rel=0.02)
    assert mean_nll(order, "paper") < mean_nll(order, "kl")


def test_the_page_of_the_toy_shows_the_committed_results():
    text = (pages.ROOT / toy.PAGE).read_text()
    assert pages.filled(text, "toy", toy.table(TOY)) == text
