"""The committed results of alarms: few false ones, and each fault that is found is found once."""

import csv
from pathlib import Path

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
