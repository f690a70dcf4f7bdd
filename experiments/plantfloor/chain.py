"""The whole chain without a plant: ``tep publish`` -> OPC UA or MQTT -> ``run`` -> predictions.

``python -m experiments.plantfloor.chain`` lets mode 1 of the simulated plant run with some faults, as a
server and at a broker, follows it with the model that comes along (fitted on modes 2 to 6) and ten hours
of its normal operation, and compares the labels with those of ``run`` on a file of the same signals; it
writes ``results/chain.json``.
"""

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from baryflow.tep import VARIABLES
from baryflow.tep.plant.simulation import play
from tests.streams.mosquitto import Broker, login
from tests.streams.opcua_plant import free_port

RESULTS = Path(__file__).parent / "results" / "chain.json"
MODEL = Path(__file__).parents[2] / "src" / "baryflow" / "datasets" / "data" / "tep_plant.bary"
FAULTS = (0, 1, 4, 6, 8)
START = "2026-01-01T00:00:00Z"


def baryflow(*words, **how):
    command = [sys.executable, "-m", "baryflow", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **how)


def offline(folder, fault, hours):
    """Return the labels of the same signals in a file."""
    write(folder / "signals.csv", play(1, fault, hours=hours))
    write(folder / "normal.csv", play(1, 0, hours=10.0, seed=7))
    out = folder / "offline.ndjson"
    baryflow(*run(folder, folder / "signals.csv"), "-o", out).communicate()
    return labels(out)


def run(folder, source):
    return ["run", MODEL, source, "--baseline", folder / "normal.csv"]


def write(path, signals):
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([variable.label for variable in VARIABLES])
        table.writerows(row.tolist() for row in signals.astype(float))


def labels(path):
    if not path.exists():
        return []
    return [json.loads(line)["label"] for line in path.read_bytes().split(b"\n")[:-1]]


def follow(folder, name, n, publishing, following, wait):
    """Publish, follow until all windows are predicted, and return the labels."""
    out = folder / f"{name}.ndjson"
    if wait:  # a broker keeps nothing for those it has never heard of
        run = baryflow(*following, "-o", out, "--checkpoint", folder / f"{name}-kept", env=env())
        time.sleep(wait)
        publisher = baryflow(*publishing, env=env())
    else:
        publisher = baryflow(*publishing, env=env())
        publisher.stdout.readline()  # it is there
        run = baryflow(*following, "-o", out, "--checkpoint", folder / f"{name}-kept", env=env())
    until = time.monotonic() + 300
    while len(labels(out)) < n and time.monotonic() < until:
        time.sleep(0.5)
    for process in (run, publisher):
        process.send_signal(signal.SIGTERM)
        process.communicate()
    return labels(out)


def env():
    return os.environ | login("INPUT", "OUTPUT")


def by_opc_ua(folder, fault, hours, n):
    url = f"opc.tcp://127.0.0.1:{free_port()}/tep"
    publishing = ["tep", "publish", "--opc-ua", url, *how(fault, hours)]
    where = f"{url}?node=ns=2;s=Plant&clock=ns=2;s=Clock&since={START}"
    return follow(folder, "opcua", n, publishing, [*run(folder, where), "--sample-interval", "3min"], 0)


def by_mqtt(folder, fault, hours, n):
    with Broker(folder) as broker:
        url = f"mqtt://127.0.0.1:{broker.port}/tep"
        publishing = ["tep", "publish", "--mqtt", url, *how(fault, hours)]
        return follow(folder, "mqtt", n, publishing, [*run(folder, url), "--time", "time"], 8)


def how(fault, hours):
    return ["--mode", 1, "--fault", fault, "--hours", hours, "--speed", 36_000, "--start", START]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, nargs="*", default=FAULTS)
    parser.add_argument("--hours", type=float, default=30.0)
    options = parser.parse_args(arguments)
    found = []
    for fault in options.faults:
        name = f"F{fault:02d}" if fault else "normal"
        for way in (by_opc_ua, by_mqtt):
            with tempfile.TemporaryDirectory() as made:
                folder = Path(made)
                expected = offline(folder, fault, options.hours)
                got = way(folder, fault, options.hours, len(expected))
            line = {
                "way": way.__name__.removeprefix("by_"),
                "fault": fault,
                "windows": len(expected),
                "same labels": sum(a == b for a, b in zip(expected, got, strict=False)),
                "missing": len(expected) - len(got),
                "windows named rightly": sum(label.startswith(name) for label in expected),
                "last label": expected[-1] if expected else "",
            }
            print(json.dumps(line), flush=True)
            found.append(line)
            RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return int(any(line["same labels"] < line["windows"] for line in found))


if __name__ == "__main__":
    sys.exit(main())
