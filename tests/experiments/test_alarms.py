"""The committed results of alarms: few false ones, and each fault that is found is found once."""

import csv
from pathlib import Path

from benchmarks import pages
from experiments import results
from experiments.alarms import endings

RESULTS = Path(__file__).parents[2] / "experiments" / "alarms" / "results" / "plant.csv"


def test_the_plant_raises_the_alarms_that_the_docs_promise():
    with RESULTS.open(encoding="utf-8") as file:
        normal, *faults = csv.DictReader(file)
    assert int(normal["alarms"]) <= 1
    assert not normal["hours"] or float(normal["hours"]) > 24.0
    found = [line for line in faults if line["found"] == "yes"]
    assert len(found) >= 21
    assert all(line["alarms"] == "1" for line in found)
    assert sum(int(line["other_alarms"]) for line in faults) <= 4


def test_the_table_of_how_alarms_end_is_made_of_the_results():
    rows = results.read(endings.RESULTS)
    text = (pages.ROOT / endings.PAGE).read_text(encoding="utf-8")
    assert pages.filled(text, endings.PART, endings.table(rows)) == text
