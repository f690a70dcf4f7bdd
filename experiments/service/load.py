"""Eight clients at once, and the same bodies sent to an application that only sends them back."""

from __future__ import annotations

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
from experiments.service.process import Serve, prepare, write

N_ROWS, N_COLUMNS, N_CLIENTS, N_TARGETS = 32, 128, 8, 20


class Sender(threading.Thread):
    """Sends its bodies one after the other, and notes how long each took."""

    def __init__(self, url, bodies, number):
        super().__init__()
        self.url, self.bodies, self.number = url, bodies, number
        self.seconds, self.errors = [], 0

    def run(self):
        headers = {"Content-Type": "application/json"}
        with httpx.Client(base_url=self.url, timeout=120, trust_env=False) as client:
            for n, body in enumerate(self.bodies):
                path = f"/v1/targets/machine-{(self.number + n) % N_TARGETS}/rows"
                began = time.perf_counter()
                answer = client.post(path, content=body, headers=headers)
                self.seconds.append(time.perf_counter() - began)
                self.errors += answer.status_code != 200


def measure(url, bodies):
    """Return rows per second, half-way and 99% of the times, and errors."""
    senders = [Sender(url, some, number) for number, some in enumerate(bodies)]
    began = time.perf_counter()
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    took = time.perf_counter() - began
    seconds = np.concatenate([sender.seconds for sender in senders])
    p50, p99 = np.quantile(seconds, [0.5, 0.99])
    return {
        "rows_per_second": round(N_ROWS * len(seconds) / took, 1),
        "p50_ms": round(float(1e3 * p50), 1),
        "p99_ms": round(float(1e3 * p99), 1),
        "requests": len(seconds),
        "errors": sum(sender.errors for sender in senders),
    }


def make_bodies(rows, n_requests):
    """Return the bodies of each client; each batch has an id of its own."""
    found = []
    for client in range(N_CLIENTS):
        mine = []
        for n in range(n_requests):
            some = rows[(np.arange(N_ROWS) + N_ROWS * (client + 3 * n)) % len(rows)]
            mine.append(json.dumps({"rows": some.tolist(), "batch_id": f"{client}-{n}"}).encode())
        found.append(mine)
    return found


def model_alone(path, rows, n_batches):
    """Return rows per second of the models themselves, one after the other, without a service."""
    config = SessionConfig(load(path), N_ROWS, "report")
    machines = [config.begin() for _ in range(N_TARGETS)]
    began = time.perf_counter()
    with threadpool_limits(limits=1):
        for n in range(n_batches):
            some = rows[(np.arange(N_ROWS) + N_ROWS * n) % len(rows)]
            machines[n % N_TARGETS].take(Rows(some, np.arange(N_ROWS), [""] * N_ROWS, [""] * N_ROWS))
    return {"rows_per_second": round(N_ROWS * n_batches / (time.perf_counter() - began), 1)}


def compare(n_requests, n_classes):
    """Return what was measured of the echo, of the models alone and of the service."""
    with tempfile.TemporaryDirectory() as folder:
        model, rows = prepare(folder, n_classes, N_COLUMNS)
        bodies = make_bodies(rows, n_requests)
        with Serve(module="experiments.service.echo") as echo:
            measure(echo.url, [some[:5] for some in bodies])  # warm up
            found = {"echo": measure(echo.url, bodies)}
        found["model alone"] = model_alone(model, rows, 2 * n_requests)
        with Serve(model, "--checkpoint", Path(folder) / "state") as serve:
            found["service"] = measure(serve.url, bodies)
            metrics = serve.metrics()
            serve.end()
        found["service"]["batches_per_fsync"] = round(
            metrics["baryflow_log_batches_total"] / metrics["baryflow_log_commits_total"], 2
        )
        found["service"]["memory_mb"] = round(metrics["process_resident_memory_bytes"] / 1e6)
        found["rows"] = int(metrics["baryflow_rows_total"])
    return found


def main(quick):
    table = [("classes", "what", "figure", "value")]
    right = True
    for n_classes in (3,) if quick else (3, 29):
        found = compare(5 if quick else 200, n_classes)
        right &= found["rows"] == found["service"]["requests"] * N_ROWS
        for what in ("echo", "model alone", "service"):
            right &= not found[what].get("errors")
            table += [(n_classes, what, name, value) for name, value in found[what].items()]
            print(n_classes, what, found[what], flush=True)
    if not quick:
        write("load", table)
    return 0 if right else 1
