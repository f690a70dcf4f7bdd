"""Run ``python -m experiments.paper figure1 | figure2 | figure3 | modes | toy``.

``figure1`` and ``figure2`` draw one run of the toy, ``toy`` compares methods over seeds.
``figure3`` runs five folds of mode 1 of the plant, ``modes`` all six; after a stop, the same command
resumes. ``--tables`` only makes figures and tables again.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

from benchmarks import pages
from experiments import results
from experiments.paper import figures, plant, toy
from experiments.tep import problems

RESULTS = Path(__file__).parent / "results"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("figure1", "figure2", "figure3", "modes", "toy"))
    parser.add_argument("--seeds", type=int, default=20, help="of the toy")
    parser.add_argument("--folds", type=int, nargs="*", default=range(problems.FOLDS))
    parser.add_argument("--features", type=Path, default=problems.FEATURES, help="of the plant")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="only make figures and tables again")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "figure1":
        figures.figure_1(options.out / "figure1.png")
    elif options.what == "figure2":
        figures.figure_2(options.out / "figure2.png")
    elif options.what == "toy":
        compare_on_toy(options)
    else:
        run_plant(options)
    return 0


def compare_on_toy(options):
    """Write every method's figures in every order and seed, their table and their picture."""
    if not options.tables:
        rows = [
            r for order in toy.ORDERS for seed in range(options.seeds) for r in toy.one_seed(order, seed)
        ]
        with (options.out / "toy.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, toy.FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    rows = results.read(options.out / "toy.csv")
    figures.toy_nll(options.out / "toy-nll.png", rows)
    if options.out == RESULTS:
        pages.fill(toy.PAGE, "toy", toy.table(rows))
    print(toy.table(rows))


def run_plant(options):
    """Do what is left, then make figure and tables."""
    if not options.tables:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            modes = (1,) if options.what == "figure3" else plant.MODES
            plant.run(options.out, modes, options.folds, options.features)
    rows = results.read(options.out / "plant.csv")
    figures.figure_3(options.out / "figure3.png", rows, results.read(options.out / "plant-curves.csv"))
    for name, table in plant.tables(rows).items():
        if options.out == RESULTS:
            pages.fill(plant.PAGE, name, table)
        print(table)


if __name__ == "__main__":
    sys.exit(main())
