"""Pages show the committed results of the experiments that resume."""

import importlib

import pytest

from benchmarks import pages
from experiments import results


@pytest.mark.parametrize("name", ["ablation", "novelty", "reliability", "schedule"])
def test_the_page_shows_the_committed_results(name):
    experiment = importlib.import_module(f"experiments.{name}.__main__")
    text = (pages.ROOT / experiment.PAGE).read_text()
    table = experiment.table(results.read(experiment.RESULTS))
    assert pages.filled(text, name, table) == text
