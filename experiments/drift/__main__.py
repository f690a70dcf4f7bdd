"""Is drift found, how soon, how often is it reported where there is none, and what is not watched?

``python -m experiments.drift`` plays targets that do not change, and targets that turn into another
domain, in several orders; it writes ``results/drift.csv`` and the tables of ``docs/method/drift.md``.
``--data FOLDER`` adds the sets that are not part of the project. It can be stopped, and resumes.
river's detectors take part if river is installed, in the place of ours.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import sys
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import load_tep, make_domains
from baryflow.drift import DriftMonitor
from baryflow.drift.ranking import SIGNALS
from baryflow.estimators._orders import stream_order
from baryflow.features import SignalFeatures, windows
from benchmarks import pages

RESULTS = Path(__file__).parent / "results" / "drift.csv"
EXAMPLES = Path(__file__).parents[2] / "examples"
FIELDS = ("set", "seed", "order", "stream", "detector", "rows", "watched", "alarms", "delay", "reason")
STREAMS = ("stationary", "changing")
#: Sets of the project, and those of a folder of data; the last three were not looked at before.
SETS = ("made", "tep", "pumps", "fans", "gas", "cwru4", "digits4", "mgr")
ORDERS = ("shuffled", "runs", "class", "as is")
#: Only the rows of these sets stand in the order of time.
TIMED = ("pumps", "fans", "gas")
#: Rows of the target before it changes, and rows after; a change should be found within SOON rows.
BEFORE, AFTER, SOON = 1250, 400, 200
BATCH = 32
#: Rows of a made target, of a pump, and of a fan: a tenth as many windows.
ROWS = {"made": 4_000, "pumps": 3_000, "fans": 30_000}
MOST_TAUGHT = 3_200
DETECTORS = ("ours", "ADWIN", "PageHinkley")


def domains_of(name, seed, options):
    """Return rows, classes and domains; domain 0 is the target."""
    if name == "made":
        p = make_domains(n_per_class=ROWS[name] // 8, random_state=seed)
        domain = np.concatenate([p.domain, np.zeros(len(p.y_target), dtype=int)])
        return np.concatenate([p.X, p.X_target]), np.concatenate([p.y, p.y_target]), domain
    if name == "tep":
        whole = load_tep()
        return whole.X.astype(np.float64), whole.y, np.where(whole.is_target, 0, whole.domain)
    if name == "pumps":
        return _stack(_example("make_machines", ROWS[name]).make(seed))
    if name == "fans":
        made = _example("make_signals", ROWS[name]).make(seed)
        signals, y, fan = _stack(made)
        cut = windows(signals, 60, 10, by=fan, label=y)
        return SignalFeatures().fit(cut).transform(cut), cut.label, cut.group
    data = np.load(next(Path(options.data).rglob(f"{'gas_drift8' if name == 'gas' else name}.npz")))
    domain = data["domain"]
    names = np.unique(domain)
    target = 5 if name == "gas" else names[seed % len(names)]  # the batch of gas with the most rows
    return data["X"].astype(np.float64), data["y"], np.where(domain == target, 0, domain + 1)


def _example(name, rows):
    """Return an example script as a module that makes longer histories."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    module.ROWS = rows
    return module


def _stack(fleet):
    """Return rows, classes and domains of a fleet; the last one is the target."""
    numbers = [*range(1, len(fleet)), 0]
    domain = np.repeat(numbers, [len(y) for _, y in fleet.values()])
    X, y = (np.concatenate([pair[k] for pair in fleet.values()]) for k in (0, 1))
    return X, y, domain


