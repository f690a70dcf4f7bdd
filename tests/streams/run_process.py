"""``baryflow run`` in a process of its own, which can be killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from baryflow.datasets import make_domains
from baryflow.estimators.online_dadil import OnlineDaDiL
from tests.runtime.ends import transactions
from tests.waiting import ask_to_end, wait_until

ROOT = Path(__file__).parents[2]
COLUMNS = ["x0", "x1", "x2", "x3"]
FILES = {"predictions": "predictions.ndjson", "events": "events.ndjson", "quarantine": "bad.ndjson"}


def save_model(path):
    """Save a small model, and return rows for it."""
    problem = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=100, random_state=0)
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(problem.X, problem.y, sample_domain=problem.domain)
    model.feature_names_in_ = np.array(COLUMNS, dtype=object)
    model.save(path)
    return problem.X_target


def make_record(rows, number):
    """Return row `number` as a message: its number is its time."""
    values = rows[number % len(rows)].tolist()
    return {"n": str(number), **dict(zip(COLUMNS, values, strict=True))}


class RunProcess:
    """``baryflow run`` on a URL, with a checkpoint; a context manager that kills it at the end."""

    def __init__(self, folder, url, environment, *options):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self._before = self.journalled()
        outputs = zip(("-o", "--events", "--quarantine"), FILES.values(), strict=True)
        arguments = [one for option, name in outputs for one in (option, str(self.folder / name))]
        arguments += [
            "--checkpoint",
            str(self.folder / "checkpoint"),
            "--max-latency",
            "200ms",
            *options,
        ]
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        model = str(self.folder.parent / "model.bary")
        with (self.folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "baryflow", "run", model, url, *arguments],
                env=os.environ | one_thread | environment, stderr=output,
            )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()

    def journalled(self):
        return transactions(self.folder / "checkpoint")

    def wait_until_working(self):
        """Wait until something new is in the journal."""
        wait_until(
            lambda: self.process.poll() is not None or self.journalled() > self._before + 4,
            self.output,
            step=0.002,
        )
        assert self.process.poll() is None, self.output()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        """Ask it to end, and wait."""
        ask_to_end(self.process)
        assert self.process.wait(timeout=300) == 0, self.output()

    def output(self):
        return (self.folder / "output.txt").read_text(errors="replace")

    def wait_for(self, count):
        """Wait until this many rows were predicted or quarantined."""

        def read():
            assert self.process.poll() is None, self.output()
            return sum(count_lines(self.folder / FILES[name]) for name in ("predictions", "quarantine"))

        wait_until(lambda: read() >= count, self.output, step=0.05)


def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def read_records(folder, name):
    return [json.loads(line) for line in (Path(folder) / FILES[name]).read_text().splitlines()]


def kill_again_and_again(follow, kills, seed=0, longest=0.6):
    """Kill runs at random moments, most of them while they work."""
    rng = random.Random(seed)
    for _ in range(kills):
        with follow() as one:
            if rng.random() < 0.9:
                one.wait_until_working()
            time.sleep(rng.random() * longest)
            one.kill()


def mutate(payload, rng):
    """Return a damaged payload."""
    data = bytearray(payload)
    kind = rng.randrange(7)
    if kind == 0:
        data = data[: rng.randrange(len(data))]
    elif kind == 1:
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 2:
        at = rng.randrange(len(data))
        data[at:at] = rng.randbytes(rng.randrange(1, 20))
    elif kind == 3:
        data = bytearray(rng.randbytes(rng.randrange(200)))
    elif kind == 4:
        data = data.replace(b"x1", rng.choice([b"x9", b"", b"x0", b"\xff", b"x1\\u0000"]))
    elif kind == 5:
        odd = [b"1e999", b"NaN", b"-Infinity", b"[1]", b"{}", b'"off"', b"null", b"true", b"9" * 400]
        data[data.index(b": ", 10) + 2 : data.index(b", ", 12)] = rng.choice(odd)
    else:
        data = bytearray(
            rng.choice([b"", b"[]", b"[" * 5000, b"0", b'""', b"{}", b"\0", bytes(300_000)])
        )
    return bytes(data)
