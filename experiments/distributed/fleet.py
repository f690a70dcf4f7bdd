"""Two thousand targets on Dask against a plain loop, what shared files cost, and kills.

``python -m experiments.distributed.fleet`` follows 2,000 targets of 20 batches of 32 rows, each target a
Parquet file of its own:

- in a plain loop in one process: read the file, ``spawn()``, for each batch ``predict_proba`` and
  ``novelty``, then ``partial_fit``; write the predictions as Parquet, with the same columns. No state is
  kept, and nothing is synced to the disk. The line "only computing" is the same loop without the
  time that reading and writing took;
- with ``baryflow.distributed.backfill`` on one and on two worker processes: the same, and a state of
  every target. The time includes listing the files, but not starting the cluster.

Then all targets share files: what does it cost to count and to read their rows? Loop and worker also
alternate, forty targets each time, for computers that are not idle. Finally, workers are killed
(SIGKILL) three times and the caller once, with fewer targets.

Results are written to ``results/fleet.csv`` as soon as they are measured, and are not measured again
unless it is called with ``--again``.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.distributed import backfill
from baryflow.distributed.cluster import connect
from baryflow.distributed.files import Files
from baryflow.distributed.manifest import encode_targets
from baryflow.distributed.output import BackfillPlan, Job
from baryflow.distributed.parquet import Folder
from baryflow.distributed.targets import Target, read_slices

RESULTS = Path(__file__).parent / "results" / "fleet.csv"
HEADER = ("what", "targets", "rows", "seconds", "cpu_seconds", "rows_per_second", "per_core", "result")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
BATCH, BATCHES, COLUMNS = 32, 20, [f"x{j}" for j in range(8)]
PLAIN, COMPUTING = "plain loop", "plain loop, only computing"
TURNS = "in turns, 1 worker and the plain loop"
SHARED = "shared files: count whose rows they are"
SEED = 0


def prepare(folder, n_targets):
    """Fit a model and write the rows of each target, with sensor offsets of its own."""
    problem = make_domains(n_sources=3, n_classes=3, n_features=8, n_per_class=60, random_state=SEED)
    model = OnlineDaDiL(validate=False, keep_sources=False, random_state=SEED)
    model.fit(problem.X, problem.y, sample_domain=problem.domain)
    model.feature_names_in_ = np.array(COLUMNS, dtype=object)
    rng = np.random.default_rng(SEED)
    for number in range(n_targets):
        rows = problem.X_target[rng.integers(len(problem.X_target), size=BATCH * BATCHES)]
        rows = rows + 0.3 * rng.normal(size=8)
        path = folder / f"pump={number:04d}" / "rows.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table(dict(zip(COLUMNS, rows.T, strict=True))), path)
    return model


def plain(model, source, target):
    """Follow all targets in turn; return the seconds it took to compute."""
    computing = 0.0
    for path in sorted(source.glob("*/rows.parquet")):
        X = np.column_stack(list(pq.ParquetFile(path).read().to_pydict().values()))
        start = time.perf_counter()
        adapted = model.spawn()
        del adapted.feature_names_in_  # rows are arrays
        columns = {name: [] for name in ("label", "probability", "reliability", "novelty", "rows_seen")}
        for first in range(0, len(X), BATCH):
            rows = X[first : first + BATCH]
            chances, novelty = adapted.predict_proba(rows), adapted.novelty(rows)
            columns["label"] += model.classes_[chances.argmax(axis=1)].tolist()
            columns["probability"] += chances.max(axis=1).tolist()
            columns["novelty"] += novelty.tolist()
            columns["reliability"] += [adapted.reliability_] * len(rows)
            columns["rows_seen"] += [adapted.n_samples_seen_] * len(rows)
            adapted.partial_fit(rows)
        computing += time.perf_counter() - start
        key = path.parent.name.partition("=")[2]
        more = {"key": [key] * len(X), "position": range(1, len(X) + 1), "time": [""] * len(X)}
        content = io.BytesIO()
        pq.write_table(
            pa.table({name: pa.array(list(v)) for name, v in (more | columns).items()}), content
        )
        (target / path.parent.name).mkdir(parents=True)
        (target / path.parent.name / "000000.parquet").write_bytes(content.getvalue())
    return computing


def measure_plain(model, source, folder, n_rows, n_targets):
    start, cpu = time.perf_counter(), time.process_time()
    computing = plain(model, source, folder / "plain")
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    yield line(PLAIN, n_targets, n_rows, seconds, cpu, 1)
    yield line(COMPUTING, n_targets, n_rows, computing, "", 1)


def measure_workers(model, source, folder, n_rows, n_targets, n_workers, given=None):
    with connect("local", n_workers) if given is None else nullcontext(given) as client:
        before = sum(client.run(time.process_time).values())
        start, cpu = time.perf_counter(), time.process_time()
        found = backfill(
            model, source, key="pump", output=folder / f"out{n_workers}",
            state=folder / f"state{n_workers}", batch_size=BATCH, client=client,
        )  # fmt: skip
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        cpu += sum(client.run(time.process_time).values()) - before
    assert found.predicted == n_rows, found
    yield line(
        "1 worker" if n_workers == 1 else f"{n_workers} workers",
        n_targets,
        n_rows,
        seconds,
        cpu,
        n_workers,
    )


def measure_turns(model, folder, rounds=5, n_targets=40):
    """Alternate the loop and one worker, so that other load on the computer affects both."""
    n_rows, shares, times = n_targets * BATCH * BATCHES, [], []
    some = folder / "some"
    some.mkdir()
    for path in sorted((folder / "in").iterdir())[:n_targets]:
        shutil.copytree(path, some / path.name)
    with connect("local", 1) as client:
        for turn in range(rounds + 1):
            loop = next(measure_plain(model, some, folder / f"turn{turn}", n_rows, n_targets))
            dask = next(
                measure_workers(model, some, folder / f"turn{turn}", n_rows, n_targets, 1, client)
            )
            if turn:  # the first round includes imports
                shares.append(dask[6] / loop[6])
                times.append(loop[4] / dask[4])
    words = (
        f"per core {np.median(shares):.2f} of the plain loop by the clock ({min(shares):.2f} to "
        f"{max(shares):.2f}), {np.median(times):.2f} by processor time ({min(times):.2f} to "
        f"{max(times):.2f})"
    )
    yield (TURNS, n_targets, n_rows * rounds, "", "", "", "", words)


def measure_shared(source, folder, n_rows, n_targets):
    """Measure what it costs to read files that all targets share."""
    shared = folder / "shared"
    shared.mkdir()
    paths = sorted(source.glob("*/rows.parquet"))
    tables = [pq.ParquetFile(path).read() for path in paths]
    size = BATCH * BATCHES
    for n, first in enumerate(range(0, size, 32)):  # 32 rows of every target in a file
        order = np.arange(len(tables) * 32).reshape(len(tables), 32).T.ravel()
        keys = pa.array(np.repeat([path.parent.name.removeprefix("pump=") for path in paths], 32))
        some = pa.concat_tables(table.slice(first, 32) for table in tables).append_column("pump", keys)
        pq.write_table(some.take(order), shared / f"part-{n}.parquet")
    opened = Folder.open(str(shared))
    start = time.perf_counter()
    for partition in opened.partitions:
        for batch in opened.batches(partition, ["pump"]):
            names, codes = encode_targets(batch.column(0))
            np.bincount(codes, minlength=len(names))
    yield line(SHARED, n_targets, n_rows, time.perf_counter() - start, "", 1)
    plan = BackfillPlan(str(shared), "", "pump", None, COLUMNS, BATCH, "off", 2048)
    job = Job(plan, *[Files(str(folder))] * 3)
    for words, every in (("a sixth", 6), ("a hundredth", 100)):
        names = [path.parent.name.removeprefix("pump=") for path in paths[::every]]
        mine = {name: Target(job, name, [size]) for name in names}
        start, seen, read = time.perf_counter(), dict.fromkeys(mine, 0), []
        for partition in opened.partitions:
            read += read_slices(opened, partition, 0, plan, mine, seen)
        assert set(seen.values()) == {size}
        seconds = time.perf_counter() - start
        yield line(f"shared files: read for {words} of the targets", n_targets, n_rows, seconds, "", 1)


def command(model, source, folder):
    where = ["-o", str(folder / "out"), "--checkpoint", str(folder / "state")]
    how = ["--dask", "local", "--workers", "2", "--key", "pump", "--drift", "off"]
    return [sys.executable, "-m", "baryflow", "backfill", str(model), str(source), *how, *where]


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def n_states(folder):
    return sum(1 for _ in (folder / "state/targets").glob("*/*.bary"))


def workers_of(process):
    found = psutil.Process(process.pid).children(recursive=True)
    return [one for one in found if "spawn_main" in " ".join(one.cmdline())]


def measure_kills(model, folder, n_targets):
    model.save(folder / "model.bary")
    few = folder / "few"
    few.mkdir()
    for path in sorted((folder / "in").iterdir())[:n_targets]:
        shutil.copytree(path, few / path.name)
    calm, wild, dice = folder / "calm", folder / "wild", random.Random(SEED)
    quiet = {"env": ENVIRONMENT, "stderr": subprocess.DEVNULL}
    start = time.perf_counter()
    subprocess.run(command(folder / "model.bary", few, calm), check=True, **quiet)
    undisturbed = time.perf_counter() - start
    start, killed = time.perf_counter(), 0
    process = subprocess.Popen(command(folder / "model.bary", few, wild), **quiet)
    marks = [n_targets * share // 5 for share in (1, 2, 3, 4)]
    for mark in marks:
        while n_states(wild) < mark:
            assert process.poll() is None, "it ended"
            time.sleep(0.02)
        if mark == marks[-1]:
            process.kill()
            process.wait()
        else:
            dice.choice(workers_of(process)).send_signal(signal.SIGKILL)
            killed += 1
    left = n_targets - n_states(wild)
    subprocess.run(command(folder / "model.bary", few, wild), check=True, **quiet)
    seconds = time.perf_counter() - start
    same = content(calm / "out") == content(wild / "out")
    same &= content(calm / "state/targets") == content(wild / "state/targets")
    words = (
        f"{killed} workers and the caller killed ({left} targets were left); undisturbed it takes "
        f"{undisturbed:.0f} s; {'same bytes' if same else 'OTHER BYTES'}"
    )
    rows = n_targets * BATCH * BATCHES
    yield ("kills", n_targets, rows, round(seconds, 1), "", "", "", words)


def line(what, n_targets, n_rows, seconds, cpu, n_cores):
    rate = n_rows / seconds
    cpu = cpu if cpu == "" else round(cpu, 1)
    return (what, n_targets, n_rows, round(seconds, 2), cpu, round(rate), round(rate / n_cores), "")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=2000)
    parser.add_argument("--kill-targets", type=int, default=100)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args(arguments)
    full = options.targets == 2000
    known = {}
    if full and RESULTS.is_file() and not options.again:
        with RESULTS.open(newline="") as file:
            known = {row[0]: tuple(row) for row in list(csv.reader(file))[1:]}
    with tempfile.TemporaryDirectory() as name:
        folder, n = Path(name), options.targets
        source, n_rows = folder / "in", n * BATCH * BATCHES
        model = prepare(source, n)
        parts = {
            PLAIN: lambda: measure_plain(model, source, folder, n_rows, n),
            "2 workers": lambda: measure_workers(model, source, folder, n_rows, n, 2),
            TURNS: lambda: measure_turns(model, folder, n_targets=min(n, 40)),
            "kills": lambda: measure_kills(model, folder, min(n, options.kill_targets)),
            SHARED: lambda: measure_shared(source, folder, n_rows, n),
            "1 worker": lambda: measure_workers(model, source, folder, n_rows, n, 1),
        }
        for part, measure in parts.items():
            if part not in known:
                for found in measure():
                    known[found[0]] = found
                    print(*found, sep="  ", flush=True)
                    if full:
                        write(known)
    good = str(known["kills"][7]).endswith("same bytes")
    for name in ("1 worker", "2 workers"):
        share = float(known[name][6]) / float(known[PLAIN][6])
        # On a busy computer, CPU time is more meaningful than wall-clock time.
        work = float(known[PLAIN][4]) / float(known[name][4])
        print(f"{name}: per core {share:.2f} of the plain loop, {work:.2f} by processor time; bar: 0.80")
        good &= share >= 0.8
    return 0 if good else 1


def write(known):
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *known.values()])


if __name__ == "__main__":
    sys.exit(main())
