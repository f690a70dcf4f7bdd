"""Whether the settings that `evaluate` recommends are the best on new machines."""

from benchmarks import pages
from experiments import results
from experiments.recommendation import __main__ as recommendation


def test_the_table_of_the_page_is_made_of_the_results():
    rows = results.read(recommendation.RESULTS)
    text = (pages.ROOT / recommendation.PAGE).read_text(encoding="utf-8")
    assert pages.filled(text, recommendation.PART, recommendation.table(rows)) == text


def test_one_setting_of_a_fleet_is_recommended():
    rows = results.read(recommendation.RESULTS)
    for kind in recommendation.KINDS:
        for fleet in map(str, recommendation.FLEETS):
            mine = [row for row in rows if (row["kind"], row["fleet"]) == (kind, fleet)]
            assert sum(int(row["recommended"]) for row in mine) == 1
