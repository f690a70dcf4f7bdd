"""Pages show the committed results of the experiments that resume."""

import importlib

import pytest

from benchmarks import pages
from experiments import results
from experiments.ablation import __main__ as ablation
from experiments.streams import baseline_rows


@pytest.mark.parametrize("name", ["novelty", "reliability", "schedule"])
def test_the_page_shows_the_committed_results(name):
    experiment = importlib.import_module(f"experiments.{name}.__main__")
    text = (pages.ROOT / experiment.PAGE).read_text()
    table = experiment.table(results.read(experiment.RESULTS))
    assert pages.filled(text, name, table) == text


def test_the_page_shows_what_parts_were_worth_before_there_were_explanations():
    text = (pages.ROOT / ablation.PAGE).read_text()
    table = ablation.table(results.read(ablation.BEFORE))
    assert pages.filled(text, "ablation-0.2", table) == text


def test_the_page_shows_what_baseline_rows_bought():
    text = (pages.ROOT / baseline_rows.PAGE).read_text()
    table = baseline_rows.table(results.read(baseline_rows.RESULTS))
    assert pages.filled(text, "baseline-rows", table) == text
