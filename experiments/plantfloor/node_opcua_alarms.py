"""Alarms as a client that is not asyncua's sees them: node-opcua, written in JavaScript.

``python -m experiments.plantfloor.node_opcua_alarms`` installs npm's ``node-opcua-client`` into a
temporary folder, serves alarms as conditions, and writes the events that the client gets when one is
raised, acknowledged, cleared, raised again, reclassified and shelved to
``results/node_opcua_alarms.json``.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from baryflow.alarms import AlarmCommand, AlarmConfig, Alarms
from baryflow.streams import open_sink

RESULTS = Path(__file__).parent / "results" / "node_opcua_alarms.json"
SCRIPT = Path(__file__).with_suffix(".js")
PACKAGE = "node-opcua-client@2.182.2"
NAMES = ["normal", "seal leak"]


def happen():
    """Yield the records of changes, as ``run`` would write them."""
    rules = {"on-delay": 1, "off-delay": 1, "chatter": 0, "priority": "critical"}
    alarms = Alarms(AlarmConfig.from_table(rules))

    def row(number, share, *, confirmed=True):
        label, time = NAMES[share > 0.5], f"2026-01-01T00:0{number}:00Z"
        shares = [1 - share, share]
        return alarms.update(number, time, label, NAMES, shares, confirm=lambda *_: confirmed)

    yield row(1, 0.97)
    yield alarms.apply(AlarmCommand("acknowledge", "seal leak", by="ada", comment="on it"), NAMES)
    yield row(2, 0.1)
    yield row(3, 0.97)
    yield row(4, 0.1, confirmed=False)  # the model calls the rows of the alarm something else now
    yield alarms.apply(AlarmCommand("shelve", "seal leak", duration="1h", by="ada"), NAMES)


def main():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(
            [*install, "--loglevel=error", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        script = shutil.copy(SCRIPT, folder)
        url = f"opc.tcp://127.0.0.1:{port}/plant"
        sink = open_sink(f"{url}?serve")
        try:
            client = subprocess.Popen(
                ["node", script, url, "6"],  # noqa: S607
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": folder},
            )
            for line in client.stdout:
                if line.strip() == "ready":  # the library logs to standard output, too
                    break
            for changes in happen():
                sink.write(
                    [
                        {"event": "alarm", "message": one.message, "key": "pump7", **one.details}
                        for one in changes
                    ]
                )
            lines = client.communicate(timeout=120)[0].splitlines()
        finally:
            sink.close()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    RESULTS.write_text(json.dumps({"package": PACKAGE, "events": events}, indent=1) + "\n")
    states = [(one["ActiveState.Id"], one["AckedState.Id"], one["Retain"]) for one in events]
    print(*states, sep="\n", file=sys.stderr)
    return 0 if states[:3] == [(True, False, True), (True, True, True), (False, True, False)] else 1


if __name__ == "__main__":
    sys.exit(main())
