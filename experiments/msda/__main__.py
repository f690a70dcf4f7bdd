"""Run ``python -m experiments.msda --data FOLDER``; it can be stopped and goes on where it was.

Every finished (set, target, split, part, mix) is appended to ``results/msda.csv``, and the tables of the
documentation are made from that file; ``python -m experiments.msda --tables`` does only the latter.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import sys
from pathlib import Path

from experiments import jobs, mixes
from experiments.msda import methods, problems, tables
from experiments.scores import rounded

RESULTS = Path(__file__).parent / "results"
KEY = ("set", "target", "split", "part", "mix")
FIELDS = (
    *KEY, "seed", "method", "order", "rows", "offline", "prequential", "source_prequential",
    "first_fifth", "last_fifth", "source_first_fifth", "source_last_fifth", "end", "refined",
    "source_end", "held_out", "held_out_refined", "source_held_out", "ece_first", "ece_last",
    "ece_source", "reliability", "reliability_first", "decision", "seconds", "seconds_a_batch",
)  # fmt: skip
#: Splits (or problems, for the synthetic sets) of each set, and seeds of the order of each stream.
SPLITS = {
    "make_domains": tuple(range(8)), "affine": (0, 1, 2), "cstr7": (0,), "gas_drift8": (0,), "mgr": (0,),
}  # fmt: skip
STREAM_SEEDS = (0, 1, 2, 3, 4)
PARTS = ("rivals", "skada", "offline", "online", "paper", "ablation", "spikes", "prior")


def mixes_of(part, which, split):
    """Return the mixes in which a part is run on a set."""
    if part == "online":
        return mixes.MIXES
    if part == "prior":
        return ("50 %",) if which == "make_domains" else ()
    if part == "spikes":
        return ("as is",) if which == "make_domains" and split < 4 else ()
    return ("as is",)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sets", nargs="*", choices=problems.SETS, default=problems.SETS)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--mixes", nargs="*", choices=mixes.MIXES, default=mixes.MIXES)
    parser.add_argument("--seeds", type=int, nargs="*", default=STREAM_SEEDS)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one target in each at a time")
    parser.add_argument("--tables", action="store_true", help="only make the tables again")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "msda.csv"
    if not options.tables:
        run(options, path)
    if options.out == RESULTS:
        tables.write_pages(path)
    print(tables.accuracy_table(tables.read(path)))
    return 0


def run(options, path):
    """Do what is not done yet. Only this process writes, so that the file stays whole."""
    for key, rows in jobs.pieces(work, list(to_do(options, path)), options.jobs):
        if rows:
            append(path, rows)
        print(*key, f"{len(rows)} rows", file=sys.stderr, flush=True)


def to_do(options, path):
    """Yield (data, set, target, split, part, mixes, seeds) of what is not in the file."""
    parts = options.parts
    if "skada" in parts and importlib.util.find_spec("skada") is None:
        print("skada is not installed, skipped: pip install 'baryflow[experiments]'", file=sys.stderr)
        parts = [part for part in parts if part != "skada"]
    found = {
        (which, split): problems.targets(options.data, which, split)
        for which in options.sets
        for split in SPLITS[which]
    }
    for which in dict.fromkeys(which for (which, _), names in found.items() if not names):
        print(f"{which}: not found under --data {options.data}, skipped", file=sys.stderr)
    done = {tuple(r[name] for name in KEY) for r in tables.read(path)}
    for part in parts:
        for (which, split), names in found.items():
            for target in names:
                wanted = [
                    mix
                    for mix in mixes_of(part, which, split)
                    if mix in options.mixes and (which, target, str(split), part, mix) not in done
                ]
                if wanted:
                    yield options.data, which, target, split, part, wanted, options.seeds


def work(task):
    """Yield the rows of every mix of one target and part."""
    data, which, target, split, part, wanted, seeds = task
    known = {}
    for mix in wanted:
        p = problems.problem(data, which, target, split, mix)
        key = (which, target, str(split), part, mix)
        stem = dict(zip(KEY, key, strict=True))
        rows = [
            stem | {"seed": seed, "method": method, "order": order} | rounded(figures)
            for seed, method, order, figures in methods.everything(p, mix, split, seeds, part, known)
        ]
        yield key, rows


def append(path, rows):
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
