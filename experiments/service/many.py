"""Two thousand targets: memory, disk, and whether all of them resume after a restart."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from baryflow.client import Client
from experiments.service.process import Serve, prepare, size, write

IN_MEMORY = 128


def main(quick):
    n_targets, n_rounds = (40, 3) if quick else (2000, 3)
    table = [("after", "targets", "memory_mb", "disk_mb", "files", "rows_per_second")]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, rows = prepare(folder, 3, 8)
        state = Path(folder) / "state"
        serve = stack.enter_context(Serve(model, "--checkpoint", state, "--in-memory", IN_MEMORY))
        names = [f"machine-{n:04d}" for n in range(n_targets)]

        def note(after, rate):
            memory = serve.metrics()["process_resident_memory_bytes"]
            files = len(list(state.glob("machines/*")))
            table.append((after, n_targets, round(memory / 1e6), round(size(state) / 1e6), files, rate))
            print(*table[-1], flush=True)

        with Client(serve.url) as client:

            def send(job):
                number, turn = job
                some = rows[(number + 32 * turn) % 100 :][:32]
                assert client.send(names[number], some)["last"] == 32 * (turn + 1)

            for turn in range(n_rounds):
                began = time.monotonic()
                with ThreadPoolExecutor(4) as pool:
                    list(pool.map(send, [(number, turn) for number in range(n_targets)]))
                note(f"round {turn + 1}", round(32 * n_targets / (time.monotonic() - began)))
            before = {line["name"]: line["rows_seen"] for line in client.targets()}
        serve.end()
        seconds = serve.start()
        with Client(serve.url) as client:
            after = {line["name"]: line["rows_seen"] for line in client.targets()}
            goes_on = client.send(names[0], rows[:8])["first"] == 32 * n_rounds + 1
        note(f"a restart in {seconds:.1f} s", "")
        serve.end()
    same = before == after == dict.fromkeys(names, 32 * n_rounds) and goes_on
    table.append(("all resume", "yes" if same else "no", "", "", "", ""))
    if not quick:
        write("many", table)
    print(f"{n_targets} targets; all resume: {'yes' if same else 'NO'}")
    return 0 if same else 1
