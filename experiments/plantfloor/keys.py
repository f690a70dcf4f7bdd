"""Thousands of targets in one Kafka topic: memory, disk, and whether all resume after a kill.

``python -m experiments.plantfloor.keys`` sends the rows of 2,000 machines in turn to a topic, follows
them with ``baryflow run --key @key``, kills it in the middle (SIGKILL), calls it again, and writes
``results/keys.json``.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from tests.streams.kafka_cluster import Cluster

RESULTS = Path(__file__).parent / "results" / "keys.json"
COLUMNS = [f"x{j}" for j in range(12)]


def fit(path):
    problem = make_domains(4, 6, 12, 60, random_state=0)
    model = OnlineDaDiL(keep_sources=False, random_state=0)
    model.fit(problem.X, problem.y, sample_domain=problem.domain)
    model.feature_names_in_ = np.array(COLUMNS, dtype=object)
    model.save(path)
    return problem


def messages(problem, machines, rounds):
    """Yield a row of each machine in turn; each has rows, and an offset of its sensors, of its own."""
    rng = np.random.default_rng(0)
    shifts = 0.3 * rng.normal(size=(machines, 12))
    for _ in range(rounds):
        rows = problem.X_target[rng.integers(len(problem.X_target), size=machines)] + shifts
        for number, row in enumerate(rows):
            value = dict(zip(COLUMNS, row.round(6).tolist(), strict=True))
            yield f"machine-{number:04d}", json.dumps(value).encode()


def resident(pid):
    try:
        words = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0.0
    return int(words.split("VmRSS:")[1].split()[0]) / 1024


def n_lines(folder):
    return sum(len(path.read_bytes().splitlines()) for path in folder.glob("out*.ndjson"))


def follow(command, folder, until):
    """Run until this many predictions are there; return the process, its largest memory and the time."""
    process, largest, start = subprocess.Popen(command), 0.0, time.perf_counter()
    while n_lines(folder) < until and process.poll() is None:
        largest = max(largest, resident(process.pid))
        time.sleep(0.5)
    return process, largest, time.perf_counter() - start


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--in-memory", type=int, default=None)
    options = parser.parse_args(arguments)
    total = options.machines * options.rounds
    with tempfile.TemporaryDirectory() as name, Cluster() as cluster:
        folder = Path(name)
        problem = fit(folder / "model.bary")
        cluster.send("machines", messages(problem, options.machines, options.rounds))
        command = [
            sys.executable, "-m", "baryflow", "run", str(folder / "model.bary"),
            cluster.url("machines"), "--key", "@key", "-o", str(folder / "out.ndjson"),
            "--checkpoint", str(folder / "checkpoint"),
        ]  # fmt: skip
        if options.in_memory is not None:
            command += ["--in-memory", str(options.in_memory)]
        process, before, _ = follow(command, folder, total // 2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process, after, seconds = follow(command, folder, total)
        process.send_signal(signal.SIGTERM)
        process.wait()
        records = [json.loads(line) for line in (folder / "out.ndjson").read_bytes().splitlines()]
        machines = folder / "checkpoint" / "machines"
        seen = Counter(record["key"] for record in records)
        most = {record["key"]: record["rows_seen"] for record in records}
        figures = {
            "machines": len(seen),
            "rows": len(records),
            "rows missing": total - len({record["offset"] for record in records}),
            "rows twice": len(records) - len({record["offset"] for record in records}),
            "machines whose every row was predicted": sum(n == options.rounds for n in seen.values()),
            "machines that had learned by their last row": sum(n >= 32 for n in most.values()),
            "in memory at most": options.in_memory or "as fits",
            "resident MB at most, before the kill": round(before),
            "resident MB at most, after it": round(after),
            "MB on disk, machines": round(sum(f.stat().st_size for f in machines.iterdir()) / 1e6),
            "rows a second after the kill": round(total / 2 / seconds),
        }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
