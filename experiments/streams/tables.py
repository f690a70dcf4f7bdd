"""Tables of the page, and what the figures should reach."""

from __future__ import annotations

from functools import partial
from itertools import pairwise, product

import numpy as np

from experiments.streams import problems

#: Problems by their calibration.
GROUPS = {
    "Fleets": problems.FLEETS,
    "Sets, recalibrated": [name for name, moved in problems.SETS.items() if moved],
    "Sets, as they are": [name for name, moved in problems.SETS.items() if not moved],
}
PLAIN = ("raw", "standardised", "picked")
LABELS = ("1 label", "3 labels", "5 labels")
#: Given before the stream; shown beside the same streams without it.
GIVEN = ("baseline", "right prior", "wrong prior")
#: Problems for which there are bars, and these bars, by kind of stream and knowledge.
BARRED = ("fleet 0", "fleet 1", "fleet 2", "cstr7", "fsdd6", "cstr7 recalibrated", "cwru4 recalibrated")
BARS = {
    ("80 % one class", "none"): 89,
    ("80 % one class", "3 labels"): 94,
    ("95 % one class", "none"): 72,
    ("95 % one class", "3 labels"): 93,
    ("half of the classes", "none"): 85,
    ("half of the classes", "3 labels"): 93,
    ("one class", "3 labels"): 88,
}
#: Where streams are divided by what is claimed of them, in percent.
CLAIMS = (0, 50, 65, 80, 90, 100)
#: Points below not adapting that are harm; percent of a lasting fault that are enough.
HARM, FOUND = 2.0, 95.0
#: Percent of rows from which on a report names several explanations; percent right that are a failure,
#: and that are not.
AMBIGUOUS, FAILED, GOOD = 5.0, 50.0, 90.0


def select(rows, figure, **where):
    """Return a figure in percent by problem, target and kind of stream."""
    return {
        (row["problem"], row["target"], row["kind"]): 100.0 * float(row[figure])
        for row in rows
        if row.get(figure, "") != "" and all(row[name] in _tuple(value) for name, value in where.items())
    }


def _tuple(value):
    return (value,) if isinstance(value, str) else value


def adapting(rows):
    """Return the names of the methods that adapt."""
    return [name for name in dict.fromkeys(row["method"] for row in rows) if name not in PLAIN]


# -- the tables ------------------------------------------------------------------------------------


def accuracy(rows):
    """Return accuracy in percent by kind of stream, method and knowledge: a table for each group."""
    parts = []
    for title, names in GROUPS.items():
        mine = [row for row in rows if row["problem"] in names]
        lines = [(name, "end", select_line(mine, name, "end")) for name in PLAIN]
        for name in adapting(mine):
            lines += [
                (name, label, select_line(mine, name, figure))
                for figure, label in (
                    ("not_adapting", "not adapting"),
                    ("flowing", "flowing"),
                    ("end", "end"),
                )
            ]
            lines += [(name, label, select_line(mine, name, "end", label)) for label in LABELS]
            lines += [(name, label, select_line(mine, name, "end", label, True)) for label in GIVEN]
        parts.append(f"**{title}**\n\n{_table(('method', ''), lines)}")
    return "\n\n".join(parts)


def select_line(rows, method, figure, knowledge="none", compared=False):
    """Return a cell for each kind of stream."""
    cells = []
    for kind in problems.KINDS:
        found = select(rows, figure, method=method, kind=kind, knowledge=knowledge)
        if not found:
            cells.append("")
        elif compared:
            without = select(rows, figure, method=method, kind=kind, knowledge="none")
            gains = [found[key] - without[key] for key in found if key in without]
            cells.append(f"{np.mean(list(found.values())):.1f} ({mean(gains, '+.1f')})")
        else:
            cells.append(mean(found.values()))
    return cells


def claims(rows):
    """Return what the methods claim at the end, and where the end is worse than not adapting."""
    lines = []
    for name in adapting(rows):
        cells = {"claimed − end": [], "distance": [], "balanced": [], "harmed": []}
        for kind in problems.KINDS:
            claimed, end, balanced, before = (
                select(rows, figure, method=name, kind=kind, knowledge="none")
                for figure in ("claimed", "end", "balanced", "not_adapting")
            )
            errors = [claimed[key] - end[key] for key in end]
            cells["claimed − end"].append(mean(errors, "+.1f"))
            cells["distance"].append(mean(np.abs(errors)))
            cells["balanced"].append(mean(balanced.values()))
            cells["harmed"].append(f"{sum(end[key] < before[key] - HARM for key in end)} of {len(end)}")
        lines += [(name, label, found) for label, found in cells.items()]
    return _table(("method", ""), lines)


