"""Tables of the page."""

from __future__ import annotations

import numpy as np

from experiments.benchmark import methods, problems, scores, streams

#: The method that does not adapt, against which harm is measured; points below it that are harm.
REFERENCE, HARM = "raw", 2.0
#: Methods of this package, which are no rivals.
OWN = ("OnlineDaDiL", "DaDiL")


def comparable(rows, made=True):
    """Return the rows of problems that ours and the reference have finished, made ones or those of sets.

    A method that has not finished them all is left out until it has.
    """
    rows = [row for row in rows if (row["problem"] in problems.MADE) == made]
    done = {}
    for row in rows:
        if row["knowledge"] == "none":
            done.setdefault(row["method"], set()).add((row["problem"], row["kind"]))
    common = done.get(methods.OURS, set()) & done.get(REFERENCE, set())
    whole = {name for name, found in done.items() if common <= found | _unneeded(common, found)}
    return [row for row in rows if row["method"] in whole and (row["problem"], row["kind"]) in common]


def _unneeded(common, found):
    """Return what an offline method does not run: orders of the same rows."""
    if any(kind in streams.ORDERS for _, kind in found):
        return set()
    return {key for key in common if key[1] in streams.ORDERS}


def values(rows, figure, **where):
    """Return a figure in percent by problem and kind of stream; without knowledge unless it is named."""
    where = {"knowledge": "none"} | where
    return {
        (row["problem"], row["kind"]): 100.0 * float(row[figure])
        for row in rows
        if row.get(figure) not in ("", None) and all(row[name] == value for name, value in where.items())
    }


def mean(found, form=".1f"):
    """Return a mean and its standard error; nothing of nothing."""
    found = list(found)
    if not found:
        return ""
    if len(found) == 1:
        return f"{found[0]:{form}}"
    return f"{np.mean(found):{form}} ± {np.std(found, ddof=1) / np.sqrt(len(found)):.1f}"


