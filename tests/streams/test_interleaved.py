"""Runs that are killed while rows, labels, alarms and commands come."""

import pytest

from tests.streams import interleaved
from tests.streams.files import require
from tests.streams.mosquitto import find_mosquitto

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