def trust(rows):
    """Return the accuracy of streams by what was claimed of them: mean, standard error and deviation."""
    lines = [
        "| method | claimed | streams | mean claim | accuracy | deviation |",
        "|---|---|---|---|---|---|",
    ]
    for name in adapting(rows):
        claimed, end = (
            select(rows, figure, method=name, kind=problems.KINDS, knowledge="none")
            for figure in ("claimed", "end")
        )
        for low, high in pairwise(CLAIMS):
            some = [key for key in end if low <= claimed[key] < high or claimed[key] == high == 100]
            if len(some) > 1:
                found = [end[key] for key in some]
                claim = np.mean([claimed[key] for key in some])
                cells = (
                    f"{low} to {high} %",
                    len(some),
                    f"{claim:.1f}",
                    mean(found),
                    f"{np.std(found):.1f}",
                )
                lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def faults(rows):
    """Return how much of a lasting fault is found at its end, with and without learning."""
    lines = ["| method | class prior | learning | not learning | lost |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(row["method"] for row in rows):
        for knowledge, label in (("none", "no"), ("normal prior", "85 % normal")):
            found = held(rows, name, knowledge)
            if found:
                cells = [mean([pair[i] for pair in found]) for i in (0, 1)]
                lost = sum(learning < FOUND <= frozen for learning, frozen in found)
                known = sum(frozen >= FOUND for _, frozen in found)
                lines.append(f"| {name} | {label} | {' | '.join(cells)} | {lost} of {known} |")
    return "\n".join(lines)


def held(rows, method, knowledge=("none", "normal prior")):
    """Return pairs: the share of a lasting fault found at its end, learning and not learning."""
    pairs = []
    for one in _tuple(knowledge):
        found, frozen = (
            select(rows, figure, method=method, kind=problems.FAULTS, knowledge=one)
            for figure in ("last", "last_not_learning")
        )
        pairs += [(found[key], frozen[key]) for key in found]
    return pairs


def _table(heads, lines):
    found = [f"| {' | '.join((*heads, *problems.KINDS))} |", "|---|---|" + "---|" * len(problems.KINDS)]
    found += [
        f"| {name} | {label} | {' | '.join(cells)} |" for name, label, cells in lines if any(cells)
    ]
    return "\n".join(found)


def mean(values, form=".1f"):
    """Return a mean and its standard error; nothing of nothing."""
    values = list(values)
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:{form}}"
    return f"{np.mean(values):{form}} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.1f}"


# -- what should be reached ------------------------------------------------------------------------


def bars(rows):
    """Return a line for each bar, with the methods of which there are figures."""
    found = {}
    for method in adapting(rows):
        for part in (_accuracy_bars, _baseline_bars, _harm_bars, _ambiguity_bars):
            for what, wanted, reached in part(rows, method):
                found.setdefault((what, wanted), []).append(f"{method} {reached}")
    return "\n".join(
        f"- {what} (wanted: {least}): {', '.join(all_)}." for (what, least), all_ in found.items()
    )


def _accuracy_bars(rows, method):
    rows = [row for row in rows if row["problem"] in BARRED]
    end = select(rows, "end", method=method, kind="as it is", knowledge="none")
    plain = select(rows, "end", method="standardised", kind="as it is")
    if gains := [end[key] - plain[key] for key in end if key in plain]:
        yield "As it is, above *standardised*", "−0.5 or more", mean(gains, "+.1f")
    for (kind, knowledge), least in BARS.items():
        if found := select(rows, "end", method=method, kind=kind, knowledge=knowledge):
            label = "without labels" if knowledge == "none" else f"after {knowledge}"
            yield f"{_capital(kind)}, {label}", f"{least} or more", mean(found.values())


