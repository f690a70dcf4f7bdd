"""Run ``python -m experiments.msda --data FOLDER``; it can be stopped and goes on where it was.

Every finished (set, target, split, part) is appended to ``results/msda.csv``, and the tables of the
documentation are made from that file; ``python -m experiments.msda --tables`` does only the latter.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import sys
from pathlib import Path

from experiments.msda import methods, problems, tables

RESULTS = Path(__file__).parent / "results"
FIELDS = (
    "set", "target", "split", "part", "seed", "method", "order", "offline", "prequential",
    "source_prequential", "first_fifth", "last_fifth", "end", "refined", "held_out",
    "held_out_refined", "trust", "decision", "seconds", "seconds_a_batch",
)  # fmt: skip
#: Splits (or problems, for affine) of each set, and seeds of the order of each stream.
SPLITS = {"affine": (0, 1, 2), "cstr7": (0,), "gas_drift8": (0,), "mgr": (0,)}
STREAM_SEEDS = (0, 1, 2, 3, 4)
PARTS = ("rivals", "skada", "offline", "online", "paper", "ablation")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sets", nargs="*", default=problems.SETS)
    parser.add_argument("--parts", nargs="*", default=PARTS)
    parser.add_argument("--seeds", type=int, nargs="*", default=STREAM_SEEDS)
    parser.add_argument("--tables", action="store_true", help="only make the tables again")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "msda.csv"
    if not options.tables:
        if options.data is None:
            print("no data: pass --data FOLDER or set BARYFLOW_DATA", file=sys.stderr)
            return 2
        run(options, path)
    if options.out == RESULTS:
        tables.write_pages(path)
    print(tables.accuracy_table(tables.read(path)))
    return 0


def run(options, path):
    if importlib.util.find_spec("skada") is None and "skada" in options.parts:
        print("skada is not installed, skipped: pip install 'baryflow[experiments]'", file=sys.stderr)
        options.parts = [part for part in options.parts if part != "skada"]
    done = {(r["set"], r["target"], r["split"], r["part"]) for r in tables.read(path)}
    for part in options.parts:
        for which in options.sets:
            for split in SPLITS[which]:
                found = list(problems.problems(options.data, which, split))
                if not found:
                    print(f"{which}: not found under {options.data}, skipped", file=sys.stderr)
                for problem in found:
                    key = (which, problem.target, str(split), part)
                    if key in done:
                        continue
                    rows = [
                        dict(zip(FIELDS[:4], key, strict=True))
                        | {"seed": seed, "method": method, "order": order}
                        | {k: round(v, 5) if isinstance(v, float) else v for k, v in figures.items()}
                        for seed, method, order, figures in methods.everything(
                            problem, split, options.seeds, part
                        )
                    ]
                    append(path, rows)
                    print(*key, f"{len(rows)} rows", file=sys.stderr, flush=True)


def append(path, rows):
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
