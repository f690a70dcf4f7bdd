"""Run ``python -m experiments.committee --data FOLDER``: what a committee of ten experts is worth.

Each set's targets in turn; weights, and how far to believe a label shift, are learned by leaving up to
four sources out, as they come and with resampled class proportions. No target label enters. Every
finished target is appended to ``results/committee.csv``; the same command resumes.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from pathlib import Path

import numpy as np
from scipy.special import expit

from baryflow.estimators._orders import stream_order
from experiments import mixes
from experiments.committee.experts import EXPERTS, N_RAW, PLAIN, Following, Sources
from experiments.committee.weights import learn_belief, learn_weights
from experiments.msda import problems

RESULTS = Path(__file__).parent / "results" / "committee.csv"
SETS = ("make_domains", "affine", "cstr7", "gas_drift8", "mgr", "digits4", "cwru4")
MOST_SOURCE_ROWS, MOST_TARGET_ROWS, MOST_TARGETS, MOST_FOLDS = 2000, 800, 4, 4
#: Rows that are judged in each play.
JUDGED = 200
#: Rows of a class that are enough to know it.
ENOUGH = 10.0
SHIFTS = mixes.MIXES[1:]
FIELDS = (
    "set",
    "target",
    "play",
    "rows",
    "size",
    "confirmed",
    "belief",
    "picked",
    "raw",
    "usual",
    "shifted",
    "committee",
)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    options = parser.parse_args(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if options.out.exists():
        with options.out.open() as file:
            done = {(row["set"], row["target"]) for row in csv.DictReader(file)}
    for which in options.sets:
        names = problems.targets(options.data, which, 0)
        if which in ("make_domains", "affine"):
            names = [f"seed{seed}" for seed in range(MOST_TARGETS)]
        for target in pick(names, MOST_TARGETS):
            if (which, target) not in done:
                began = time.process_time()
                append(
                    options.out,
                    [
                        {"set": which, "target": target} | row
                        for row in judge(options.data, which, target)
                    ],
                )
                print(
                    f"{which} {target}: {time.process_time() - began:.0f} s", file=sys.stderr, flush=True
                )
    return 0


def append(path, rows):
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def pick(items, most):
    items = list(items)
    if len(items) <= most:
        return items
    return [items[i] for i in np.linspace(0, len(items) - 1, most).astype(int)]


def read(data, which, target):
    """Return sources and target at a size that takes seconds."""
    seed = int(target[4:]) if target.startswith("seed") else 0
    p = problems.problem(data, which, target, seed)
    rng = np.random.default_rng(seed)
    step = max(1, -(-sum(map(len, p.ys)) // MOST_SOURCE_ROWS))
    Xs, ys = [X[::step] for X in p.Xs], [y[::step] for y in p.ys]
    X, y = np.concatenate([p.X, p.X_held]), np.concatenate([p.y, p.y_held])
    some = rng.permutation(len(y))[:MOST_TARGET_ROWS]
    n_classes = 1 + max(int(labels.max()) for labels in [*ys, y])
    return Xs, ys, X[some], y[some], n_classes


def judge(data, which, target):
    """Learn from the sources alone, then return a row for every play of the target."""
    Xs, ys, X, y, n_classes = read(data, which, target)
    folds = make_folds(Xs, ys, n_classes)
    tables = []
    for sources, A, codes in folds:
        following = Following(sources, np.full(N_RAW, 1.0 / N_RAW))
        following.absorb(A)
        tables.append((following.adapt()(A), codes, 1.0))
    raw = learn_weights(
        [(logs[:N_RAW], codes, 1.0) for logs, codes, _ in tables], [np.full(N_RAW, 1.0 / N_RAW)]
    )
    scores = [
        np.mean([(logs[i].argmax(axis=1) == codes).mean() for logs, codes, _ in tables])
        for i in range(len(PLAIN))
    ]
    plays = [
        one
        for number, (sources, A, codes) in enumerate(folds)
        for one in play(sources, raw, A, codes, number)
    ]
    usual_weights, shift_weights, belief = learn(plays)
    whole = Sources(Xs, ys, n_classes)
    for one in play(whole, raw, X, y, 99):
        codes = one["codes"]
        usual, shifted = logits(one, usual_weights, shift_weights)
        b = float(expit(belief @ one["evidence"]))
        found = {
            "picked": one["usual"][int(np.argmax(scores))],
            "raw": np.tensordot(raw, one["usual"][:N_RAW], 1),
            "usual": usual, "shifted": shifted, "committee": (1.0 - b) * usual + b * shifted,
        }  # fmt: skip
        row = {"play": one["play"], "rows": one["rows"], "belief": round(b, 3)}
        row |= dict(zip(("size", "confirmed"), one["evidence"][1:].round(3).tolist(), strict=True))
        for name, table in found.items():
            row[name] = round(100.0 * float((table.argmax(axis=1) == codes).mean()), 2)
        yield row


def make_folds(Xs, ys, n_classes):
    """Leave one source out at a time; those without which a class is missing are not left out."""
    folds = []
    for left_out in pick(range(len(Xs)), MOST_FOLDS):
        rest = [i for i in range(len(Xs)) if i != left_out]
        if len(np.unique(np.concatenate([ys[i] for i in rest]))) == n_classes:
            some = np.random.default_rng(0).permutation(len(ys[left_out]))[:MOST_TARGET_ROWS]
            sources = Sources([Xs[i] for i in rest], [ys[i] for i in rest], n_classes)
            folds.append((sources, Xs[left_out][some], ys[left_out][some]))
    return folds


def play(sources, raw, X, codes, seed):
    """Yield streams of a target: as it comes, its beginning, class by class, and other class mixes."""
    rng, n = np.random.default_rng(seed), len(codes)
    yield watch(sources, raw, X, codes, np.arange(n), rng.permutation(n), "as is")
    for k in (32, 96, 256):
        if k < n - 40:
            turn = rng.permutation(n)
            yield watch(sources, raw, X, codes, turn[:k], turn[k:], f"first {k}")
    turn = stream_order(codes, "class", rng)
    for part in (0.1, 0.3, 0.6):
        k = int(part * n)
        if k >= 20:
            yield watch(
                sources, raw, X, codes, turn[:k], turn[k : k + max(40, n // 8)], f"class by class {part}"
            )
    for mix in SHIFTS:
        for _ in range(2):
            some = rng.permutation(mixes.mixed(codes, mix, rng))
            if len(some) >= mixes.FEWEST:
                yield watch(sources, raw, X, codes, some, some, mix)


def watch(sources, raw, X, codes, seen, ahead, name):
    """Absorb rows; return the experts' tables for others, without and with the estimated shift."""
    following, ahead = Following(sources, raw), ahead[:JUDGED]
    following.absorb(X[seen])
    expected, shares = sources.view.usual, following.estimate_proportions()
    components = following.view.seen()
    mass = components.masses / components.masses.sum()
    tables, disagreement = [], []
    for given in (None, shares):
        experts = following.adapt(given)
        tables.append(experts(X[ahead]))
        found = experts(components.means)
        votes = np.tensordot(raw, found[:N_RAW], 1).argmax(axis=1)
        disagreement.append(float(mass @ (votes != found[N_RAW:].mean(axis=0).argmax(axis=1))))
    tables[1][: len(PLAIN)] += np.log((shares + expected) / 2.0 / sources.view.prior.mean)
    size = 0.5 * float(np.abs(shares - expected).sum())
    chance = float(np.sqrt(expected * (1.0 - expected) / (2.0 * np.pi * len(seen))).sum())
    confirmed = (disagreement[0] - disagreement[1]) / max(size, 0.05)
    return {
        "play": name, "rows": len(seen), "codes": codes[ahead], "usual": tables[0], "shifted": tables[1],
        "coverage": float(np.minimum(len(seen) * expected / ENOUGH, 1.0).mean()),
        # How large the shift seems, and how much of it the experts that depend on it confirm.
        "evidence": np.array([1.0, max(size - chance, 0.0), confirmed]),
    }  # fmt: skip