def _baseline_bars(rows, method):
    given = select(rows, "end", method=method, kind=problems.KINDS, knowledge="baseline")
    without = select(rows, "end", method=method, kind=problems.KINDS, knowledge="none")
    for kind in problems.KINDS:
        if found := [given[key] for key in given if key[0] in problems.FLEETS and key[2] == kind]:
            yield f"{_capital(kind)}, fleets with a baseline", "92 or more", mean(found)
    gains = {}
    for key in given:
        gains.setdefault(key[0], []).append(given[key] - without[key])
    if gains:
        worst = min(gains, key=lambda name: np.mean(gains[name]))
        reached = f"{mean(gains[worst], '+.1f')} ({worst})"
        yield "Gain by a baseline on the problem where it is least", "−1 or more", reached


def _harm_bars(rows, method):
    if pairs := [pair for pair in held(rows, method) if pair[1] >= FOUND]:
        kept = f"{sum(learning >= FOUND for learning, _ in pairs)} of {len(pairs)}"
        yield "Lasting faults found while learning, of those found without", "all", kept
    end, before, claimed = (
        select(rows, figure, method=method, kind=problems.KINDS, knowledge="none")
        for figure in ("end", "not_adapting", "claimed")
    )
    if not claimed:
        return
    harmed = sum(end[key] < before[key] - HARM for key in end)
    yield "Streams more than 2 points below not adapting", "at most 1 of 10", f"{harmed} of {len(end)}"
    several = [key for key in end if key[2] != "one class"]
    harmed = sum(end[key] < before[key] - HARM for key in several)
    yield "... of streams with more than one class", "at most 1 of 10", f"{harmed} of {len(several)}"
    errors = {key: claimed[key] - end[key] for key in end}
    yield "Distance of claimed and true accuracy", "7 or less", mean(np.abs(list(errors.values())))
    by_kind = {
        kind: np.mean([error for key, error in errors.items() if key[2] == kind])
        for kind in problems.KINDS
        if any(key[2] == kind for key in errors)
    }
    worst = max(by_kind, key=by_kind.get)
    reached = f"{by_kind[worst]:+.1f} ({worst})"
    yield "Claimed above true accuracy in the kind of stream where it is most", "15 or less", reached


def _ambiguity_bars(rows, method):
    end, ambiguity, before = (
        select(rows, figure, method=method, kind=problems.KINDS, knowledge="none")
        for figure in ("end", "ambiguity", "not_adapting")
    )
    failed = [key for key in ambiguity if end[key] < FAILED and before[key] < FAILED]
    right = [key for key in ambiguity if end[key] >= GOOD]
    for what, wanted, some in (
        ("Streams that fail with and without adapting, reported as ambiguous", "all", failed),
        ("... and streams at least 90 % right", "few", right),
    ):
        if some:
            flagged = sum(ambiguity[key] >= AMBIGUOUS for key in some)
            yield what, wanted, f"{flagged} of {len(some)}"


def _capital(text):
    return text[0].upper() + text[1:]


def knowledge(rows, kinds_of_knowledge):
    """Return the accuracy of ours without → with some knowledge, on the same streams."""
    titles = ("made fleets", "sets, recalibrated", "sets")
    lines = []
    for words, (title, names) in product(kinds_of_knowledge, zip(titles, GROUPS.values(), strict=True)):
        mine, cells = [row for row in rows if row["problem"] in names], []
        for kind in problems.KINDS:
            without, found = (
                select(mine, "end", method="ours", kind=kind, knowledge=one) for one in ("none", words)
            )
            same = [(without[key], found[key]) for key in found if key in without]
            cells.append(" → ".join(f"{value:.1f}" for value in np.mean(same, axis=0)) if same else "")
        if any(cells):
            lines.append((words, title, cells))
    return _table(("known", ""), lines)


PAGE = "docs/benchmarks/own-calibration.md"
#: Page and function of each table, by the name of its place.
PARTS = {
    "streams": (PAGE, accuracy),
    "streams-claims": (PAGE, claims),
    "streams-trust": (PAGE, trust),
    "streams-faults": (PAGE, faults),
    "streams-bars": (PAGE, bars),
    "baselines": ("docs/guide/baselines.md", partial(knowledge, kinds_of_knowledge=("baseline",))),
    "priors": (
        "docs/guide/class-priors.md",
        partial(knowledge, kinds_of_knowledge=("right prior", "wrong prior")),
    ),
}
