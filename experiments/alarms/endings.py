"""How do alarms end on ordinary streams: cleared, or reclassified?

``python -m experiments.alarms.endings`` makes fleets of six machines, each with its own calibration.
The last one is followed with default alarms: 200 normal rows, then faults of 40 rows, so that 85 % of
the rows are normal; without a baseline, and with its first 30 rows as one. It appends to
``results/endings.csv``, resumes, and makes the table of ``docs/method/alarms.md``.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.alarms import AlarmConfig
from baryflow.runtime import Rows, SessionConfig
from baryflow.runtime.session import FirstRows
from benchmarks import pages
from experiments import results
from experiments.streams.problems import make_fleet

RESULTS = Path(__file__).parent / "results" / "endings.csv"
PAGE, PART = "docs/method/alarms.md", "endings"
FLEETS = tuple(range(120, 128))
ROWS, QUIET, EPISODES, LONG, SHARE, BASELINE = 300, 200, 16, 40, 0.85, 30
FIELDS = (
    "fleet", "baseline_rows", "rows", "right", "faults", "found", "raised", "wrong", "cleared",
    "reclassified", "active",
)  # fmt: skip
HEAD = (
    "| baseline | rows right | faults found | alarms raised | of a class that was not there | cleared | "
    "reclassified | active at the end |"
)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="only make the table again")
    options = parser.parse_args(arguments)
    done = {row["fleet"] for row in results.read(options.out)}
    for fleet in () if options.tables else FLEETS:
        if str(fleet) not in done:
            results.append(options.out, FIELDS, list(judge(fleet)))
    found = table(results.read(options.out))
    if options.out == RESULTS:
        pages.fill(PAGE, PART, found)
    print(found)
    return 0


def judge(fleet):
    """Yield a row without and with a baseline: how many alarms there were, and how they ended."""
    X, y, machine = make_fleet(fleet, ROWS)
    names, target = np.array(["normal", "F1", "F2", "F3", "F4"])[y], machine.max()
    known = machine != target
    model = OnlineDaDiL(classifier="linear", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[known], names[known], machine[known] + 1)
    rows = play(y[~known], np.random.default_rng(fleet))
    values, truth = X[~known][rows], names[~known][rows]
    episodes = [QUIET + i for i in range(len(truth) - QUIET) if truth[QUIET + i] != "normal"]
    starts = [i for i in episodes if truth[i - 1] != truth[i]]
    for n in (0, BASELINE):
        first = FirstRows("normal", n) if n else None
        session = SessionConfig(model, alarms=AlarmConfig(), baseline=first).begin()
        n_rows = len(values)
        result = session.apply(Rows(values, np.arange(1, n_rows + 1), [""] * n_rows, [""] * n_rows))
        events = [one for one in result.events if one.kind == "alarm"]
        changes = Counter(one.details["change"] for one in events)
        on = [one for one in events if one.details["change"] in ("raised", "repeated")]
        true = [
            one
            for one in on
            if one.details["alarm"] in truth[max(0, one.position - LONG) : one.position]
        ]
        found = {
            i
            for i in starts
            if any(i < one.position <= i + LONG + 5 and one.details["alarm"] == truth[i] for one in on)
        }
        labels = np.array([one["label"] for one in result.records])
        yield {
            "fleet": fleet,
            "baseline_rows": n,
            "rows": n_rows,
            "right": round(float((labels == truth).mean()), 4),
            "faults": len(starts),
            "found": len(found),
            "raised": len(on),
            "wrong": len(on) - len(true),
            "cleared": changes["cleared"],
            "reclassified": changes["reclassified"],
            "active": sum(one["active"] for one in session.alarms.entries()),
        }


def play(y, rng):
    """Return positions of rows: normal ones first, then faults within normal operation."""
    normal, gap = np.flatnonzero(y == 0), round(LONG * SHARE / (1.0 - SHARE))
    parts = [rng.choice(normal, QUIET)]
    for number in range(EPISODES):
        parts.append(rng.choice(np.flatnonzero(y == 1 + number % 4), LONG))
        parts.append(rng.choice(normal, gap))
    return np.concatenate(parts)


def table(rows):
    """Return the sums over fleets."""
    lines = [HEAD, "|---|---|---|---|---|---|---|---|"]
    for n in (0, BASELINE):
        mine = [row for row in rows if int(row["baseline_rows"]) == n]
        total = {name: sum(int(row[name]) for row in mine) for name in FIELDS[4:]}
        right = 100 * np.mean([float(row["right"]) for row in mine])
        cells = [
            f"{n} rows" if n else "none",
            f"{right:.1f} %",
            f"{total['found']} of {total['faults']}",
            *(str(total[name]) for name in FIELDS[6:]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
