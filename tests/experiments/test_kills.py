"""Kills and damage: nothing is lost, and the docs have the committed figures."""

import csv
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def read(name):
    with (ROOT / "experiments" / "kills" / "results" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_killed_runs_ended_as_an_undisturbed_one():
    *kills, end = read("kills")
    assert (end["kill"], end["seconds"]) == ("identical", "yes")
    for page in ("guide/labels.md", "howto/historian-export.md", "method/alarms.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert f"`python -m experiments.kills --kills {len(kills)}`" in text, page


def test_damage_is_reported_or_does_no_harm():
    found = Counter(row["result"] for row in read("damage"))
    assert found.keys() == {"recovered", "reported"}
    page = " ".join((ROOT / "docs/reference/file-formats.md").read_text(encoding="utf-8").split())
    assert f"Of {found.total():,} stores" in page
    assert (
        f"{found['recovered']} had everything that was acknowledged, and {found['reported']} were"
        in page
    )
