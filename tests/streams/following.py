"""A run in a process of its own, which can be killed: ``python -m tests.streams.following``."""

import argparse
import contextlib
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
from baryflow.persistence import load
from baryflow.runtime import Checkpoint, Outputs, Runner
from baryflow.streams import open_sink, open_source
from baryflow.streams.addresses import read_credentials

ROOT = Path(__file__).parents[2]
COLUMNS = ["x0", "x1", "x2", "x3"]
FILES = {"predictions": "predictions.ndjson", "events": "events.ndjson", "quarantine": "bad.ndjson"}


def save_model(path):
    """Save a small model, and return rows for it."""
    problem = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=100, random_state=0)
    model = OnlineDaDiL(rehearse=False, keep_sources=False, random_state=0)
    model.fit(problem.X, problem.y, sample_domain=problem.domain)
    model.feature_names_in_ = np.array(COLUMNS, dtype=object)
    model.save(path)
    return problem.X_target


def make_record(rows, number):
    """Return row `number` as a message: its number is its time."""
    values = rows[number % len(rows)].tolist()
    return {"n": str(number), **dict(zip(COLUMNS, values, strict=True))}


class Follower:
    """A process that follows a URL from a checkpoint; it ends when it is told to, or killed."""

    def __init__(self, folder, url, environment, batch=8):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        (self.folder / "stop").unlink(missing_ok=True)
        self._before = self.journalled()
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with (self.folder / "words.txt").open("ab") as words:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(folder), url, "--batch", str(batch)],
                env=os.environ | one_thread | environment, cwd=ROOT, stderr=words,
            )  # fmt: skip

    def journalled(self):
        sizes = []
        for path in self.folder.glob("checkpoint/*.log"):
            with contextlib.suppress(FileNotFoundError):  # it may go while we look
                sizes.append((path.name, path.stat().st_size))
        return sorted(sizes)

    def wait_until_working(self, seconds=60.0):
        """Wait until something new is in the journal."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and self.journalled() == self._before:
            assert time.monotonic() < until, self.words()
            time.sleep(0.002)
        assert self.process.poll() is None, self.words()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        """Let it end in order."""
        (self.folder / "stop").touch()
        assert self.process.wait(timeout=60) == 0, self.words()

    def words(self):
        return (self.folder / "words.txt").read_text(errors="replace")

    def wait_for(self, count, seconds=40.0):
        """Wait until so many rows were read, whatever became of them."""
        until = time.monotonic() + seconds
        while (
            sum(count_lines(self.folder / FILES[name]) for name in ("predictions", "quarantine")) < count
        ):
            assert self.process.poll() is None, self.words()
            assert time.monotonic() < until, self.words()
            time.sleep(0.05)


def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def read_records(folder, name):
    return [json.loads(line) for line in (Path(folder) / FILES[name]).read_text().splitlines()]


def kill_again_and_again(follow, kills, seed=0, longest=0.6):
    """Kill runs at random moments, most of them at work; return the last one, which lives."""
    rng = random.Random(seed)
    for _ in range(kills):
        one = follow()
        if rng.random() < 0.9:
            one.wait_until_working()
        time.sleep(rng.random() * longest)
        one.kill()
    return follow()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("url")
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    folder = options.folder
    checkpoint = Checkpoint(folder / "checkpoint")
    sinks = [open_sink(folder / name, resume=not checkpoint.is_new) for name in FILES.values()]
    source = open_source(
        options.url, columns=COLUMNS, time="n", idle=0.1, credentials=read_credentials()
    )
    runner = Runner(
        load(folder.parent / "model.bary"), source, Outputs(*sinks),
        batch_size=options.batch, timeout=0.2, checkpoint=checkpoint, every=16,
    )  # fmt: skip
    with contextlib.closing(source), contextlib.closing(checkpoint):
        runner.run(stop=(folder / "stop").exists)
        for sink in sinks:
            sink.close()


if __name__ == "__main__":
    main()
