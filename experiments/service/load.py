"""Eight clients at once, and the same bodies sent to an application that only sends them back.

With one worker and with one for each core; the bodies are JSON, or arrays as NPY. Processor time says
more than rows per second if the machine is busy with other work.
"""

from __future__ import annotations

import io
import json
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
from threadpoolctl import threadpool_limits

from baryflow import load
from baryflow.runtime import Rows, SessionConfig
from baryflow.service import usable_cores
from experiments.service.process import Serve, prepare, write

N_ROWS, N_CLIENTS, N_TARGETS = 32, 8, 20
#: Classes and columns of the models.
MODELS = ((3, 128), (29, 128), (3, 8))


class Sender(threading.Thread):
    """Sends its bodies one after the other, and notes how long each took."""

    def __init__(self, url, bodies, number):
        super().__init__()
        self.url, self.bodies, self.number = url, bodies, number
        self.seconds, self.errors = [], 0

    def run(self):
        with httpx.Client(base_url=self.url, timeout=120, trust_env=False) as client:
            for n, body in enumerate(self.bodies):
                kind = "application/json" if body.startswith(b"{") else "application/x-npy"
                headers = {"Content-Type": kind, "Idempotency-Key": f"{self.number}-{n}"}
                path = f"/v1/targets/machine-{(self.number + n) % N_TARGETS}/rows"
                began = time.perf_counter()
                answer = client.post(path, content=body, headers=headers)
                self.seconds.append(time.perf_counter() - began)
                self.errors += answer.status_code != 200


def measure(serve, bodies):
    """Return rows per second, processor time, half-way and 99% of the times, and errors."""
    senders = [Sender(serve.url, some, number) for number, some in enumerate(bodies)]
    began, cpu = time.perf_counter(), serve.cpu()
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    took = time.perf_counter() - began
    seconds = np.concatenate([sender.seconds for sender in senders])
    p50, p99 = np.quantile(seconds, [0.5, 0.99])
    return {
        "rows_per_second": round(N_ROWS * len(seconds) / took, 1),
        "cpu_ms_per_request": round(1e3 * (serve.cpu() - cpu) / len(seconds), 2),
        "p50_ms": round(float(1e3 * p50), 1),
        "p99_ms": round(float(1e3 * p99), 1),
        "requests": len(seconds),
        "errors": sum(sender.errors for sender in senders),
    }


def make_bodies(rows, n_requests, kind="json"):
    """Return the bodies of each client."""
    found = []
    for client in range(N_CLIENTS):
        mine = []
        for n in range(n_requests):
            some = rows[(np.arange(N_ROWS) + N_ROWS * (client + 3 * n)) % len(rows)]
            if kind == "json":
                mine.append(json.dumps({"rows": some.tolist()}).encode())
            else:
                file = io.BytesIO()
                np.save(file, some)
                mine.append(file.getvalue())
        found.append(mine)
    return found


def model_alone(path, rows, n_batches):
    """Return rows per second of the models themselves, one after the other, without a service."""
    config = SessionConfig(load(path), N_ROWS, "report")
    machines = [config.begin() for _ in range(N_TARGETS)]
    began, cpu = time.perf_counter(), time.process_time()
    with threadpool_limits(limits=1):
        for n in range(n_batches):
            some = rows[(np.arange(N_ROWS) + N_ROWS * n) % len(rows)]
            machines[n % N_TARGETS].apply(Rows(some, np.arange(N_ROWS), [""] * N_ROWS, [""] * N_ROWS))
    return {
        "rows_per_second": round(N_ROWS * n_batches / (time.perf_counter() - began), 1),
        "cpu_ms_per_request": round(1e3 * (time.process_time() - cpu) / n_batches, 2),
    }


def serve(model, folder, n_workers, bodies):
    """Return what was measured of the service."""
    options = ("--checkpoint", folder / f"state-{n_workers}-{bodies[0][0][:1].hex()}")
    with Serve(model, *options, "--workers", n_workers) as serve:
        found = measure(serve, bodies)
        metrics, memory = serve.metrics(), serve.memory()
        serve.end()
    found["batches_per_fsync"] = round(
        metrics["baryflow_log_batches_total"] / metrics["baryflow_log_commits_total"], 2
    )
    found["memory_mb"] = memory
    assert int(metrics["baryflow_rows_total"]) == found["requests"] * N_ROWS
    return found


def compare(n_requests, n_classes, n_columns):
    """Return what was measured of the echo, of the models alone and of the service."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        model, rows = prepare(folder, n_classes, n_columns)
        for kind in ("json", "npy"):
            bodies = make_bodies(rows, n_requests, kind)
            with Serve(module="experiments.service.echo") as echo:
                measure(echo, [some[:5] for some in bodies])  # warm up
                found["echo", kind] = measure(echo, bodies)
            for n_workers in sorted({1, usable_cores()}):
                what = "1 worker" if n_workers == 1 else f"{n_workers} workers"
                found[what, kind] = serve(model, Path(folder), n_workers, bodies)
                for figure in ("rows_per_second", "p99_ms"):
                    ratio = found[what, kind][figure] / found["echo", kind][figure]
                    found[what, kind][f"{figure}_by_echo"] = round(ratio, 3)
        found["model alone", ""] = model_alone(model, rows, 2 * n_requests)
    return found


def main(quick):
    table = [("classes", "what", "bodies", "figure", "value")]
    right = True
    for n_classes, n_columns in MODELS[:1] if quick else MODELS:
        for (what, kind), figures in compare(5 if quick else 200, n_classes, n_columns).items():
            right &= not figures.get("errors")
            title = what if n_columns == MODELS[0][1] else f"{what}, {n_columns} columns"
            table += [(n_classes, title, kind, name, value) for name, value in figures.items()]
            print(n_classes, title, kind, figures, flush=True)
    if not quick:
        write("load", table)
    return 0 if right else 1
