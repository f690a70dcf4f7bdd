"""Kills and load of the service: nothing is lost, and the page has the committed figures."""

import csv
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "service" / "results"
PAGE = " ".join((ROOT / "docs/method/service.md").read_text(encoding="utf-8").split())


def test_a_killed_service_loses_nothing_and_counts_nothing_twice():
    lines = list(csv.reader((RESULTS / "kills.csv").read_text().splitlines()))
    kills = [line for line in lines[1:] if len(line) > 2]
    found = {line[0]: int(line[1]) for line in lines if len(line) == 2}
    bad = [what for what in found if any(word in what for word in ("lost", "twice", "fit", "differ"))]
    assert len(bad) == 8
    assert not any(found[what] for what in bad)
    by_process = [sum(line[1] == process for line in kills) for process in ("service", "worker")]
    assert f"SIGKILL {len(kills)} times" in PAGE
    assert "{} times the service, {} times one of its two workers".format(*by_process) in PAGE
    assert f"Of {found['rows']:,} rows and {found['labels']:,} labels none was lost" in PAGE
    assert f"the same {found['changes of alarms']} changes of alarms" in PAGE
    again, replayed = found["batches sent again and counted once"], sum(int(line[5]) for line in kills)
    assert f"{again} requests were sent again and counted once, {replayed} were replayed" in PAGE


def test_the_page_has_the_measured_speed():
    speeds = {}
    for row in csv.DictReader((RESULTS / "load.csv").read_text().splitlines()):
        if row["figure"] == "rows_per_second" and row["what"].endswith(("worker", "workers")):
            speeds[row["classes"], row["what"], row["bodies"].upper()] = float(row["value"])
    assert len(speeds) == 8
    for (classes, what, bodies), speed in speeds.items():
        assert f"| {classes} | the service, {what} | {bodies} | {speed:,.0f} |" in PAGE
