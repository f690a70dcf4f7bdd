"""Is drift found, how soon, and how often is it seen where there is none?

``python -m experiments.drift`` plays targets that do not change, and targets that turn into another
domain, on made domains and on the Tennessee Eastman plant (``--data FOLDER`` adds the gas sensors); it
writes ``results/drift.csv`` and the tables of ``docs/drift.md``. It can be stopped and goes on where it
was. river's detectors take part if river is installed; they get the same ranks.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import warnings
from functools import cache
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import load_tep, make_domains
from baryflow.drift import BettingDetector, DriftMonitor, calibrate
from baryflow.drift.monitor import FALSE_ALARM_EVERY
from baryflow.drift.ranking import SIGNALS
from baryflow.estimators._orders import stream_order
from benchmarks import pages

RESULTS = Path(__file__).parent / "results" / "drift.csv"
FIELDS = ("set", "seed", "order", "stream", "detector", "rows", "alarms", "delay")
ORDERS = ("shuffled", "runs", "class")
STREAMS = ("stationary", "changing")
SETS = ("made", "tep", "gas")
#: Rows of the target before it changes, and rows after.
BEFORE, AFTER = 1250, 200
#: A change must be found within so many rows.
SOON = 200
BATCH = 64
SEEDS = range(10)
DETECTORS = ("ours", "ours, not calibrated", "ADWIN", "PageHinkley")


class Recorder:
    """A detector that never sounds and remembers what it was given, and when."""

    drift_detected = False

    def __init__(self):
        self.ranks = []

    def update(self, x):
        self.ranks.append(x)


@cache
def problem(name, seed, folder, rows):
    """Return a fitted model, its calibration, a target and other domains, each as rows and classes."""
    if name == "made":
        p = make_domains(n_per_class=rows // 8, random_state=seed)
        rng = np.random.default_rng(seed)
        taught = rng.permuted(np.arange(len(p.y)))[: min(3200, len(p.y) // 2)]
        X, y, domain, target = p.X, p.y, p.domain, (p.X_target, p.y_target)
    elif name == "tep":
        whole = load_tep()
        X, y, domain = whole.X.astype(np.float64), whole.y, whole.domain
        target = X[whole.is_target], y[whole.is_target]
        taught = np.flatnonzero(~whole.is_target & (whole.run % 5 > 0))
        domain = np.where(whole.is_target, 0, domain)
    else:
        data = np.load(next(Path(folder).rglob("gas_drift8.npz")))
        X, y, domain = data["X"].astype(np.float64), data["y"], data["domain"] + 1
        mine = domain == 6  # the one with the most rows
        target = X[mine], y[mine]
        rng = np.random.default_rng(seed)
        taught = np.flatnonzero(~mine & (rng.random(len(y)) < 0.5))
        domain = np.where(mine, 0, domain)
    # Not validated: the weights of experts do not matter here.
    model = OnlineDaDiL(validate=False, random_state=0).fit(
        X[taught], y[taught], sample_domain=domain[taught]
    )
    left = np.setdiff1d(np.flatnonzero(domain > 0), taught)
    others = [left[domain[left] == number] for number in np.unique(domain[left])]
    others = [(X[some], y[some]) for some in others if len(some) >= AFTER]
    return model, calibrate(model, batch_size=BATCH), target, others


def flow(model, X):
    """Let rows flow; return the ranks of each signal, a NaN where there is none, from the first on."""
    twin = model.spawn().forget()
    recorders = {name: Recorder() for name in SIGNALS}
    monitor = DriftMonitor(twin, detectors=recorders)
    table = np.full((len(X), len(SIGNALS)), np.nan)
    for start in range(0, len(X), BATCH):
        batch = X[start : start + BATCH]
        for recorder in recorders.values():
            recorder.ranks.clear()
        skipped = monitor._watch._state.until_next
        monitor.update(batch)
        twin.partial_fit(batch)
        found = len(recorders["likelihood"].ranks)
        first = start + len(batch) - found  # those that come first may only say of what size signals are
        for column, name in enumerate(SIGNALS[:-1]):
            table[first : start + len(batch), column] = recorders[name].ranks
        for number, rank in enumerate(recorders["proportions"].ranks):
            table[first + skipped + number * monitor._watch.stride, -1] = rank
    return table


def detectors_of(kind, calibration):
    factors = calibration.factors if kind == "ours" else {}
    if kind.startswith("ours"):
        every = FALSE_ALARM_EVERY * len(SIGNALS)
        return [BettingDetector(every * factors.get(name, 1.0)) for name in SIGNALS]
    from river import drift

    return [getattr(drift, kind)() for _ in SIGNALS]


def count(table, detectors, begin):
    """Return the rows watched before `begin`, alarms among them, and the delay of the first after it."""
    alarms, delay = 0, None
    for number, row in enumerate(table):
        sounds = False
        for x, detector in zip(row, detectors, strict=True):
            if not np.isnan(x):
                detector.update(float(x))
                sounds |= detector.drift_detected
        if sounds and number < begin:
            alarms += 1
        elif sounds:
            delay = number - begin + 1
            break
    return int((~np.isnan(table[:begin, 0])).sum()), alarms, delay


def play(name, seed, order, stream, options):
    model, calibration, (X, y), others = problem(
        name, 0 if name == "tep" else seed, options.data, options.rows
    )
    rng = np.random.default_rng([seed, ORDERS.index(order)])
    turn = stream_order(y, order, rng)
    begin, rows = len(turn), X[turn]
    if stream == "changing":
        Z, z = others[seed % len(others)]
        begin = min(BEFORE, len(turn))
        rows = np.concatenate([rows[:begin], Z[stream_order(z, order, rng)[:AFTER]]])
    table = flow(model, rows)
    for kind in options.detectors:
        watched, alarms, delay = count(table, detectors_of(kind, calibration), begin)
        yield name, seed, order, stream, kind, watched, alarms, "" if delay is None else delay


def read(path=RESULTS):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows, stream):
    heads = {
        "stationary": "| set | order | detector | rows watched | false alarms | in 10,000 rows |",
        "changing": f"| set | order | detector | found within {SOON} rows | median delay | longest |",
    }
    lines = [heads[stream], "|---|---|---|---:|---:|---:|"]
    keys = dict.fromkeys((r["set"], r["order"], r["detector"]) for r in rows)
    for key in sorted(keys, key=_place):
        some = [r for r in rows if (r["set"], r["order"], r["detector"], r["stream"]) == (*key, stream)]
        if not some:
            continue
        if stream == "stationary":
            n, alarms = (sum(int(r[f]) for r in some) for f in ("rows", "alarms"))
            figures = f"{n:,} | {alarms} | {1e4 * alarms / n:.2f}"
        else:
            found = [int(r["delay"]) for r in some if r["delay"] and int(r["delay"]) <= SOON]
            late = f"{np.median(found):.0f} | {max(found)}" if found else "– | –"
            figures = f"{len(found)} of {len(some)} | {late}"
        lines.append(f"| {' | '.join(key)} | {figures} |")
    return "\n".join(lines)


def _place(key):
    return tuple(names.index(name) for names, name in zip((SETS, ORDERS, DETECTORS), key, strict=True))


def river_is_there():
    try:
        import river.drift  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    parser.add_argument("--sets", nargs="+", choices=SETS)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--rows", type=int, default=6_000, help="of a made target")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="only make the tables again")
    options = parser.parse_args(arguments)
    options.detectors = DETECTORS if river_is_there() else DETECTORS[:2]
    warnings.simplefilter("ignore")  # of columns that hardly vary in one of the domains
    if not options.tables:
        run(options)
    rows = read(options.results)
    for stream in STREAMS:
        made = table(rows, stream)
        if options.results == RESULTS:
            pages.fill("docs/drift.md", stream, made)
        print(made, end="\n\n")
    return 0


def run(options):
    path = options.results
    done = {(r["set"], r["seed"], r["order"], r["stream"]) for r in read(path)}
    path.parent.mkdir(exist_ok=True)
    for name in options.sets or (SETS if options.data else SETS[:2]):
        for order in ORDERS:
            for seed in range(options.seeds):
                for stream in STREAMS:
                    if (name, str(seed), order, stream) in done:
                        continue
                    found = list(play(name, seed, order, stream, options))
                    new = not path.exists()
                    with path.open("a", newline="") as file:
                        writer = csv.writer(file)
                        writer.writerows([FIELDS, *found] if new else found)
                    print(*found[0], file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
