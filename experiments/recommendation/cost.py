"""How much longer does ``baryflow evaluate`` take than in 0.2.0, which compared fewer settings?

``python -m experiments.recommendation.cost`` gives the same files of four machines to the command of
both versions, in turn, one process each, without any of the options that came later. It appends CPU
time and the accuracy while rows flow to ``results/cost.csv``, resumes, and makes a table of
``docs/guide/evaluation.md``.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import pages
from experiments import results
from experiments.recommendation.__main__ import KNOWN, ROWS
from experiments.streams.problems import make_fleet

RESULTS = Path(__file__).parent / "results" / "cost.csv"
PAGE, PART = "docs/guide/evaluation.md", "evaluate-cost"
FIELDS = ("fleet", "classifier", "version", "seconds", "flowing")
#: The last commit of 0.2.0.
BEFORE = "24b53e9"
FLEETS, CLASSIFIERS = (110, 111, 112), ("linear", "all")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="only make the table again")
    options = parser.parse_args(arguments)
    done = {(row["fleet"], row["classifier"]) for row in results.read(options.out)}
    for classifier in () if options.tables else CLASSIFIERS:
        for fleet in FLEETS:
            if (str(fleet), classifier) not in done:
                results.append(options.out, FIELDS, measure(fleet, classifier))
    found = table(results.read(options.out))
    if options.out == RESULTS:
        pages.fill(PAGE, PART, found)
    print(found)
    return 0


def measure(fleet, classifier):
    """Return a row for each version: CPU time of the command, and the accuracy that it shows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_fleet(fleet, folder)
        packed = ["/usr/bin/env", "git", "-C", pages.ROOT, "archive", "-o", folder / "before.tar"]
        subprocess.run([*packed, BEFORE, "src"], check=True)
        with tarfile.open(folder / "before.tar") as file:
            file.extractall(folder, filter="data")
        versions = {"0.2.0": folder / "src", "now": pages.ROOT / "src"}
        return [
            {"fleet": fleet, "classifier": classifier, "version": version}
            | evaluate(folder, code, classifier)
            for version, code in versions.items()
        ]


def write_fleet(fleet, folder):
    """Write the machines that `evaluate` may see as CSV files."""
    X, y, machine = make_fleet(fleet)
    for known in KNOWN:
        mine = np.flatnonzero(machine + 1 == known)[:ROWS]
        with (folder / f"machine_{known}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"sensor_{i + 1}" for i in range(X.shape[1])), "condition"])
            writer.writerows([*X[i].tolist(), f"condition {y[i]}"] for i in mine)


def evaluate(folder, code, classifier):
    """Return the CPU time of the command in seconds, and the model's mean accuracy in percent."""
    names = sorted(path.name for path in folder.glob("machine_*.csv"))
    how = ["--label", "condition", "--domain-from-file", "--order", "shuffled", "--jobs", "1"]
    how += [] if classifier == "all" else ["--classifier", classifier]
    env = os.environ | {"PYTHONPATH": str(code), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with (folder / "out.txt").open("w", encoding="utf-8") as out:
        command = [sys.executable, "-m", "baryflow", "evaluate", *names, *how]
        child = subprocess.Popen(command, cwd=folder, env=env, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} failed")
    said = (folder / "out.txt").read_text(encoding="utf-8")
    mean = next(line.split() for line in said.splitlines() if re.match(r"mean\s+\d+ ", line))
    return {"seconds": round(usage.ru_utime + usage.ru_stime, 1), "flowing": float(mean[-3])}


def table(rows):
    """Return CPU times of both versions, mean over fleets."""
    lines = [
        "| classifier | fleets | 0.2.0, s | now, s | ratio | largest ratio |",
        "|---|---|---|---|---|---|",
    ]
    for classifier in dict.fromkeys(row["classifier"] for row in rows):
        mine = [row for row in rows if row["classifier"] == classifier]
        before, now = (
            np.array([float(row["seconds"]) for row in mine if row["version"] == version])
            for version in ("0.2.0", "now")
        )
        lines.append(
            f"| {classifier} | {len(now)} | {before.mean():.1f} | {now.mean():.1f} | "
            f"{now.mean() / before.mean():.2f} | {(now / before).max():.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
