"""Whether the settings that `evaluate` recommends are the best on new machines."""

from benchmarks import pages
from experiments import results
from experiments.recommendation import __main__ as recommendation
from experiments.recommendation import cost


def test_the_table_of_the_page_is_made_of_the_results():
    rows = results.read(recommendation.RESULTS)
    text = (pages.ROOT / recommendation.PAGE).read_text(encoding="utf-8")
    assert pages.filled(text, recommendation.PART, recommendation.table(rows)) == text


def test_evaluate_takes_no_longer_than_twice_the_time_of_0_2_0_and_is_as_accurate():
    rows = results.read(cost.RESULTS)
    text = (pages.ROOT / cost.PAGE).read_text(encoding="utf-8")
    assert pages.filled(text, cost.PART, cost.table(rows)) == text
    for before, now in zip(rows[::2], rows[1::2], strict=True):
        assert (before["version"], now["version"]) == ("0.2.0", "now")
        assert float(now["seconds"]) <= 2.0 * float(before["seconds"])
        assert float(now["flowing"]) > float(before["flowing"]) - 1.0


def test_one_setting_of_a_fleet_is_recommended():
    rows = results.read(recommendation.RESULTS)
    for kind in recommendation.KINDS:
        for fleet in map(str, recommendation.FLEETS):
            mine = [row for row in rows if (row["kind"], row["fleet"]) == (kind, fleet)]
            assert sum(int(row["recommended"]) for row in mine) == 1
