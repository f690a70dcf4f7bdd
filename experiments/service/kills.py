"""SIGKILL under load, again and again: is every acknowledged row there, and none twice?"""

from __future__ import annotations

import random
import signal
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from baryflow.client import Client
from experiments.service.process import Serve, prepare, write


class Sender(threading.Thread):
    """Sends batches of rows to its targets in turn, and remembers what was acknowledged."""

    def __init__(self, url, names, rows, seed):
        super().__init__(daemon=True)
        self.url, self.rows, self.random = url, rows, random.Random(seed)
        self.sent = dict.fromkeys(names, 0)  # rows acknowledged
        self.repeated, self.wrong, self.stop = 0, 0, False

    def run(self):
        with Client(self.url, patience=300) as client:
            while not self.stop:
                name = self.random.choice(list(self.sent))
                known, n = self.sent[name], self.random.randint(1, 16)
                rows = self.rows[known % 100 : known % 100 + n]
                answer = client.send(name, rows, batch_id=f"{known}-{n}")
                # At every moment: what was acknowledged is there, and nothing else.
                self.wrong += answer["last"] != known + n or answer["first"] != known + 1
                self.repeated += answer["repeated"]
                self.sent[name] = known + n


def main(quick):
    n_kills, n_targets = (3, 10) if quick else (30, 50)
    rng = random.Random(0)
    table = [
        ("kill", "seconds_of_life", "snapshots", "seconds_to_restart", "replayed_batches", "rows"),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, rows = prepare(folder, 3, 8)
        state = Path(folder) / "state"
        options = ("--checkpoint", state, "--in-memory", 20, "--batch-size", 8, "--snapshot-every", 12)
        serve = stack.enter_context(Serve(model, *options))
        names = [f"machine-{n:02d}" for n in range(n_targets)]
        senders = [Sender(serve.url, names[n::8], rows, n) for n in range(8)]
        for sender in senders:
            sender.start()
        for kill in range(1, n_kills + 1):
            life = 0.2 + 3.0 * rng.random()
            time.sleep(life)
            snapshots = int(serve.metrics()["baryflow_snapshots_total"])
            serve.end(signal.SIGKILL)
            seconds = serve.start()
            replayed = int(serve.metrics()["baryflow_replayed_batches"])
            total = sum(sum(sender.sent.values()) for sender in senders)
            table.append((kill, round(life, 2), snapshots, round(seconds, 2), replayed, total))
            print(*table[-1], flush=True)
        for sender in senders:
            sender.stop = True
        for sender in senders:
            sender.join()
        serve.end(signal.SIGKILL)  # once more, with nobody waiting
        serve.start()
        with Client(serve.url) as client:
            seen = {line["name"]: line["rows_seen"] for line in client.targets()}
        serve.end()
    sent = {name: n for sender in senders for name, n in sender.sent.items() if n}
    lost = sum(max(0, n - seen.get(name, 0)) for name, n in sent.items())
    twice = sum(max(0, n - sent.get(name, 0)) for name, n in seen.items())
    wrong, repeated = (sum(getattr(s, what) for s in senders) for what in ("wrong", "repeated"))
    table += [
        ("targets", len(seen)),
        ("rows lost", lost),
        ("rows counted twice", twice),
        ("answers that do not fit", wrong),
        ("batches sent again and counted once", repeated),
    ]  # fmt: skip
    if not quick:
        write("kills", table)
    print(
        f"{n_kills} kills, {sum(sent.values())} rows: {lost} lost, {twice} twice, {wrong} wrong answers"
    )
    return 1 if lost or twice or wrong else 0