def table(head, lines):
    rule = "|---|" + "---:|" * (len(head) - 1)
    return "\n".join(
        ["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)]
    )


def names(rows):
    """Return the methods of which there are figures."""
    found = {row["method"] for row in rows}
    return [name for name in methods.METHODS if name in found]


def _title(name):
    return f"**{name}**" if name == methods.OURS else name


def by_kind(rows, figure):
    """Return one line a method, one column a kind of stream; the last is the mean over kinds."""
    lines = []
    for name in names(rows):
        found = [values(rows, figure, method=name, kind=kind) for kind in streams.KINDS]
        if any(found):
            everywhere = all(found)
            overall = (
                f"{np.mean([np.mean(list(one.values())) for one in found]):.1f}" if everywhere else ""
            )
            lines.append((_title(name), *(mean(one.values()) for one in found), overall))
    return table(("method", *streams.KINDS, "mean"), lines)


def made_end(rows):
    return by_kind(comparable(rows), "end")


def made_flowing(rows):
    return by_kind(comparable(rows), "flowing")


def made_balanced(rows):
    return by_kind(comparable(rows), "end_balanced")


def knowledge(rows):
    """Return accuracy at the end by what is known, over all kinds of streams that have it."""
    rows, lines = comparable(rows), []
    for name in names(rows):
        cells = []
        for one in scores.KNOWLEDGE:
            given = values(rows, "end", method=name, knowledge=one)
            if one == "class prior":
                without = values(rows, "end", method=name)
                gain = [given[key] - without[key] for key in given if key in without]
                cells.append(f"{mean(given.values())} ({mean(gain, '+.1f')})" if given else "")
            else:
                cells.append(mean(given.values()))
        if any(cells[1:]):
            lines.append((_title(name), *cells))
    return table(("method", *scores.KNOWLEDGE), lines)


def trust(rows):
    """Return how far claims are from the truth, how often a method harms, and how fast it is."""
    rows, lines = comparable(rows), []
    before = values(rows, "end", method=REFERENCE)
    for name in names(rows):
        end, claimed = (values(rows, figure, method=name) for figure in ("end", "claimed"))
        both = [key for key in end if key in before]
        harmed = sum(end[key] < before[key] - HARM for key in both)
        errors = [claimed[key] - end[key] for key in claimed]
        seconds = [
            (float(row["rows"]), float(row["seconds"]))
            for row in rows
            if row["method"] == name and row["knowledge"] == "none" and row["seconds"]
        ]
        speed = sum(n for n, _ in seconds) / max(sum(s for _, s in seconds), 1e-9) if seconds else 0.0
        lines.append(
            (
                _title(name),
                mean(np.abs(errors)),
                mean(errors, "+.1f"),
                "–" if name == REFERENCE else f"{harmed} of {len(both)}",
                f"{_rounded(speed):,}" if seconds else "",
            )
        )
    head = ("method", "distance of claim and truth", "claim − truth", "harmed", "rows a second")
    return table(head, lines)


def _rounded(value):
    """Return a number with one digit that counts."""
    digits = int(np.floor(np.log10(max(value, 1.0))))
    return int(round(value, -digits))


def losses(rows):
    """Return, by kind of stream, the best rival on average in hindsight, and ours against it."""
    rows, lines = comparable(rows), []
    for figure in ("end", "flowing"):
        for kind in streams.KINDS:
            ours = values(rows, figure, method=methods.OURS, kind=kind)
            rivals = {
                name: found
                for name in names(rows)
                if name not in OWN and (found := values(rows, figure, method=name, kind=kind))
            }
            rivals = {name: found for name, found in rivals.items() if ours.keys() <= found.keys()}
            if not ours or not rivals:
                continue
            best = max(rivals, key=lambda name: np.mean([rivals[name][key] for key in ours]))
            gaps = {key: ours[key] - rivals[best][key] for key in ours}
            worst = min(gaps, key=gaps.get)
            lines.append(
                (
                    kind,
                    "at the end" if figure == "end" else "flowing",
                    best,
                    mean([rivals[best][key] for key in ours]),
                    mean(ours.values()),
                    mean(gaps.values(), "+.1f"),
                    f"{gaps[worst]:+.1f} ({worst[0]})",
                )
            )
    head = ("stream", "", "best rival", "it has", "OnlineDaDiL", "difference", "worst problem")
    return table(head, lines)


def by_group(rows):
    """Return accuracy at the end by problem, over all kinds of streams; the best in bold."""
    rows = comparable(rows)
    groups = list(dict.fromkeys(problems.group(name) for name in problems.MADE))
    lines = []
    for name in names(rows):
        end = values(rows, "end", method=name)
        if not any(kind in streams.ORDERS for _, kind in end):
            continue  # an offline method, with fewer kinds of streams
        cells = [mean([v for key, v in end.items() if problems.group(key[0]) == one]) for one in groups]
        lines.append((_title(name), *cells))
    return table(("method", *groups), lines)


def sets(rows):
    """Return accuracy at the end on the sets that were read: one line a set, for the methods there."""
    rows = comparable(rows, made=False)
    return by_kind(rows, "end") if rows else "No results of sets are in the repository."


def sets_each(rows):
    """Return ours on each set: means over targets and kinds of streams, by what is known."""
    rows, lines = comparable(rows, made=False), []
    for one in problems.SETS:
        mine = [row for row in rows if problems.group(row["problem"]) == one]
        if not mine:
            continue
        cells = [mean(values(mine, "end", method=REFERENCE).values())]
        cells += [mean(values(mine, "end", method="picked").values())]
        cells += [mean(values(mine, "flowing", method=methods.OURS).values())]
        cells += [
            mean(values(mine, "end", method=methods.OURS, knowledge=k).values())
            for k in ("none", "3 labels", "baseline")
        ]
        lines.append((one, *cells))
    head = ("set", "raw", "picked", "ours, flowing", "ours, end", "ours, 3 labels", "ours, baseline")
    return table(head, lines) if lines else "No results of sets are in the repository."


def _link(address):
    return f"<{address}>" if address.startswith("http") else address


def known_sets(_):
    """Return the sets that the benchmark knows."""
    lines = [
        (name, one.what, _link(one.address), one.licence, one.loader, f"`{one.sha256[:16]}`")
        for name, one in problems.SETS.items()
    ]
    rule = "|---|" + "---|" * 5
    head = "| set | what it is | address | licence | rows | sha256 |"
    return "\n".join([head, rule, *("| " + " | ".join(line) + " |" for line in lines)])


#: By the name of their place in the page.
PARTS = {
    "benchmark-end": made_end,
    "benchmark-flowing": made_flowing,
    "benchmark-balanced": made_balanced,
    "benchmark-problems": by_group,
    "benchmark-knowledge": knowledge,
    "benchmark-trust": trust,
    "benchmark-losses": losses,
    "benchmark-known-sets": known_sets,
    "benchmark-sets": sets,
    "benchmark-each-set": sets_each,
}
