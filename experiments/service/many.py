"""Ten thousand targets in one worker: how long requests wait for commits, and how long a start takes.

The targets of the store are copies of one that has had 64 rows. Then one target after the other, drawn
at random, gets eight more rows, so that sessions are read, changed and committed all the time.
Each write of the journal and each commit is timed in the worker, since requests wait behind them; the
seconds of CPU beside them tell what of that is waiting for the disk or for other processes.
"""

from __future__ import annotations

import random
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np

from baryflow import load
from baryflow.client import Client
from baryflow.runtime import Store
from baryflow.service import Limits, background, create_app
from experiments.service.process import prepare, size, write

N_BEFORE, N_ROWS, CLIENTS = 64, 8, 4
#: Targets that are copied in one transaction.
COPIED = 64


def timed(function, times):
    """Return a function that also notes its seconds, and those of its thread's CPU."""

    def call(*args, **options):
        began = time.perf_counter(), time.thread_time()
        try:
            return function(*args, **options)
        finally:
            times.append((time.perf_counter() - began[0], time.thread_time() - began[1]))

    return call


def fill(state, names):
    """Copy the session of the one target of a store."""
    with closing(Store(state)) as store:
        (first,) = store.sessions
        row, body = store.sessions[first], store.read_session(first)
        for start in range(0, len(names), COPIED):
            with store.transaction(synced=False):
                for name in names[start : start + COPIED]:
                    store.write_session(name, row.generation, row.applied, row.summary, body)
        with store.transaction():
            store.delete_session(first)


def main(quick):
    n_targets, n_requests = (200, 150) if quick else (10_000, 1_000)
    rng, journals, commits = random.Random(0), [], []
    with tempfile.TemporaryDirectory() as folder:
        path, rows = prepare(folder, 3, 8)
        model, state = load(path), Path(folder) / "state"
        names = [f"machine-{number:05d}" for number in range(n_targets)]

        def serve(**limits):
            return create_app(model, state_dir=state, limits=Limits(**limits), batch_size=8)

        with background(serve()) as url, Client(url) as client:
            client.send("first", rows[np.arange(N_BEFORE) % len(rows)])
        fill(state, names)
        began = time.perf_counter(), time.process_time()
        app = serve(snapshot_every=64)
        with background(app) as url, Client(url, patience=600) as client:
            started = time.perf_counter() - began[0], time.process_time() - began[1]
            (channel,) = app.state.service.channels
            loop = channel.worker.targets.loop
            loop.receive, loop.commit = timed(loop.receive, journals), timed(loop.commit, commits)

            def send(name):
                began = time.perf_counter()
                answer = client.send(name, rows[:N_ROWS])
                assert (answer["first"], answer["last"]) == (N_BEFORE + 1, N_BEFORE + N_ROWS)
                return time.perf_counter() - began

            began = time.perf_counter()
            with ThreadPoolExecutor(CLIENTS) as pool:
                requests = list(pool.map(send, rng.sample(names, n_requests)))
            seconds = time.perf_counter() - began
            commits = [*commits]  # without the last one, when nobody waits
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        with background(serve()) as url, Client(url) as client:
            seen = sum(line["rows_seen"] for line in client.targets())
        disk = size(state) / 1e6
    table = [("what", "seconds", "cpu_seconds"), ("start", *started)]
    for what, times in (("journal", journals), ("commit", commits)):
        table += [(f"longest {what}", *max(times)), (f"median {what}", *sorted(times)[len(times) // 2])]
    table += [("longest request", max(requests), ""), ("median request", np.median(requests), "")]
    table = [
        tuple(round(float(one), 4) if isinstance(one, float) else one for one in row) for row in table
    ]
    all_there = seen == N_BEFORE * n_targets + N_ROWS * n_requests
    table += [
        ("targets", n_targets, ""),
        ("requests", n_requests, ""),
        ("commits", len(commits), ""),
        ("rows a second", round(N_ROWS * n_requests / seconds), ""),
        ("memory in MB", round(memory), ""),
        ("disk in MB", round(disk), ""),
        ("all rows are there after a restart", "yes" if all_there else "no", ""),
    ]
    for row in table:
        print(*row, flush=True)
    if not quick:
        write("many", table)
    return 0 if all_there and max(commits)[0] <= 0.5 and started[0] <= 5.0 else 1
