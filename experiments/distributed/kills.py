"""Kill workers and the client, change the workers or the partitions: does the model change?

``python -m experiments.distributed.kills [PART ...]`` runs the parts named, or all; each writes a CSV.

``kills``   a worker gets SIGKILL in each of two passes; then, in another run, the client in the middle
            of the second one, and the same call resumes. The same bits?
``order``   one, two and three workers, and workers that are stopped at random moments. The same bits?
``pieces``  the same rows in other row groups: the same bits? And shuffled: another sample order, so
            another model. How much does the held-out NLL differ?
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from experiments.distributed.client import digest
from experiments.distributed.data import ENVIRONMENT, FOLDER, Problem, as_table, save
from experiments.distributed.judged import judge
from experiments.distributed.watched import Watched

PROBLEM, ROWS = Problem(n_columns=32), 600_000
#: Small, so that there are about forty partitions.
PARTITIONS = ("--partition-bytes", 4 << 20)
STAGES = ("counting-rows", "sampling-rows")


class Killer(threading.Thread):
    """Sends SIGKILL to a worker in each stage, once some of its partitions are done."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.kills = cluster.cluster, []

    def run(self):
        for stage in STAGES:
            while not self._amid(stage):
                time.sleep(0.01)
            victim = self._victim(stage)
            os.kill(victim, signal.SIGKILL)
            self.kills.append(stage)

    def _amid(self, stage):
        prefix = self.cluster.scheduler.task_prefixes.get(stage)
        return prefix is not None and prefix.state_counts["memory"] >= 5 and self._victim(stage)

    def _victim(self, stage):
        """Return the process of a worker that is busy with that stage."""
        for worker in list(self.cluster.scheduler.workers.values()):
            if any(task.prefix.name == stage for task in list(worker.processing)):
                return self.cluster.workers[worker.name].pid
        return None


class Brakes(threading.Thread):
    """Stops workers at random moments for a while, so that tasks run in another order and place."""

    def __init__(self, cluster, seed):
        super().__init__(daemon=True)
        self.cluster, self.random, self.ended = cluster.cluster, random.Random(seed), threading.Event()

    def run(self):
        while not self.ended.wait(0.3 * self.random.random()):
            pid = self.random.choice(list(self.cluster.workers.values())).pid
            os.kill(pid, signal.SIGSTOP)
            self.ended.wait(0.5 * self.random.random())
            os.kill(pid, signal.SIGCONT)

    def end(self):
        self.ended.set()
        self.join()


def fit(folder, workers):
    with Watched(workers) as cluster:
        return cluster.fit(folder, *PARTITIONS)


def kills(folder):
    rows = PROBLEM.write(folder, ROWS)
    calm, _ = fit(rows, 2)
    with Watched(2) as cluster:
        killer = Killer(cluster)
        killer.start()
        disturbed, _ = cluster.fit(rows, *PARTITIONS)
    table = [
        {"what": "undisturbed", "kills": 0, "seconds": calm["seconds"], "bits": calm["bits"]},
        {
            "what": f"workers killed: {', '.join(killer.kills)}", "kills": disturbed["workers_lost"],
            "seconds": disturbed["seconds"], "bits": disturbed["bits"],
        },
        kill_client(rows),
    ]  # fmt: skip
    for row in table:
        row["same_bits"] = row["bits"] == calm["bits"]
    save("kills", table)
    return all(row["same_bits"] for row in table) and disturbed["workers_lost"] >= len(STAGES)


def kill_client(rows):
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        command = [
            sys.executable, "-m", "experiments.distributed.client", "local", str(rows),
            str(place / "model"), "--workers", "2", "--checkpoint", str(place / "checkpoint"),
            *map(str, PARTITIONS),
        ]  # fmt: skip
        first = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        while len(done := list(place.glob("checkpoint/**/sample-*/*.bary"))) < 8:
            assert first.poll() is None, "it ended before it could be killed"
            time.sleep(0.005)
        first.kill()
        first.wait()
        again = subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE)
        figures = json.loads(again.stdout)
    return {
        "what": f"client killed, {len(done)} partitions of the second pass done", "kills": 1,
        "seconds": figures["seconds"], "bits": figures["bits"],
    }  # fmt: skip


def order(folder):
    rows = PROBLEM.write(folder, ROWS)
    table = []
    for workers in (1, 2, 3):
        figures, _ = fit(rows, workers)
        table.append({"what": f"{workers} workers", "bits": figures["bits"]})
    for seed in (0, 1):
        with Watched(3) as cluster:
            brakes = Brakes(cluster, seed)
            brakes.start()
            figures, _ = cluster.fit(rows, *PARTITIONS)
            brakes.end()
        table.append({"what": f"3 workers stopped at random, {seed}", "bits": figures["bits"]})
    for row in table:
        row["same_bits"] = row["bits"] == table[0]["bits"]
    save("order", table)
    return all(row["same_bits"] for row in table)


def cut(folder, n_groups, shuffled):
    """Write the same rows into other files, with other row groups."""
    X, y, source = PROBLEM.rows(ROWS)
    if shuffled:
        turn = np.random.default_rng(0).permutation(len(y))
        X, y, source = X[turn], y[turn], source[turn]
    folder.mkdir(parents=True)
    pq.write_table(
        as_table(X, y, source), folder / "rows.parquet", row_group_size=-(-len(y) // n_groups),
        compression="none",
    )  # fmt: skip
    return folder


def pieces(folder):
    table = []
    with tempfile.TemporaryDirectory(dir=folder) as name, Watched(2) as cluster:
        for n_groups, shuffled in ((42, False), (11, False), (150, False), (42, True)):
            rows = cut(Path(name) / f"{n_groups}-{shuffled}", n_groups, shuffled)
            _, content = cluster.fit(rows, "--partition-bytes", 1)  # each row group is a partition
            figures = judge(content, PROBLEM)
            row = {"pieces": n_groups, "shuffled": shuffled, "bits": digest(content)} | figures
            first = table[0] if table else row
            for what in ("nll_sources", "nll_target"):
                row[f"{what}_off"] = abs(row[what] / first[what] - 1.0)
            table.append(row)
    save("pieces", table)
    return len({row["bits"] for row in table if not row["shuffled"]}) == 1


PARTS = {"kills": kills, "order": order, "pieces": pieces}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--folder", default=FOLDER, type=Path)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = [PARTS[name](options.folder) for name in options.parts or PARTS]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
