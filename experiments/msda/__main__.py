"""Run ``python -m experiments.msda --data FOLDER``: accuracy on seven sets of domains.

Every target of every set in turn, the others being sources; each in three orders, and with other class
proportions. Every finished stream is appended to ``results/msda.csv``, and the same command
resumes. The tables of the documentation are made from that file; ``--tables`` does only that. A quick
look: ``--sets digits4 --targets 0 --methods ours plain --orders shuffled --seeds 0 --mixes "as is"``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path

from experiments import jobs, mixes, results
from experiments.msda import methods, problems, tables
from experiments.scores import rounded

RESULTS = Path(__file__).parent / "results"
#: What is done once: a stream and those methods that are run together.
KEY = ("set", "target", "split", "part", "mix", "order", "seed")
FIELDS = (
    *KEY, "method", "rows", "offline", "not_adapting", "flowing", "end", "held_out",
    "not_adapting_held_out", "first_fifth", "last_fifth", "not_adapting_first_fifth",
    "not_adapting_last_fifth", "ece_first", "ece_last", "ece_not_adapting", "reliability",
    "reliability_first", "adapts", "shift_belief", "detail", "seconds", "seconds_a_batch",
)  # fmt: skip
STREAM_SEEDS = (0, 1, 2, 3, 4)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sets", nargs="*", choices=problems.SETS, default=problems.SETS)
    parser.add_argument("--targets", nargs="*", help="names or numbers of domains (default: all)")
    parser.add_argument("--methods", nargs="*", choices=methods.PARTS, default=methods.PARTS)
    parser.add_argument("--orders", nargs="*", choices=mixes.ORDERS, default=mixes.ORDERS)
    parser.add_argument("--mixes", nargs="*", choices=mixes.MIXES, default=mixes.MIXES)
    parser.add_argument("--seeds", type=int, nargs="*", default=STREAM_SEEDS, help="of streams")
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
    for words, rows in jobs.pieces(work, list(to_do(options, path)), options.jobs):
        results.append(path, FIELDS, rows)
        print(words, file=sys.stderr, flush=True)


def to_do(options, path):
    """Yield (data, {part: keys}) for each target of which something is not in the file."""
    parts = list(options.methods)
    if "skada" in parts and importlib.util.find_spec("skada") is None:
        print("skada is not installed, skipped: pip install --group experiments", file=sys.stderr)
        parts.remove("skada")
    done = {tuple(r[name] for name in KEY) for r in tables.read(path)}
    for which in options.sets:
        for split in problems.SPLITS[which]:
            names = problems.targets(options.data, which, split)
            if not names and split == problems.SPLITS[which][0]:
                print(f"{which}: not found under --data {options.data}, skipped", file=sys.stderr)
            for number, target in enumerate(names, split):
                if options.targets and not {target, str(number)} & set(options.targets):
                    continue
                wanted = {
                    part: [key for key in keys(options, which, target, split, part) if key not in done]
                    for part in parts
                }
                if any(wanted.values()):
                    yield options.data, wanted


def keys(options, which, target, split, part):
    """Yield the key of every stream of a part that is asked for."""
    for mix, order, seed in methods.streams_of(part, split, options.seeds):
        if mix in options.mixes and order in ("", *options.orders):
            yield which, target, str(split), part, mix, order, str(seed)


def work(task):
    """Yield words and the rows of every stream of one target."""
    data, wanted = task
    for part, streams in wanted.items():
        known = {}
        for key in streams:
            which, target, split, _, mix, order, seed = key
            start, split = time.perf_counter(), int(split)
            p = problems.problem(data, which, target, split, mix)
            rows = [
                dict(zip(KEY, key, strict=True)) | {"method": method} | rounded(figures)
                for method, figures in methods.run(part, p, mix, order, int(seed), split, known)
            ]
            words = ", ".join(word for word in key if word)
            yield f"{words}: {time.perf_counter() - start:.0f} s", rows


if __name__ == "__main__":
    sys.exit(main())
