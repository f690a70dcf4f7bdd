"""Damage the store of a killed process at random places, and see what a restart makes of it.

``python -m experiments.kills.damage [--places 1000]`` has a loop receive, apply and commit batches, with
sessions, messages and an output file, starts it again in between, and kills its process by SIGKILL, both
after a number of batches drawn at random. This is done many times. Each time it damages copies of the
folder: one of the store's files is cut off, continued with zeros, overwritten with zeros for a while, or
has one bit flipped, at a place drawn at random. Then the loop is started again.

Either everything that was acknowledged is there, and the output is byte for byte that of a process that
was not killed; or the start says what is damaged, and leaves the folder as it is. Anything else is a
failure. A line for every place is appended to ``results/damage.csv``; a second call continues.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np

from baryflow.exceptions import BaryflowError
from baryflow.runtime import Loop, Store
from baryflow.runtime.store import Entry
from baryflow.streams import Batch, open_sink
from experiments import results

TABLE = Path(__file__).parent / "results" / "damage.csv"
FIELDS = ("place", "kill", "file", "damage", "offset", "size", "result")
KINDS = ("flip", "cut", "continue", "zeros")
OUTPUT = "records.ndjson"
TARGETS = "abcdefgh"
#: Places for each kill; batches between two commits, and of a life at most; bytes of a session.
PLACES, EVERY, LONGEST, BYTES = 20, 10, 100, 3000


def make_batch(number):
    rows = np.random.default_rng(number).normal(size=(16, 8))
    positions = np.arange(16 * number, 16 * number + 16)
    empty = [""] * 16
    return Batch(rows, positions, empty, empty, [], {"batch": number})


class Application:
    """Counts batches, writes their sums, sends messages, and has a session for every target."""

    owner = "damage"

    def __init__(self, folder):
        self.store, self.numbers = Store(folder / "checkpoint"), []
        self.sink = open_sink(folder / OUTPUT, resume=(folder / OUTPUT).exists())
        self.loop = Loop(self, self.store, {"records": self.sink})
        self.loop.recover()

    def close(self):
        self.sink.close()
        self.store.close()

    def add(self, number):
        (entry,) = self.loop.receive([Entry(make_batch(number))])  # now it is acknowledged
        self.loop.apply(entry)
        if number % EVERY == 0:
            target = TARGETS[number // EVERY % len(TARGETS)]
            with self.store.transaction():
                self.store.write_session(target, 1, number, "{}", session(target, number))
            self.loop.commit()

    def apply(self, entry):
        return {"batch": entry.batch.cursor["batch"], "sum": float(entry.batch.rows.sum())}

    def finish(self, entry, result):
        self.numbers.append(result["batch"])
        self.sink.write([result])
        for message in self.loop.post(entry, "alarms", [result]):
            self.loop.note(message, {"somebody"}, result["batch"] % 2 == 0)

    def state(self):
        return {"numbers": self.numbers}

    def restore(self, state):
        self.numbers = state["numbers"]


def session(target, number):
    return f"{target}{number} ".encode() * (BYTES // 4)


def kill(folder, n_before, n_batches):
    """Let a process receive some batches, let it close its files in between, and kill it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if not (pid := os.fork()):
        for first, last in ((1, n_before), (n_before + 1, n_batches)):
            application = Application(folder)
            for number in range(first, last + 1):
                application.add(number)
            application.loop.flush()
            if last == n_before:
                application.close()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def damage(path, kind, rng):
    """Damage a file, and return where."""
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(content))
    if kind == "flip":
        content[place] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del content[place:]
    elif kind == "continue":
        content += bytes(rng.randrange(1, 20_000))
    else:
        length = min(rng.randrange(1, 20_000), len(content) - place)
        content[place : place + length] = bytes(length)
    path.write_bytes(content)
    return place


def digest(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def expected(n_batches):
    """Return the numbers, lines and sessions that must be there after some batches."""
    found = Application.__new__(Application)
    lines = [found.apply(Entry(make_batch(number))) for number in range(1, n_batches + 1)]
    commits = range(EVERY, n_batches + 1, EVERY)
    sessions = {TARGETS[n // EVERY % len(TARGETS)]: n for n in commits}
    return [line["batch"] for line in lines], lines, {k: session(k, n) for k, n in sessions.items()}


def judge(folder, wanted):
    """Return what a restart makes of a damaged folder."""
    numbers, lines, sessions = wanted
    before = digest(folder)
    try:
        with closing(Application(folder)) as found:
            there = {target: found.store.read_session(target) for target in found.store.sessions}
            is_all = found.numbers == numbers and there == sessions
    except BaryflowError as error:
        if "cannot resume" not in str(error):
            return "UNCLEAR"
        changed = sorted({path for path, _ in set(digest(folder).items()) ^ set(before.items())})
        return "reported" if not changed else f"CHANGED {' '.join(changed)}"
    with closing(open_sink(folder.parent / OUTPUT)) as sink:
        sink.write(lines)
    is_all = is_all and (folder / OUTPUT).read_bytes() == (folder.parent / OUTPUT).read_bytes()
    return "recovered" if is_all else "WRONG"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--places", type=int, default=1000)
    options = parser.parse_args(arguments)
    done = len(results.read(TABLE)) if TABLE.exists() else 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        while done < options.places:
            number = done // PLACES
            rng = random.Random(number)
            n_before, n_batches = sorted(rng.sample(range(1, LONGEST + 1), 2))
            kill(folder / "killed", n_before, n_batches)
            wanted, rows = expected(n_batches), []
            while len(rows) < min(PLACES, options.places - done):
                shutil.rmtree(folder / "copy", ignore_errors=True)
                shutil.copytree(folder / "killed", folder / "copy")
                files = sorted((folder / "copy" / "checkpoint").iterdir())
                # The mark is small: most damage hits the other files.
                path = rng.choice([*files, *(one for one in files if one.suffix != ".mark")])
                kind, size = rng.choice(KINDS), path.stat().st_size
                offset = damage(path, kind, rng)
                result = judge(folder / "copy", wanted)
                rows.append((done + len(rows) + 1, number, path.name, kind, offset, size, result))
            done += len(rows)
            results.append(TABLE, FIELDS, [dict(zip(FIELDS, row, strict=True)) for row in rows])
    found = [row["result"] for row in results.read(TABLE)]
    counts = {one: found.count(one) for one in sorted(set(found))}
    print(", ".join(f"{n} {one}" for one, n in counts.items()))
    return 0 if counts.keys() <= {"recovered", "reported"} else 1


if __name__ == "__main__":
    sys.exit(main())
