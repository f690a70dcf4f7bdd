"""Do to runs on Kafka what a plant does, and count what is missing afterwards.

``python -m experiments.plantfloor.kafka [PART …]`` runs against librdkafka's mock cluster, in a process
of its own behind a front that can stall and refuse, and writes each part to ``results/kafka.json`` once
it is done; parts that are there already are left out unless named.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.streams import interleaved
from tests.streams import kafka_trials as trials

RESULTS = Path(__file__).parent / "results" / "kafka.json"
PARTS = {
    "kills": lambda folder: trials.kill_runs(folder, 20),
    "kills_with_labels": lambda folder: interleaved.kill_over("kafka", folder, 20),
    "stall": lambda folder: trials.disturb(folder, "stall", 60),
    "down": lambda folder: trials.disturb(folder, "down", 60),
    "fuzz": lambda folder: trials.fuzz(folder, 5000),
    "group": lambda folder: trials.share(folder, 10),
    "group_stall": lambda folder: trials.share(folder, 1, stall=60.0),
}


def main(names):
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names or [part for part in PARTS if part not in found]:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            result = PARTS[name](Path(folder))
        found[name] = result | {"took_seconds": round(time.monotonic() - began)}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")
        print(name, json.dumps(found[name]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
