"""SIGKILL under load, again and again: is every acknowledged row and label there, and none twice?

The service has two workers; each time one of the three processes is killed, drawn at random.
Predictions raise alarms, which are sent to a webhook. Afterwards the same requests are sent to a service
that nothing disturbs: both must have the same state, and must have sent the same changes of alarms.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

from baryflow import codec, load
from baryflow.alarms import AlarmConfig
from baryflow.client import Client
from baryflow.runtime import SessionConfig, Sessions, Store
from baryflow.service.worker_targets import store_names
from experiments.service.process import Serve, prepare, write
from tests.runtime.receiver import SECRET, Receiver

OPTIONS = ("--in-memory", 20, "--batch-size", 8, "--snapshot-every", 6)
N_WORKERS = 2


class Sender(threading.Thread):
    """Sends rows and labels of its targets in turn, and remembers what was acknowledged."""

    def __init__(self, url, names, rows, seed):
        super().__init__(daemon=True)
        self.url, self.rows, self.random = url, rows, random.Random(seed)
        self.sent = {name: [] for name in names}  # requests acknowledged
        self.n_rows, self.n_labels = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        self.repeated, self.wrong, self.stop = 0, 0, False

    def run(self):
        with Client(self.url, patience=7200) as client:
            while not self.stop:
                name = self.random.choice(list(self.sent))
                if self.n_rows[name] and self.random.random() < 0.5:
                    self.label(client, name)
                else:
                    self.send(client, name)

    def send(self, client, name):
        known, n = self.n_rows[name], self.random.randint(1, 16)
        request = ("rows", self.rows[known % 100 : known % 100 + n], f"{known}-{n}")
        answer = repeat(client, name, request)
        # At every moment: what was acknowledged is there, and nothing else.
        self.wrong += answer["last"] != known + n or answer["first"] != known + 1
        self.repeated += answer["repeated"]
        self.n_rows[name] = known + n
        self.sent[name].append(request)

    def label(self, client, name):
        known, n = self.n_rows[name], self.random.randint(1, 3)
        # Rows that the model has learned from, and rows that it has not; now and then a new class.
        positions = self.random.sample(range(max(1, known - 40), known + 1), min(n, known))
        names = [self.random.choice((0, 1, 2, 0, 1, 2, 7)) for _ in positions]
        random_rows, request_id = self.random.random() < 0.5, f"label-{len(self.sent[name])}"
        request = ("labels", names, positions, random_rows, request_id)
        answer = repeat(client, name, request)
        self.wrong += answer["learned"] + answer["pending"] != len(positions)
        self.repeated += answer["repeated"]
        self.n_labels[name] += len(positions)
        self.sent[name].append(request)


def repeat(client, name, request):
    kind, *content = request
    if kind == "rows":
        rows, batch_id = content
        return client.send(name, rows, times=["now"] * len(rows), batch_id=batch_id)
    names, positions, certify, request_id = content
    return client.label(name, names, positions=positions, certify=certify, request_id=request_id)


def serve_model(model, name, n_workers, receiver):
    """Start a service whose checkpoint has a name, and which sends alarms to a webhook."""
    config, secret = model.with_name("baryflow.toml"), model.with_name("secret")
    config.write_text("[alarms]\nnormal = ['0']\n")
    secret.write_text(SECRET)
    options = ("--checkpoint", model.with_name(name), *OPTIONS, "--workers", n_workers)
    alarms = ("--alarm-webhook", receiver.url, "--alarm-secret-file", secret)
    return Serve(model, *options, *alarms, config=config)


def sent_alarms(receiver):
    """Return the changes of alarms that a webhook has received, in the order of each target, once."""
    found = {(one["key"], one["sequence"]): one for one in receiver.messages}
    return [found[one] for one in sorted(found)]


def read_states(model, folder, n_workers):
    """Return everything that a service that has ended has saved of each target."""
    found = {}
    config = SessionConfig(load(model), 8, "report", alarms=AlarmConfig(normal=("0",)))
    for one in store_names(n_workers):
        with closing(Store(folder, name=one)) as store:
            for name in (sessions := Sessions(config, store)):
                values, arrays = codec.encode(sessions.read(name).state())
                bits = {key: array.tobytes() for key, array in arrays.items()}
                found[name] = json.dumps(values, sort_keys=True), bits
    return found


def main(quick):
    n_kills, n_targets = (3, 10) if quick else (30, 50)
    rng = random.Random(0)
    table = [
        (
            "kill", "process", "seconds_of_life", "snapshots", "seconds_to_restart", "replayed_batches",
            "rows", "labels",
        )
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, rows = prepare(folder, 3, 8)
        receivers = [stack.enter_context(Receiver()) for _ in range(2)]
        serve = stack.enter_context(serve_model(model, "killed", N_WORKERS, receivers[0]))
        names = [f"machine-{n:02d}" for n in range(n_targets)]
        senders = [Sender(serve.url, names[n::8], rows, n) for n in range(8)]
        for sender in senders:
            sender.start()
        for kill in range(1, n_kills + 1):
            life = 0.2 + 6.0 * rng.random()
            time.sleep(life)
            snapshots = int(serve.metrics()["baryflow_snapshots_total"])
            victim = rng.randrange(N_WORKERS + 1)
            os.kill(serve.processes()[victim], signal.SIGKILL)
            serve.process.wait()  # without a worker it ends by itself
            seconds = serve.start()
            replayed = int(serve.metrics()["baryflow_replayed_batches"])
            n_rows, n_labels = (
                sum(sum(getattr(sender, what).values()) for sender in senders)
                for what in ("n_rows", "n_labels")
            )
            process = "worker" if victim else "service"
            figures = (round(life, 2), snapshots, round(seconds, 2), replayed, n_rows, n_labels)
            table.append((kill, process, *figures))
            print(*table[-1], flush=True)
        for sender in senders:
            sender.stop = True
        for sender in senders:
            sender.join()
        serve.end(signal.SIGKILL)  # once more, with nobody waiting
        serve.start()
        with Client(serve.url) as client:
            seen = {line["name"]: (line["rows_seen"], line["n_labels"]) for line in client.targets()}
        serve.end()
        serve = stack.enter_context(serve_model(model, "undisturbed", 1, receivers[1]))
        sent = {name: requests for sender in senders for name, requests in sender.sent.items()}
        with Client(serve.url, patience=7200) as client:
            for name, requests in sent.items():
                for request in requests:
                    repeat(client, name, request)
        serve.end()
        states = [
            read_states(model, Path(folder) / name, n)
            for name, n in (("killed", N_WORKERS), ("undisturbed", 1))
        ]
    differ = sum(states[0].get(name) != states[1].get(name) for name in set(states[0]) | set(states[1]))
    alarms = [sent_alarms(receiver) for receiver in receivers]
    results = [("targets", len(seen))]
    for i, what in enumerate(("rows", "labels")):
        wanted = {k: n for sender in senders for k, n in getattr(sender, f"n_{what}").items()}
        lost = sum(max(0, n - seen.get(name, (0, 0))[i]) for name, n in wanted.items())
        twice = sum(max(0, n[i] - wanted[name]) for name, n in seen.items())
        results += [
            (what, sum(wanted.values())),
            (f"{what} lost", lost),
            (f"{what} counted twice", twice),
        ]
    wrong, repeated = (sum(getattr(s, what) for s in senders) for what in ("wrong", "repeated"))
    results += [
        ("answers that do not fit", wrong),
        ("batches sent again and counted once", repeated),
        ("targets whose state differs from that without kills", differ),
        ("changes of alarms", len(alarms[1])),
        ("changes of alarms that differ", sum(one not in alarms[1] for one in alarms[0])),
        ("changes of alarms lost", sum(one not in alarms[0] for one in alarms[1])),
    ]  # fmt: skip
    if not quick:
        write("kills", table + results)
    print(f"{n_kills} kills:", ", ".join(f"{name}: {n}" for name, n in results))
    bad = ("lost", "twice", "fit", "differ")
    return 1 if any(n for name, n in results if any(word in name for word in bad)) else 0
