"""The table of results in the README, from two experiments: ``python -m experiments.readme``."""

from __future__ import annotations

import numpy as np

from benchmarks import pages
from experiments.msda import tables as msda
from experiments.msda.methods import PICKED
from experiments.tep import tables as tep

MSDA, TEP = (f"experiments/{name}/results/{name}.csv" for name in ("msda", "tep"))
SETS = {
    "cstr7": "stirred-tank reactor, 13 faults",
    "gas_drift8": "gas sensors that drift",
    "cwru4": "bearings at four loads",
    "digits4": "four collections of digits",
    "mgr": "music in noise",
    "affine": "synthetic",
}
HEAD = (
    "target domains of", "not adapting", "picked classifier", "best rival, in hindsight",
    "**OnlineDaDiL**, flowing", "**OnlineDaDiL**, end",
)  # fmt: skip


def results_table() -> str:
    """Return mean accuracies over target domains, in percent: ours and the strongest rivals."""
    lines = ["| " + " | ".join(HEAD) + " |", "|---|" + "---:|" * (len(HEAD) - 1)]
    lines.append(_line("a chemical plant, 28 faults", *_plant(msda.read(pages.ROOT / TEP))))
    rows = msda.read(pages.ROOT / MSDA)
    lines += [_line(words, *_set(rows, name)) for name, words in SETS.items()]
    return "\n".join(lines)


def _line(words, *figures):
    """Return a line of the table, with the best figure in bold."""
    shown = ["–" if figure is None else f"{figure:.1f}" for figure in figures]
    best = max((one for one in shown if one != "–"), key=float)
    return f"| {words} | " + " | ".join(f"**{one}**" if one == best else one for one in shown) + " |"


def _plant(rows):
    """Return the figures of the plant: the mean of six modes, on the runs kept back in the first fold.

    Rivals were run on all folds, ours on the first.
    """
    rows = [r for r in rows if r["encoder"] == "fcn" and r["fold"] == "0"]
    found = {
        words: float(np.mean(list(values.values())))
        for words, figure, where in tep.lines_of("shuffled")
        if (values := tep.means(rows, figure, **where))
    }
    flowing, end = (found[f"**OnlineDaDiL: {when}**"] for when in ("while it flows", "end of stream"))
    best = max(found[name] for name in tep.RIVALS if name in found)
    return found["OnlineDaDiL: not adapting"], None, best, flowing, end


def _set(rows, name):
    """Return the figures of a set: the mean over its targets, shuffled streams."""
    rows = [r for r in rows if r["set"] == name]

    def mean(figure, **where):
        found = msda.values(rows, figure, **where)
        return float(np.mean([100 * v for v in found.values()])) if len(found) == n_targets else None

    n_targets = len({(r["target"], r["split"]) for r in rows})
    ours = {"method": "ours", "order": "shuffled"}
    rivals = {r["method"] for r in rows} - {
        "target-trained LR",
        *(m for m in msda.ONLINE if m != PICKED),
    }
    scores = [
        mean(figure, method=rival, **where)
        for rival in rivals
        if not rival.startswith("DaDiL")
        for figure, where in (("offline", {}), ("end", {"order": "shuffled"}))
    ]
    best = max(score for score in scores if score is not None)
    picked = mean("end", method=PICKED, order="shuffled")
    return mean("not_adapting", **ours), picked, best, mean("flowing", **ours), mean("end", **ours)


if __name__ == "__main__":
    pages.fill("README.md", "results", results_table())
