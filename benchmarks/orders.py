"""How far the order of rows moves the accuracy of a stream: ``python -m benchmarks.orders OUT.csv``.

To compare two versions, run it with each of them first in ``PYTHONPATH``, and give both files to
``python -m benchmarks.orders --table BEFORE.csv AFTER.csv``.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

#: Sizes of the domains, seeds, and rows of each class: as they are, and where one class makes up 80 %.
PROBLEMS = {
    "8 classes, 8 columns": ({"n_classes": 8}, (0, 1, 2), 400, 1700),
    "12 classes, 32 columns": (
        {"n_sources": 5, "n_classes": 12, "n_features": 32, "noise": 2.0},
        (0, 1),
        250,
        1700,
    ),
    "29 classes, 128 columns": (
        {"n_sources": 5, "n_classes": 29, "n_features": 128, "noise": 4.0},
        (0,),
        110,
        900,
    ),
}
STREAMS, SIZES, ORDERS, LENGTH = ("as it is", "80 % one class"), (32, 1024), 6, 1600


def draw(sizes, seed, n_even, n_skewed, stream):
    """Return rows and classes of a target, the first half to follow and the second to test on."""
    if stream == STREAMS[0]:
        target = make_domains(**sizes, n_per_class=n_even, random_state=seed)
        turn = np.random.default_rng(seed).permutation(len(target.X_target))
        return target.X_target[turn], target.y_target[turn]
    target = make_domains(**sizes, n_per_class=n_skewed, random_state=seed)
    often = target.y_target == target.y_target.min()
    one = np.flatnonzero(often)
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(~often))[: len(one) // 4]
    both = np.concatenate([one, rest])
    both = both[np.random.default_rng(seed + 1).permutation(len(both))]
    return target.X_target[both], target.y_target[both]


def measure(path: Path) -> None:
    """Follow every stream in several orders, in small and large batches."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        for name, (sizes, seeds, n_even, n_skewed) in PROBLEMS.items():
            for seed in seeds:
                sources = make_domains(**sizes, n_per_class=60, random_state=seed)
                model = OnlineDaDiL(
                    classifier="linear", random_state=0, validate=sizes["n_classes"] < 20
                ).fit(sources.X, sources.y, sample_domain=sources.domain)
                for stream in STREAMS:
                    X, y = draw(sizes, seed, n_even, n_skewed, stream)
                    half = len(X) // 2
                    for size in SIZES:
                        for order in range(ORDERS):
                            turn = np.random.default_rng(order).permutation(half)[:LENGTH]
                            one = model.spawn()
                            for start in range(0, len(turn), size):
                                one.partial_fit(X[turn[start : start + size]])
                            right = (one.predict(X[half:]) == y[half:]).mean()
                            out.writerow([name, stream, size, seed, order, right])
                            file.flush()


def table(before: Path, after: Path) -> str:
    """Return a Markdown table: means over seeds and orders, and the spread that orders alone cause."""
    found = {}
    for which, path in enumerate((before, after)):
        with path.open(newline="") as file:
            for name, stream, size, seed, _, right in csv.reader(file):
                seeds = found.setdefault((name, stream, size), {})
                seeds.setdefault(seed, ([], []))[which].append(100.0 * float(right))
    lines = [
        "| problem | stream | batches | before | after | orders alone |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for key, seeds in found.items():
        runs = np.array(list(seeds.values()))  # (seeds, versions, orders)
        means = runs.mean(axis=(0, 2))
        spread = float(np.sqrt(runs[:, 0].var(axis=1, ddof=1).mean()))
        lines.append(f"| {' | '.join(key)} | {means[0]:.1f} | {means[1]:.1f} | ± {spread:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--table", action="store_true", help="print the table of two files")
    options = parser.parse_args()
    if options.table:
        print(table(*options.files))
    else:
        measure(options.files[0])
