"""Pages show the committed results of the experiments that resume."""

from benchmarks import pages
from experiments import results
from experiments.streams import baseline_rows


def test_the_page_shows_what_baseline_rows_bought():
    text = (pages.ROOT / baseline_rows.PAGE).read_text()
    table = baseline_rows.table(results.read(baseline_rows.RESULTS))
    assert pages.filled(text, "baseline-rows", table) == text
