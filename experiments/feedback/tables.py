"""The tables of ``docs/method/feedback.md``."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from experiments.feedback import parts, problems, rivals

PAGE = "docs/method/feedback.md"
PATH = Path(__file__).parent / "results" / "feedback.csv"
FIXED = tuple(", ".join((*member, weight)) for member in rivals.MEMBERS for weight in rivals.SHARES)


def read(path=PATH):
    if not Path(path).exists():
        return []
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def select(rows, **values):
    return [r for r in rows if all(r[name] == str(value) for name, value in values.items())]


def mean(rows, field):
    """Return the mean in percent over targets, each the mean of its rows; NaN without any."""
    groups = {}
    for r in rows:
        if r[field] not in ("", "nan"):
            groups.setdefault((r["target"], r["split"]), []).append(float(r[field]))
    return 100.0 * float(np.mean([np.mean(group) for group in groups.values()])) if groups else np.nan


def sets(rows):
    return [which for which in problems.SETS if any(r["set"] == which for r in rows)]


def number_of_targets(rows):
    return len({(r["target"], r["split"]) for r in rows})


def table(heads, lines, n_words=1):
    shape = "|---" * n_words + "|---:" * (len(heads) - n_words) + "|"
    return "\n".join(
        [f"| {' | '.join(heads)} |", shape, *(f"| {' | '.join(map(str, line))} |" for line in lines)]
    )


def figures(*values):
    return [f"{value:.1f}" if np.isfinite(value) else "–" for value in values]


def best_fixed(rows):
    """Return the plain classifier and weight that are best on average over all numbers of labels."""
    return max(FIXED, key=lambda name: mean(select(rows, method=name), "accuracy"))


def labels_figures(rows, which, k):
    """Return accuracies of feedback, no labels, plain, plain at its best, and labels alone."""
    ours = select(rows, part="labels", set=which, detail=k)
    own = select(rows, part="rivals", set=which)
    names = "plain, chosen", best_fixed(own), "labels alone"
    others = (mean(select(own, detail=k, method=name), "accuracy") for name in names)
    return [mean(ours, "accuracy"), mean(ours, "before"), *others]


def labels_table(rows):
    """One line a set and number of labels per class."""
    heads = (
        "set", "targets", "labels per class", "feedback", "no labels", "sources + labels",
        "... at its best", "labels alone", "feedback − best of all",
    )  # fmt: skip
    lines = []
    for which in sets(select(rows, part="labels")):
        n = number_of_targets(select(rows, part="labels", set=which))
        for k in parts.PER_CLASS:
            found = labels_figures(rows, which, k)
            lines.append((which, n, k, *figures(*found), f"{found[0] - max(found[1:]):+.1f}"))
    return table(heads, lines)


def rivals_table(rows):
    """One line a set: which plain classifier and weight are best."""
    names = sets(select(rows, part="rivals"))
    lines = [(which, best_fixed(select(rows, part="rivals", set=which))) for which in names]
    return table(("set", "sources + labels, at its best"), lines, 2)


def rounds_needed(drawn, value):
    """Return after how many rounds of random choice an accuracy is reached, between rounds linearly.

    `drawn` are accuracies after no round and after those of ``parts.DRAWN``. If it is never reached, it
    is the last round.
    """
    rounds, best = (0, *parts.DRAWN), np.maximum.accumulate(drawn)
    after = int(np.argmax(best >= value)) if value <= best[-1] else len(best) - 1
    if after == 0 or best[after] <= best[after - 1]:
        return float(rounds[after])
    share = min((value - best[after - 1]) / (best[after] - best[after - 1]), 1.0)
    return rounds[after - 1] + share * (rounds[after] - rounds[after - 1])


def curve(rows, method, rounds):
    """Return the accuracy after no label and after each round, mean over targets.

    Where a target has no rows left to label, the last accuracy stays.
    """
    found = []
    for target, split in {(r["target"], r["split"]) for r in rows}:
        own = select(rows, method=method, target=target, split=split)
        values = [mean(own, "before")]
        for n in rounds:
            value = mean(select(own, detail=n), "accuracy")
            values.append(value if np.isfinite(value) else values[-1])
        found.append(values)
    return np.mean(found, axis=0)


def query_lines(which, asked, drawn):
    """Yield a line for each number of rounds: accuracies, and rounds of random choice for the same."""
    for n, value in zip(parts.QUERIED, asked[1:], strict=True):
        needed = rounds_needed(drawn, value)
        at_random = drawn[1 + parts.DRAWN.index(n)]
        yield which, n, *figures(value, at_random, needed, needed / n)


def query_table(rows):
    """One line a set and number of rounds; then for the mean of all sets."""
    heads = ("set", "rounds", "query", "random", "rounds of random for the same", "ratio")
    rows = select(rows, part="query")
    names, lines = sets(rows), []
    asked = [curve(select(rows, set=which), "query", parts.QUERIED) for which in names]
    drawn = [curve(select(rows, set=which), "random", parts.DRAWN) for which in names]
    for which, *both in zip(names, asked, drawn, strict=True):
        lines += query_lines(which, *both)
    if names:
        lines += query_lines("mean of all sets", np.mean(asked, axis=0), np.mean(drawn, axis=0))
    return table(heads, lines)


def wrong_table(rows):
    """One line a set and number of labels per class."""
    heads = ("set", "labels per class", "no labels", "all right", "10 % wrong", "cost")
    lines = []
    for which in sets(select(rows, part="wrong")):
        for k in parts.WRONG_PER_CLASS:
            own = select(rows, part="wrong", set=which, detail=k)
            right, wrong = (mean(select(own, method=m), "accuracy") for m in ("right", "wrong"))
            lines.append((which, k, *figures(mean(own, "before"), right, wrong, right - wrong)))
    return table(heads, lines)


def biased_table(rows):
    """One line a set and way of choosing: gain in points, on average and in the worst run."""
    heads = ("set", "labels", "runs", "before", "after", "gain", "least gain of a target")
    lines = []
    ways = [("errors alone", n) for n in parts.CORRECTED] + [("one class alone", None)]
    for which in sets(select(rows, part="biased")):
        for method, n in ways:
            own = select(rows, part="biased", set=which, method=method)
            own = own if n is None else select(own, detail=n)
            if not own:
                continue
            names = {(r["target"], r["split"]) for r in own}
            each = [select(own, target=target, split=split) for target, split in names]
            least = min(mean(some, "accuracy") - mean(some, "before") for some in each)
            before, after = mean(own, "before"), mean(own, "accuracy")
            words = f"{parts.OF_ONE_CLASS} of one class" if n is None else f"{n} errors"
            lines.append((which, words, len(own), *figures(before, after, after - before, least)))
    return table(heads, lines, 2)


def many_table(rows):
    """One line some hundred calls."""
    own = select(rows, part="many")
    lines = [
        (
            f"{int(r['n_labels']):,}",
            f"{int(r['bytes']) / 1024:.0f}",
            f"{1000 * float(r['seconds']):.0f}",
            f"{100 * float(r['accuracy']):.1f}",
        )
        for r in own
        if int(r["n_labels"]) in (1, 500, 1000, 2000, 4000, 6000, 8000, 10_000)
    ]
    return table(("calls", "KiB of state", "ms per call", "accuracy"), lines, 0)


def new_class_table(rows):
    """One line a set and kind of labels; recall of target-trained models beside it."""
    heads = (
        "set", "labels", "classes", "recall", "target-trained", "recall reaches 90 % of it",
        "false alarms", "known rows before", "after",
    )  # fmt: skip
    lines = []
    for which in sets(select(rows, part="new class")):
        own = select(rows, part="new class", set=which)
        trained = select(own, method="target-trained")
        for method, words in (
            ("alone", f"{parts.OF_NEW_CLASS} of it"),
            ("and others", f"{parts.OF_NEW_CLASS} of it, {parts.BESIDE} at random"),
        ):
            some = select(own, method=method)
            reached = [reaches(own, method, *one) for one in sorted({of(r) for r in some})]
            lines.append(
                (
                    which,
                    words,
                    len(reached),
                    *figures(mean(some, "recall"), mean(trained, "recall")),
                    f"{sum(reached)} of {len(reached)}",
                    *figures(mean(some, "false_alarms"), mean(some, "before"), mean(some, "accuracy")),
                )
            )
    return table(heads, lines, 2)


def of(row):
    return row["target"], row["split"], row["left_out"]


def reaches(rows, method, target, split, left_out):
    """Return whether the recall of a new class is 90 % of that of a target-trained model."""
    own = select(rows, target=target, split=split, left_out=left_out)
    ours, trained = (mean(select(own, method=m), "recall") for m in (method, "target-trained"))
    return bool(ours >= 0.9 * trained)


TABLES = {
    "labels": labels_table,
    "rivals": rivals_table,
    "query": query_table,
    "wrong": wrong_table,
    "biased": biased_table,
    "many": many_table,
    "new class": new_class_table,
}
