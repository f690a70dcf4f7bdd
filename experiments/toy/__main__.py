"""Run ``python -m experiments.toy [--seeds 20] [--out FOLDER]``: CSV, table and figures."""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from experiments.toy import figures, run

RESULTS = Path(__file__).parent / "results"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for order in run.ORDERS:
        for seed in range(options.seeds):
            rows += run.one_seed(order, seed)
        print(f"{order}: {options.seeds} seeds", file=sys.stderr, flush=True)
    with (options.out / "toy.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, run.FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (options.out / "toy.md").write_text(run.table(rows) + "\n")
    print(run.table(rows))
    figures.figure_1(options.out / "fig1.png")
    figures.figure_2(options.out / "fig2.png")
    figures.figure_nll(options.out / "nll.png", rows)


if __name__ == "__main__":
    main()
