"""Are the settings that ``evaluate`` recommends the best ones on machines it has not seen?

``python -m experiments.recommendation --classifier linear`` makes fleets of six machines. `evaluate`
sees four of them and recommends a setting. All settings are then tried on the other two. It appends to
``results/recommendation.csv``, resumes, and makes the table of ``docs/guide/evaluation.md``.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.model_selection import evaluate
from benchmarks import pages
from experiments import results
from experiments.streams.problems import make_fleet

RESULTS = Path(__file__).parent / "results" / "recommendation.csv"
PAGE, PART = "docs/guide/evaluation.md", "recommendation"
FLEETS, KNOWN, NEW, ROWS, NEW_ROWS = tuple(range(110, 120)), (1, 2, 3, 4), (5, 6), 300, 1000
#: What the machines do, and what could be known of them.
KINDS = {
    "85 % normal": {"class_proportions": {0: 0.85}},
    "as it is": {},
}
KNOWLEDGE = {"baseline_rows": 30, "baseline_class": 0, "labels": 3, "order": "shuffled", "n_seeds": 3}
FIELDS = ("fleet", "kind", "adapt", "known", "recommended", "expected", "found", "balanced", "seconds")
EQUAL = 0.01
HEAD = (
    "| machines | fleets | at most 1 point below the best | the very best | worst gap | recommended | "
    "nothing known | best |"
)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--fleets", type=int, nargs="*", default=FLEETS)
    parser.add_argument("--classifier", help="one of those of OnlineDaDiL; without it all")
    parser.add_argument("--tables", action="store_true", help="only make the table again")
    options = parser.parse_args(arguments)
    done = {(row["fleet"], row["kind"]) for row in results.read(options.out)}
    for kind in KINDS:
        for fleet in () if options.tables else options.fleets:
            if (str(fleet), kind) not in done:
                results.append(options.out, FIELDS, judge(fleet, kind, options.classifier))
    found = table(results.read(options.out))
    if options.out == RESULTS:
        pages.fill(PAGE, PART, found)
    print(found)
    return 0


def judge(fleet, kind, classifier=None):
    """Return a row for each setting: what `evaluate` expects of it, and what new machines show."""
    X, y, machine = make_fleet(fleet, NEW_ROWS)
    machine, number = machine + 1, np.tile(np.arange(NEW_ROWS), machine.max() + 1)
    seen = np.isin(machine, KNOWN) & (number < ROWS)
    model, how = OnlineDaDiL(classifier=classifier, random_state=0), KNOWLEDGE | KINDS[kind]
    clock = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = evaluate(model, X[seen], y[seen], machine[seen], **how)
        seconds = time.process_time() - clock
        tried = []
        for new in NEW:
            rows = seen | (machine == new)
            tried.append(evaluate(model, X[rows], y[rows], machine[rows], targets=[new], **how))
    chosen = expected.recommend().setting
    scores = zip(*(one.summary().settings for one in tried), strict=True)
    return [
        {
            "fleet": fleet,
            "kind": kind,
            "adapt": before.setting.way,
            "known": before.setting.describe_knowledge(),
            "recommended": int(before.setting == chosen),
            "expected": round(before.flowing, 4),
            "found": round(float(np.mean([one.flowing for one in after])), 4),
            "balanced": round(float(np.mean([one.balanced for one in after])), 4),
            "seconds": round(seconds, 1),
        }
        for before, after in zip(expected.summary().settings, scores, strict=True)
    ]


def table(rows):
    """Return how often the recommendation was the best setting, and what it cost where it was not."""
    lines = [
        HEAD,
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        fleets = [[r for r in rows if r["kind"] == kind and r["fleet"] == f] for f in map(str, FLEETS)]
        fleets = [fleet for fleet in fleets if fleet]
        if not fleets:
            continue
        chosen, plain, best = (np.array(part) for part in zip(*map(_compare, fleets), strict=True))
        behind = best - chosen
        lines.append(
            f"| {kind} | {len(fleets)} | {(behind <= EQUAL + 1e-9).sum()} | "
            f"{(behind <= 0).sum()} | {100 * behind.max():.1f} | "
            f"{100 * chosen.mean():.1f} | {100 * plain.mean():.1f} | {100 * best.mean():.1f} |"
        )
    return "\n".join(lines)


def _compare(fleet):
    """Return the scores of the recommended setting, of adapting without knowledge, and of the best."""
    found = {(row["adapt"], row["known"]): float(row["found"]) for row in fleet}
    chosen = next(float(row["found"]) for row in fleet if row["recommended"] == "1")
    return chosen, found["yes", "nothing"], max(found.values())


if __name__ == "__main__":
    sys.exit(main())
