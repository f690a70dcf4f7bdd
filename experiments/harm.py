"""Streams against not adapting on the same rows: means, and how many are harmed."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from experiments.mixes import TELLING

#: Points below not adapting from which a stream counts as harmed.
HARMED = 2.0


def matching(rows, **where):
    return [r for r in rows if all(r[name] == value for name, value in where.items())]


def grouped(rows, *names):
    """Return the rows that were scored on their own stream, by columns and by whether they can tell.

    The last item of each key is true for streams with rows enough to tell.
    """
    found = defaultdict(list)
    for r in rows:
        if r["not_adapting"] != "":
            found[*(r[name] for name in names), int(r["rows"]) >= TELLING].append(r)
    return found


def mean(rows, figure):
    """Return the mean of a figure in percent; not a number where there is none."""
    found = [100 * float(r[figure]) for r in rows if r[figure] != ""]
    return float(np.mean(found)) if found else float("nan")


def gaps(rows, figure):
    """Return by how many points each stream is above not adapting on the same rows."""
    return np.array([100 * (float(r[figure]) - float(r["not_adapting"])) for r in rows])


def harmed(rows, figure):
    return int((gaps(rows, figure) < -HARMED).sum())


def size_words(tells):
    return "" if tells else f" (under {TELLING} rows)"


def in_words(rows, figures, group, target):
    """Yield a sentence for each figure and size of stream: which means and how many are harmed.

    `group` names the columns that make a mean, `target` those that tell targets apart; a target's gap is
    the mean of its streams' gaps.
    """
    for figure, words in figures:
        for tells in (True, False):
            some = [r for key, found in grouped(rows).items() if key[-1] == tells for r in found]
            if some:
                size = f"at least {TELLING}" if tells else f"fewer than {TELLING}"
                yield f"{words}, streams of {size} rows: {_sentence(some, figure, group, target)}"


def _sentence(rows, figure, group, target):
    means = {key[:-1]: gaps(some, figure).mean() for key, some in grouped(rows, *group).items()}
    low = [f"{', '.join(key)} {gap:+.1f}" for key, gap in means.items() if gap < 0]
    targets = [gaps(some, figure).mean() < -HARMED for some in grouped(rows, *group, *target).values()]
    return (
        f"{len(low)} of {len(means)} means are below not adapting on the same rows"
        f"{' (' + '; '.join(low) + ')' if low else ''}; {sum(targets)} of {len(targets)} targets "
        f"({np.mean(targets):.0%}) and {harmed(rows, figure)} of {len(rows)} single streams are more "
        f"than {HARMED:.0f} points below, worst {gaps(rows, figure).min():+.1f}."
    )