@lru_cache(maxsize=2)
def problem(name, seed, options):
    """Return a fitted model, a target and other domains, each as rows and classes."""
    X, y, domain = domains_of(name, seed, options)
    sources = np.random.default_rng(seed).permutation(np.flatnonzero(domain > 0))
    taught = sources[: min(MOST_TAUGHT, len(sources) // 2)]
    # Not validated: the weights of experts do not matter here.
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    model.fit(X[taught], y[taught], sample_domain=domain[taught])
    left = np.setdiff1d(sources, taught)
    others = [left[domain[left] == number] for number in np.unique(domain[left])]
    others = [(X[some], y[some]) for some in others if len(some) >= SOON]
    return model, (X[domain == 0], y[domain == 0]), others


def in_order(y, order, rng):
    return np.arange(len(y)) if order == "as is" else stream_order(y, order, rng)


def play(name, seed, order, stream, kind, options):
    """Return what happened along one stream."""
    model, (X, y), others = problem(name, seed, options)
    rng = np.random.default_rng([seed, ORDERS.index(order)])
    rows = X[in_order(y, order, rng)]
    begin = len(rows)
    if stream == "changing":
        Z, z = others[seed % len(others)]
        begin = min(BEFORE, len(rows))
        rows = np.concatenate([rows[:begin], Z[in_order(z, order, rng)[:AFTER]]])
    model = model.spawn().forget()
    return follow(DriftMonitor(model, detectors=detectors_of(kind)), rows, begin)


def follow(monitor, rows, begin):
    """Return rows before the change, how many were watched, alarms among them, the delay after it, and
    why rows were not watched at the end."""
    watched, alarms, delay, reason = 0, 0, "", ""
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        report = monitor.update(batch)
        monitor.model.partial_fit(batch)
        before = report.n_rows <= begin
        if before:
            watched += len(batch) * (report.phase == "watching")
            reason = report.reason
        if report.drift_detected and (report.since < begin and before):
            alarms += 1
        elif report.drift_detected and delay == "":
            delay = report.n_rows - begin
    return begin, watched, alarms, delay, reason


def detectors_of(kind):
    if kind == "ours":
        return {}
    from river import drift

    return {name: getattr(drift, kind)() for name in SIGNALS}


def read(path=RESULTS):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


HEADS = {
    "stationary": "| set | order | detector | rows | watched | false alarms | not watched at the end |",
    "changing": f"| set | order | detector | watched | found in {SOON} | in {AFTER} | median delay |",
}


def table(rows, stream):
    head = HEADS[stream]
    lines = [head, "|---|---|---|" + "---:|" * (head.count("|") - 4)]
    keys = dict.fromkeys((r["set"], r["order"], r["detector"]) for r in rows)
    for key in sorted(keys, key=_place):
        some = [r for r in rows if (r["set"], r["order"], r["detector"], r["stream"]) == (*key, stream)]
        if not some:
            continue
        n, watched, alarms = (sum(int(r[f]) for r in some) for f in ("rows", "watched", "alarms"))
        if stream == "stationary":
            figures = f"{n:,} | {watched:,} | {alarms} | {_why(some)}"
        else:
            found = [int(r["delay"]) for r in some if r["delay"]]
            late = f"{np.median(found):.0f}" if found else "–"
            soon, ready = sum(n <= SOON for n in found), sum(r["reason"] == "" for r in some)
            figures = f"{ready} of {len(some)} | {soon} | {len(found)} | {late}"
        lines.append(f"| {' | '.join(key)} | {figures} |")
    return "\n".join(lines)


def _why(rows):
    """Return the kinds of reasons, and how often each was there."""
    kinds = {"few classes": "few classes", "in runs": "long runs", "resemble": "dependent rows"}
    kinds |= {"close together": "little spread", "one class": "one class"}
    kinds |= {"learning": "too few rows", "found out": "too few rows"}
    counts = dict.fromkeys(kinds.values(), 0)
    for r in rows:
        for words, kind in kinds.items():
            if words in r["reason"]:
                counts[kind] += 1
                break
    return ", ".join(f"{kind} {n} ×" for kind, n in counts.items() if n)


def _is_idle(name, order, stream):
    """Return whether there is nothing to see: rows without times, or a change that is not watched."""
    return (order == "as is" and name not in TIMED) or (order == "class" and stream == "changing")


def _place(key):
    return tuple(names.index(name) for names, name in zip((SETS, ORDERS, DETECTORS), key, strict=True))


def river_is_there():
    return importlib.util.find_spec("river") is not None


class Options(argparse.Namespace):
    """Settings; problems are remembered by the folder alone."""

    def __hash__(self):
        return hash(str(self.data))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    parser.add_argument("--sets", nargs="+", choices=SETS)
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=ORDERS)
    parser.add_argument("--detectors", nargs="+", choices=DETECTORS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="only make the tables again")
    options = parser.parse_args(arguments, Options())
    options.detectors = options.detectors or (DETECTORS if river_is_there() else DETECTORS[:1])
    warnings.simplefilter("ignore")  # of columns that hardly vary in one of the domains
    if not options.tables:
        run(options)
    rows = read(options.results)
    for stream in STREAMS:
        made = table(rows, stream)
        if options.results == RESULTS:
            pages.fill("docs/method/drift.md", stream, made)
        print(made, end="\n\n")
    return 0


def run(options):
    path = options.results
    done = {tuple(r[name] for name in FIELDS[:5]) for r in read(path)}
    path.parent.mkdir(exist_ok=True)
    for name in options.sets or (SETS if options.data else SETS[:4]):
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for order in options.orders:
                for stream in STREAMS:
                    for kind in options.detectors:
                        key = (name, str(seed), order, stream, kind)
                        if key in done or _is_idle(name, order, stream):
                            continue
                        found = play(name, seed, order, stream, kind, options)
                        new = not path.exists()
                        with path.open("a", newline="") as file:
                            writer = csv.writer(file, lineterminator="\n")
                            writer.writerows([FIELDS, [*key, *found]] if new else [[*key, *found]])
                        print(*key, *found, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
