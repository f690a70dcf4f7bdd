"""The real command in a process of its own, at the same address in every life."""

from __future__ import annotations

import csv
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

RESULTS = Path(__file__).parent / "results"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def prepare(folder, n_classes, n_features, n_per_class=60):
    """Fit a model and return its file and rows of a target."""
    problem = make_domains(
        n_sources=3, n_classes=n_classes, n_features=n_features, n_per_class=n_per_class, random_state=0
    )
    model = OnlineDaDiL(validate=False, keep_sources=False, random_state=0)
    model.fit(problem.X, problem.y, sample_domain=problem.domain)
    path = Path(folder) / "model.bary"
    model.save(path)
    return path, problem.X_target


class Serve:
    """``baryflow serve``, or another command that listens."""

    def __init__(self, *arguments, module="baryflow", log=os.devnull, descriptors=None, config=None):
        self._log, self._descriptors = log, descriptors
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        verb = ["serve"] if module == "baryflow" else []
        if config is not None:
            verb = ["--config", str(config), *verb]
        self._command = [
            sys.executable, "-m", module, *verb, *map(str, arguments), "--port", str(self.port),
        ]  # fmt: skip
        self.start()

    def start(self):
        began = time.monotonic()
        command = self._command
        if self._descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {self._descriptors}; exec "$@"', "sh", *command]
        with Path(self._log).open("ab") as log:
            self.process = subprocess.Popen(command, env=ENVIRONMENT, stderr=log)
        while True:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                assert self.process.poll() is None, "it ended"
            time.sleep(0.02)
        return time.monotonic() - began

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end(signal.SIGKILL)

    def processes(self):
        """Return the ids of the service and of its workers."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [self.process.pid, *map(int, path.read_text().split())]

    def cpu(self):
        """Return the seconds of processor time of all processes so far."""
        total = 0
        for pid in self.processes():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Return the memory of all processes in MB; what they share is counted once."""
        texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.processes()]
        return round(sum(int(re.search(r"^Pss: +(\d+)", text, re.M)[1]) for text in texts) / 1e3)

    def metrics(self):
        text = httpx.get(f"{self.url}/metrics", trust_env=False).text
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in text.splitlines() if line[0] != "#")
        }


def size(folder):
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def write(name, rows):
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
