"""OPC UA on the plant floor: kills, restarts, cut wires, floods and nonsense, in full length.

``python -m experiments.plantfloor.opcua [PART ...]`` makes the parts that ``results/opcua.json`` does
not hold yet, or those that are named.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from baryflow.streams import open_source
from tests.streams import interleaved, test_opcua, test_opcua_kills
from tests.streams.opcua_plant import Plant
from tests.streams.proxy import Proxy
from tests.streams.run_process import COLUMNS, read_records, save_model

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "opcua.json"
TAGS = [f"t{number}" for number in range(41)]
NODE = "?node=ns=2;s=Plant"


def make_plant(names, **options):
    plant = Plant(names, **options)
    plant.begin = plant.now = test_opcua_kills.BEGIN
    return plant


def kills(folder, plant, count=20):
    rows = save_model(folder / "model.bary")
    begin = time.monotonic()
    found, expected, _ = test_opcua_kills.killed_again_and_again(
        plant, rows, folder / "killed", count, 60 * count, 20
    )
    return {
        "kills": count,
        "rows": len(found),
        "missing": len(set(expected) - set(found)),
        "twice": len(found) - len(set(found)),
        "in_order": found == expected,
        "seconds": round(time.monotonic() - begin),
    }


def kills_with_history(folder):
    plant = make_plant(COLUMNS)
    try:
        return kills(folder, plant)
    finally:
        plant.close()


def kills_without_history(folder):
    """Instants that have no row must be told: as many as are missing."""
    plant = make_plant(COLUMNS, history=False)
    rows = save_model(folder / "model.bary")
    out, n_kills = folder / "killed", 20
    writer = test_opcua_kills.RowWriter(plant, rows, 1_000_000, 4)
    try:
        with writer:
            for _ in range(n_kills):
                with test_opcua_kills.run(out, plant.url + NODE) as one:
                    one.wait_until_working()
                    time.sleep(0.3)
            writer.count = writer.written + 150
            last = test_opcua_kills.run(out, plant.url + NODE)
            last.wait_until_working()
        time.sleep(5)
        last.end()
    finally:
        plant.close()
    times = [record["time"] for record in read_records(out, "predictions")]
    expected = test_opcua_kills.expected_times(plant, writer.count)
    expected = expected[expected.index(times[0]) : expected.index(times[-1]) + 1]
    events = [record["message"] for record in read_records(out, "events")]
    gaps = [re.search(r"(\d+) instants? from .* missing", words) for words in events]
    told = sum(int(gap[1]) for gap in gaps if gap)
    return {
        "kills": n_kills,
        "rows": len(times),
        "missing": len(set(expected) - set(times)),
        "told_as_missing": told,
    }


def kills_with_labels(folder):
    """The same with labels, alarms and commands between the rows."""
    return interleaved.kill_over("opcua", folder, 20)


def disturbed(count, rate, disturb, url=None, plant=None):
    plant = plant or make_plant(COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        rows = save_model(Path(folder) / "model.bary")
    try:
        found, expected, notices = test_opcua_kills.disturbed(
            plant, rows, count, rate, url or plant.url + NODE, lambda: disturb(plant)
        )
    finally:
        plant.close()
    times = list(expected)
    due = set(times[times.index(found[0][0]) : times.index(found[-1][0]) + 1])
    return {
        "rows": len(found),
        "missing": len(due - {moment for moment, _ in found}),
        "twice": len(found) - len({moment for moment, _ in found}),
        "wrong_values": sum(row != expected[moment] for moment, row in found),
        "notices": notices,
    }


def restart(_):
    """The server is stopped for ten seconds, and its plant continues."""

    def stop_and_start(plant):
        time.sleep(3)
        plant.stop()
        time.sleep(10)
        plant.start()

    return disturbed(800, 20, stop_and_start)


def cut(_):
    plant = make_plant(COLUMNS)
    with Proxy(plant.port) as wire:

        def drop(_):
            time.sleep(3)
            wire.cut()
            time.sleep(60)
            wire.heal()

        url = f"opc.tcp://127.0.0.1:{wire.port}/plant{NODE}"
        return {"seconds_cut": 60} | disturbed(2000, 20, drop, url, plant)


def changes(_, rate=10, seconds=60):
    """41 tags, 10 changes a second each; the reader is a process of its own, whose CPU is counted."""
    plant = make_plant(TAGS, history=False)
    plant.write(*((name, 0.0, plant.now) for name in TAGS))
    told = rate * seconds
    reader = subprocess.Popen(
        [sys.executable, "-m", "experiments.plantfloor.opcua", "--listen", plant.url, str(told)],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        assert reader.stdout.readline() == "listening\n"
        begin = time.monotonic()
        for number in range(1, told + 1):
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
            plant.write(*((name, float(number), plant.now + number / rate) for name in TAGS))
        took = time.monotonic() - begin
        found = json.loads(reader.stdout.readline())
        reader.wait(timeout=30)
    finally:
        reader.kill()
        plant.close()
    return {
        "tags": len(TAGS),
        "changes_told": told * len(TAGS),
        "told_in_seconds": round(took, 1),
    } | found


def listen(url, told):
    """Count what comes, and the share of a core that it takes, rows included."""
    source = open_source(url + NODE, columns=TAGS, sample_interval=1, idle=0.1)
    heard = {name: [] for name in TAGS}
    update = source._sampler.update

    def note(address, value, *rest):
        if value:
            heard[address.removeprefix("ns=2;s=")].append(value)
        return update(address, value, *rest)

    source._sampler.update = note
    source.read(1, 0.5)
    print("listening", flush=True)
    rows = 0
    while not any(heard.values()):
        source.read(1, 0.1)
    wall, cpu, until = time.monotonic(), time.process_time(), time.monotonic() + told
    while any(len(values) < told for values in heard.values()) and time.monotonic() < until:
        rows += len(source.read(32, 0.5).rows)
    share = (time.process_time() - cpu) / (time.monotonic() - wall)
    source.close()
    expected = [float(number) for number in range(1, told + 1)]
    print(json.dumps({
        "changes_heard": sum(map(len, heard.values())),
        "lost": sum(len(set(expected) - set(values)) for values in heard.values()),
        "out_of_order_tags": sum(values != expected for values in heard.values()),
        "rows": rows,
        "cpu_share_of_one_core": round(share, 3),
    }), flush=True)  # fmt: skip


def nonsense(_, count=5000):
    plant = make_plant(["a", "b"])
    test_opcua.write_rows(plant, 0, 1)
    source = open_source(plant.url + NODE, columns=["a", "b"], sample_interval=10, idle=0.05)
    try:
        source.read(1, 0.1)
        rows, notices = test_opcua.fuzz(plant, source, count, seed=1)
    finally:
        counts = source._sampler.counts
        source.close()
        plant.close()
    last = rows[-1, 0]
    return {
        "unusual_values": count,
        "connections_lost": sum("lost the connection" in notice for notice in notices),
        "rows": len(rows),
        "infinite": int(np.isinf(rows).sum()),
        "missing_cells": int(np.isnan(rows).sum()),
        "good_rows_told_afterwards": int(last) - count // 10 + 1,
        "last_rows_right": rows[-100:, 0].tolist() == list(np.arange(last - 99, last + 1)),
        "counts": counts,
    }


PARTS = {
    "kills_with_history": kills_with_history,
    "kills_without_history": kills_without_history,
    "kills_with_labels": kills_with_labels,
    "restart": restart,
    "cut": cut,
    "changes": changes,
    "nonsense": nonsense,
}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--listen", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.listen:
        listen(options.listen[0], int(options.listen[1]))
        return
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.parts or [name for name in PARTS if name not in found]:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = PARTS[name](Path(folder))
        print(name, json.dumps(found[name])[:400], flush=True)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
