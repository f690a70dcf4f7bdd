"""How accurate is ``run --baseline-rows 30`` on machines that are normal 85 % of the time?

``python -m experiments.streams.baseline_rows --streams FILE.py`` takes fleets from a file that has the
functions ``fleet`` and ``plant`` and the proportions ``MOSTLY_NORMAL``. It writes each fleet as CSV
files and follows the last machine with ``baryflow fit`` and ``baryflow run``, without and with the
baseline: *mixed*, thirty normal rows and then rows in random order, and *plant*, 200 normal rows and
then episodes of faults. The rows of the baseline are not scored. It writes
``results/baseline_rows.csv`` and a table of ``docs/guide/baselines.md``.
"""

from __future__ import annotations

import argparse
import csv
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from benchmarks import pages
from experiments import results

PAGE = "docs/guide/baselines.md"
RESULTS = Path(__file__).parent / "results" / "baseline_rows.csv"
FIELDS = ("fleet", "stream", "baseline_rows", "rows", "flowing", "balanced")
#: Seeds of the fleets, and rows of a baseline.
SEEDS, BASELINE = range(100, 105), 30
NAMES = np.array(["normal", "fault 1", "fault 2", "fault 3", "fault 4"])


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=Path, help="file that makes the fleets; without it only print")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    known = {row["fleet"] for row in results.read(options.out)}
    for seed in SEEDS if options.streams is not None else ():
        if f"fleet {seed}" not in known:
            with tempfile.TemporaryDirectory() as folder:
                rows = list(judge(seed, runpy.run_path(str(options.streams)), Path(folder)))
            results.append(options.out, FIELDS, rows)
            print(f"fleet {seed} done", file=sys.stderr, flush=True)
    found = table(results.read(options.out))
    if options.out == RESULTS:
        pages.fill(PAGE, "baseline-rows", found)
    print(found)
    return 0


def judge(seed, streams, folder):
    """Yield a row for each stream, without and with the baseline."""
    X, y, domain = streams["fleet"](seed, mix=streams["MOSTLY_NORMAL"])
    target, rng = domain.max(), np.random.default_rng(seed)
    for machine in range(target):
        write(folder / f"machine_{machine}.csv", X[domain == machine], y[domain == machine])
    sources = [str(path) for path in sorted(folder.glob("machine_*.csv"))]
    model = folder / "model.bary"
    fit = ["--label", "condition", "--domain-from-file", "--normal-class", "normal", "-o", model]
    baryflow("fit", *sources, *fit)
    X, y = X[domain == target], y[domain == target]
    first = np.flatnonzero(y == 0)[:BASELINE]
    mixed = np.concatenate([first, np.setdiff1d(np.arange(len(y)), first)])
    for stream, rows in (("mixed", mixed), ("plant", streams["plant"](y, rng))):
        write(folder / "target.csv", X[rows])
        for n in (0, BASELINE):
            found = folder / f"{stream}_{n}.csv"
            knowledge = ["--baseline-rows", n] if n else []
            baryflow("run", model, folder / "target.csv", "-o", found, *knowledge)
            with found.open(encoding="utf-8", newline="") as file:
                predicted = np.array([row["label"] for row in csv.DictReader(file)])[BASELINE:]
            true = NAMES[y[rows]][BASELINE:]
            yield {
                "fleet": f"fleet {seed}",
                "stream": stream,
                "baseline_rows": n,
                "rows": len(true),
                "flowing": round(float(np.mean(predicted == true)), 4),
                "balanced": round(float(balanced_accuracy_score(true, predicted)), 4),
            }


def write(path, X, y=None):
    """Write rows, and their classes if they are known."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        labels = [] if y is None else ["condition"]
        writer.writerow([f"sensor_{i + 1}" for i in range(X.shape[1])] + labels)
        for i, row in enumerate(X.tolist()):
            writer.writerow(row if y is None else [*row, NAMES[y[i]]])


def baryflow(*arguments):
    subprocess.run([sys.executable, "-m", "baryflow", *map(str, arguments)], check=True)


def table(rows):
    """Return accuracy per row and balanced, without → with the baseline, in percent."""
    lines = [
        "| fleet | mixed: per row | balanced | plant: per row | balanced |",
        "|---|---|---|---|---|",
    ]
    fleets = list(dict.fromkeys(row["fleet"] for row in rows))
    for name, of in [*((name, [name]) for name in fleets), ("mean", fleets)]:
        cells = []
        for stream in ("mixed", "plant"):
            for figure in ("flowing", "balanced"):
                pair = [
                    100 * np.mean([float(row[figure]) for row in rows if key(row) in wanted])
                    for n in (0, BASELINE)
                    if (wanted := {(fleet, stream, n) for fleet in of})
                ]
                cells.append(f"{pair[0]:.1f} → {pair[1]:.1f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def key(row):
    return row["fleet"], row["stream"], int(row["baseline_rows"])


if __name__ == "__main__":
    sys.exit(main())
