"""The committed results against brokers and servers of other projects account for every row."""

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "experiments" / "plantfloor" / "results"


@pytest.mark.parametrize(
    ("file", "part"),
    [
        *(("tansu.json", part) for part in ("copy", "kills", "group_kills")),
        *(("node_opcua.json", part) for part in ("subscription", "gap", "cut", "since")),
    ],
)
def test_no_row_is_missing_or_repeated(file, part):
    found = json.loads((RESULTS / file).read_text())[part]
    assert found["missing"] == found["twice"] == 0
    assert found.get("wrong_values", 0) == found.get("offsets_twice", 0) == 0
    assert max(found.get("rows", 0), found.get("sent", 0)) >= 200
    assert found.get("sent") == found.get("predicted", found.get("received"))


def test_a_client_of_another_project_saw_an_alarm_raised_acknowledged_and_cleared():
    found = json.loads((RESULTS / "node_opcua_alarms.json").read_text())["events"]
    states = [(one["ActiveState.Id"], one["AckedState.Id"], one["Retain"]) for one in found[:3]]
    assert states == [(True, False, True), (True, True, True), (False, True, False)]
    assert {one["ConditionName"] for one in found} == {"seal leak"}


def test_a_client_of_another_project_saw_that_an_alarm_was_reclassified():
    found = json.loads((RESULTS / "node_opcua_alarms.json").read_text())["events"]
    (one,) = [event for event in found if "reclassified" in event["Message"]]
    assert (one["ActiveState.Id"], one["AckedState.Id"], one["Retain"]) == (False, False, True)
