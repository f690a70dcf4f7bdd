"""Runs that are killed while rows, labels, alarms and commands come."""

import json
from pathlib import Path

import pytest

from tests.streams import interleaved
from tests.streams.files import require
from tests.streams.mosquitto import find_mosquitto

RESULTS = Path(__file__).parents[2] / "experiments" / "plantfloor" / "results"
MODULES = {"mqtt": "paho.mqtt.client", "kafka": "confluent_kafka", "opcua": "asyncua"}
NONE = (
    "predicted_twice", "commands_lost", "commands_twice", "alarms_lost", "alarms_different",
)  # fmt: skip


def check(found):
    assert {name: found[name] for name in NONE} == dict.fromkeys(NONE, 0)
    assert found["differ_from_an_undisturbed_run"] == []
    assert found["labels_learned"] == found["labels"] > 0
    assert found["commands_in_order"]
    assert found["changes_of_alarms"] > found["commands"] > 0


@pytest.mark.parametrize("transport", interleaved.TRANSPORTS)
def test_a_killed_run_ends_as_an_undisturbed_one(transport, tmp_path):
    require(MODULES[transport])
    if transport == "mqtt":
        find_mosquitto()
    # For many kills, see experiments/plantfloor.
    found = interleaved.kill_over(transport, tmp_path, 1, rate=40.0)
    check(found)
    assert found["predicted"] >= found["rows"] - 1 > 0


def read(transport):
    found = json.loads((RESULTS / f"{transport}.json").read_text(encoding="utf-8"))
    return found["kills_with_labels"]


@pytest.mark.parametrize("transport", interleaved.TRANSPORTS)
@pytest.mark.skipif(not RESULTS.exists(), reason="experiments are not part of this distribution")
def test_nothing_was_lost_or_repeated_in_many_kills(transport):
    found = read(transport)
    check(found)
    assert found["kills"] == 20
    assert found["predicted"] >= found["rows"] - 1 > 100


@pytest.mark.skipif(not RESULTS.exists(), reason="experiments are not part of this distribution")
def test_the_page_has_the_committed_figures():
    page = (RESULTS.parents[2] / "docs" / "method" / "connections.md").read_text(encoding="utf-8")
    for transport, name in (("mqtt", "MQTT"), ("kafka", "Kafka"), ("opcua", "OPC UA")):
        found = read(transport)
        names = (
            "predicted", "labels_learned", "commands", "changes_of_alarms", "alarms_sent_again",
        )  # fmt: skip
        figures = " | ".join(f"{found[one]:,}" for one in names)
        assert f"| {name} | {figures} |" in page