def stages(one):
    """Return the tables of the experts and of the raw classifiers, for the end and for the beginning."""
    logs, coverage = np.concatenate([one["usual"], one["usual"][:N_RAW]]), one["coverage"]
    return np.concatenate([coverage * logs, (1.0 - coverage) * logs])


def with_raw(one):
    return np.concatenate([one["shifted"], one["usual"][:N_RAW]])


def logits(one, usual_weights, shift_weights):
    return np.tensordot(usual_weights, stages(one), 1), np.tensordot(shift_weights, with_raw(one), 1)


def learn(plays):
    """Learn the weights of the experts, with and without a shift, and how far to believe one."""
    n = len(EXPERTS)
    even, raw = np.zeros(n + N_RAW), np.zeros(n + N_RAW)
    even[:n], raw[n:] = 1.0 / n, 1.0 / N_RAW
    usual = [one for one in plays if one["play"] == "as is" or one["play"].startswith("first")]
    shifted = [one for one in plays if not any(one is other for other in usual)]
    usual_weights = learn_weights(
        [(stages(p), p["codes"], 2.0 if p["play"] == "as is" else 0.5) for p in usual], [even, raw]
    )
    shift_weights = learn_weights(
        [(with_raw(p), p["codes"], 1.0) for p in shifted], [(even + raw) / 2.0]
    )
    belief = learn_belief(
        [
            (p["evidence"], *logits(p, usual_weights, shift_weights), p["codes"], 1.0 / len(some))
            for some in (usual, shifted)
            for p in some
        ]
    )
    return usual_weights, shift_weights, belief


if __name__ == "__main__":
    sys.exit(main())
