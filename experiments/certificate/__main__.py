"""Run ``python -m experiments.certificate --data FOLDER``: are certificates true, and is harm found?

Streams of six sets of domains are followed once; which rows were right is kept in
``results/streams.csv``. Then 5 %, 20 % or all of the rows get labels, drawn at random with twenty seeds,
and the certificate is read after every batch. Figures are appended to ``results/certificate.csv``; the
same command resumes, and ``--tables`` only makes the tables of ``docs/method/certificate.md`` again.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np

from benchmarks import pages
from experiments import results
from experiments.certificate import problems, simulation, streams
from experiments.scores import rounded

RESULTS = Path(__file__).parent / "results"
PAGE = "docs/method/certificate.md"
KEY = (*streams.KEY, "rate")
STATEMENTS = ("accuracy", "advantage", "harm")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sets", nargs="*", choices=problems.SETS, default=problems.SETS)
    parser.add_argument("--targets", nargs="*", help="names or numbers of domains (default: all)")
    parser.add_argument("--models", nargs="*", choices=streams.MODELS, default=tuple(streams.MODELS))
    parser.add_argument("--jobs", type=int, default=1, help="processes, one target in each at a time")
    parser.add_argument("--tables", action="store_true", help="only make the tables again")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "certificate.csv"
    if not options.tables:
        streams.run(options, options.out / "streams.csv")
        simulate(options.out / "streams.csv", path)
    for name, make in TABLES.items():
        table = make(results.read(path))
        if options.out == RESULTS:
            pages.fill(PAGE, name, table)
        print(table, end="\n\n")
    return 0


def simulate(recorded, path):
    """Label the streams that are not in the file yet."""
    done = {tuple(r[name] for name in KEY) for r in results.read(path)}
    for key, outcomes in streams.read(recorded).items():
        for rate in simulation.RATES:
            if (*key, str(rate)) in done:
                continue
            row = dict(zip(KEY, (*key, rate), strict=True))
            row |= rounded(simulation.simulate(outcomes, rate))
            results.append(path, row, [row])


# -- tables ----------------------------------------------------------------------------------------


def total(rows, name):
    return sum(int(r[name]) for r in rows)


def false_table(rows):
    """One line an order of the stream and share of labelled rows: how many certificates were false."""
    lines = [
        "| order | rows labelled | streams | runs | accuracy | advantage | harm |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for order in (*streams.ORDERS, "all"):
        for rate in simulation.RATES:
            some = [r for r in rows if order in (r["order"], "all") and float(r["rate"]) == rate]
            if not some:
                continue
            runs = total(some, "runs")
            cells = [
                f"{100 * total(some, 'false_' + name) / runs:.2f} "
                f"({100 * total(some, f'false_{name}_rows') / runs:.2f})"
                for name in STATEMENTS
            ]
            lines.append(f"| {order} | {rate:.0%} | {len(some)} | {runs:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def slack_table(rows):
    """One line a number of labels: how far bounds are below the truth."""
    lines = [
        "| labels | streams | accuracy: below the truth by | advantage: below the truth by |",
        "|---:|---:|---:|---:|",
    ]
    for n in simulation.AFTER:
        some = [r for r in rows if r[f"accuracy_slack_{n}"] != ""]
        if some:
            accuracy, advantage = (
                100 * np.mean([float(r[f"{name}_slack_{n}"]) for r in some])
                for name in ("accuracy", "advantage")
            )
            lines.append(f"| {n} | {len(some)} | {accuracy:.1f} | {advantage:.1f} |")
    return "\n".join(lines)


#: Points below not adapting from which a stream counts as harmed.
HARMED = 2.0
#: Streams by how many points adapting was better, over all rows, than not adapting.
GROUPS = (
    ("worse by over 10", -np.inf, -10.0),
    ("worse by 5 to 10", -10.0, -5.0),
    (f"worse by {HARMED:.0f} to 5", -5.0, -HARMED),
    (f"worse by less than {HARMED:.0f}", -HARMED, 0.0),
    ("as good or better", 0.0, np.inf),
)
#: Streams by their number of labels, mean over the seeds.
LABELS = ((0, 49), (50, 99), (100, 199), (200, 499), (500, 1600))


def gap(row):
    return round(100 * (float(row["adapting"]) - float(row["not_adapting"])), 3)


def in_group(rows, low, high):
    return [r for r in rows if low <= gap(r) < high]


def harm_table(rows):
    """One line a group of streams: in how many runs harm was shown, by the number of labels."""
    lines = [
        "| adapting was | " + " | ".join(f"{low} to {high}" for low, high in LABELS) + " |",
        "|---|" + "---:|" * len(LABELS),
    ]
    for words, *limits in GROUPS:
        cells = []
        for low, high in LABELS:
            some = [r for r in in_group(rows, *limits) if low <= float(r["labels"]) < high + 1]
            runs = total(some, "runs")
            cells.append(f"{100 * total(some, 'harm') / runs:.1f} % of {runs:,}" if some else "–")
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def fallback_table(rows):
    """One line a group of streams and share of labelled rows: accuracy with the fallback.

    Of the model that does not look whether adapting helps.
    """
    heads = (
        "adapting was", "rows labelled", "streams", "harm shown", "lifted", "adapting",
        "with fallback", "not adapting",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    unchecked = [r for r in rows if r["model"] == "unchecked"]
    for words, *limits in GROUPS:
        for rate in simulation.RATES:
            some = [r for r in in_group(unchecked, *limits) if float(r["rate"]) == rate]
            if not some:
                continue
            shares = [
                f"{100 * total(some, name) / total(some, 'runs'):.1f} %" for name in ("harm", "lifted")
            ]
            means = [
                f"{100 * np.mean([float(r[name]) for r in some]):.1f}"
                for name in ("adapting", "with_fallback", "not_adapting")
            ]
            cells = (words, f"{rate:.0%}", str(len(some)), *shares, *means)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES = {
    "false certificates": false_table,
    "slack": slack_table,
    "harm": harm_table,
    "fallback": fallback_table,
}

if __name__ == "__main__":
    sys.exit(main())
