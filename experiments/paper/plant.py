"""The paper's Fig. 3 and the table of all six modes: Online GMM-DaDiL on the Tennessee Eastman plant."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace

import numpy as np
from sklearn.linear_model import LogisticRegression

from baryflow.paper import GMMDaDiL, OnlineGMMDaDiL, empirical_risk
from experiments import results
from experiments.benchmark.methods.plain import standardise
from experiments.tep import problems

BATCH = 32
#: Steps after the end of the stream, and how often accuracy is measured then.
AFTER, EVERY = 300, 10
#: What is run beside the default configuration; on mode 1 only, the paper's.
SETTINGS = {
    "default": {},
    "one step a batch": {"batch_steps": 1},
    "sizes of the toy": {"min_components": 5, "batch_components": 3},
    "Adam": {"optimizer": "adam"},
    "Adam, one step a batch": {"optimizer": "adam", "batch_steps": 1},
}
MODES = (1, 2, 3, 4, 5, 6)
KEY = ("setting", "mode", "fold")
FIELDS = (
    *KEY, "source_only", "flowing", "end", "after_100", "after_300", "offline",
    "loss_end", "loss_after_100", "loss_after_300", "loss_offline",
)  # fmt: skip
CURVE_FIELDS = (*KEY, "method", "phase", "step", "loss", "accuracy")
PAGE = "docs/method/paper.md"


def run(folder, modes, folds, features):
    """Do what is not in the tables yet; every fold is appended as soon as it is done."""
    done = {tuple(row[name] for name in KEY) for row in results.read(folder / "plant.csv")}
    for mode in modes:
        whole = problems.read(mode, features)
        for setting in SETTINGS if mode == 1 else ("default",):
            for fold in folds:
                key = (setting, str(mode), str(fold))
                if key in done:
                    continue
                stem = dict(zip(KEY, key, strict=True))
                figures, curve = one_fold(problems.problem(*whole, fold), SETTINGS[setting])
                # The curve first: the table says what is done.
                if (setting, mode) == ("default", 1):  # Fig. 3
                    drop(folder / "plant-curves.csv", key)
                    results.append(folder / "plant-curves.csv", CURVE_FIELDS, [stem | r for r in curve])
                results.append(folder / "plant.csv", FIELDS, [stem | figures])
                print(*key, figures["end"], file=sys.stderr, flush=True)


def drop(path, key):
    """Remove a curve whose fold was not finished."""
    rows = results.read(path)
    kept = [row for row in rows if tuple(row[name] for name in KEY) != key]
    if len(kept) < len(rows):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, CURVE_FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept)


def on_one_scale(p):
    """Return the problem with columns standardised by the pooled sources."""
    return replace(
        p,
        Xs=standardise(p.Xs),
        X=standardise(p.X, p.Xs),
        X_held=standardise(p.X_held, p.Xs),
    )


def one_fold(p, setting):
    """Return the figures of one fold and the curves of Fig. 3; accuracy is on the rows kept back."""
    p, after, every = on_one_scale(p), AFTER, EVERY
    flow, curve, right = problems.stream(p, "shuffled"), [], []

    def accuracy(model):
        return round(1.0 - empirical_risk(model.predict(p.X_held), p.y_held), 5)

    def watch(model, method, phase, steps, known):
        losses = model.loss_curve_[-steps:, -1]
        score = accuracy(model)
        for i, loss in enumerate(losses):
            last = i == len(losses) - 1
            curve.append(
                {"method": method, "phase": phase, "step": known + i, "loss": f"{loss:.5g}"}
                | {"accuracy": score if last else ""}
            )
        return score, round(float(losses[-1]), 5)

    online = OnlineGMMDaDiL(random_state=p.fold, **setting).fit(p.Xs, p.ys, p.domain)
    size, n = online.batch_steps, 0
    for start in range(0, len(flow.y), BATCH):
        X, y = flow.X[start : start + BATCH], flow.y[start : start + BATCH]
        right.append(online.predict(X) == y)
        end = watch(online.partial_fit(X), "online", "stream", size, n)
        n += size
    found = {0: end}
    for step in range(every, after + 1, every):
        found[step] = watch(online.optimise(every), "online", "after", every, n + step - every)

    last = ("", "")
    if "optimizer" in setting or not setting:  # other settings are of the stream: offline has the same
        offline = GMMDaDiL(n_steps=0, random_state=p.fold, optimizer=online.optimizer).fit(
            np.concatenate([p.Xs, flow.X]),
            np.concatenate([p.ys, np.zeros_like(flow.y)]),
            np.concatenate([p.domain, np.full(len(flow.y), -1)]),
        )
        for step in range(0, n + after, every):
            some = min(every, n + after - step)
            last = watch(offline.optimise(some), "offline", "offline", some, step)
    half = min(100, after)
    return {
        "source_only": accuracy(LogisticRegression().fit(p.Xs, p.ys)),
        "flowing": round(float(np.concatenate(right).mean()), 5),
        "end": found[0][0],
        "after_100": found[half][0],
        "after_300": found[after][0],
        "offline": last[0],
        "loss_end": found[0][1],
        "loss_after_100": found[half][1],
        "loss_after_300": found[after][1],
        "loss_offline": last[1],
    }, curve


def tables(rows):
    """Return the tables of the page by name."""
    return {"paper-settings": settings_table(rows), "paper-modes": modes_table(rows)}


def _cell(rows, figure):
    found = 100 * np.array([float(r[figure]) for r in rows if r[figure] != ""])
    if not found.size:
        return "as above"
    return f"{found.mean():.1f} ± {2 * found.std():.1f}"


def _loss(rows, figure):
    found = [float(r[figure]) for r in rows if r[figure] != ""]
    return f"{np.mean(found):.2f}" if found else "as above"


def _cells(rows):
    shown = ("source_only", "flowing", "end", "after_100", "after_300", "offline")
    return [_cell(rows, figure) for figure in shown]


def settings_table(rows):
    """Mode 1: accuracy in %, mean ± 2σ over the folds, and the losses."""
    lines = [
        "| setting | source only | flowing | end | +100 | +300 | offline | loss: end | +300 | offline |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        mine = [r for r in rows if (r["setting"], r["mode"]) == (setting, "1")]
        if mine:
            losses = [_loss(mine, figure) for figure in ("loss_end", "loss_after_300", "loss_offline")]
            lines.append("| " + " | ".join([setting, *_cells(mine), *losses]) + " |")
    return "\n".join(lines)


def modes_table(rows):
    """All modes with the default configuration: accuracy in %, mean ± 2σ over the folds."""
    lines = [
        "| target | source only | flowing | end | +100 | +300 | offline |",
        "|---|---|---|---|---|---|---|",
    ]
    mine = [r for r in rows if r["setting"] == "default"]
    by_mode = {
        mode: [r for r in mine if r["mode"] == mode] for mode in sorted({r["mode"] for r in mine})
    }
    lines += [f"| mode {mode} | " + " | ".join(_cells(some)) + " |" for mode, some in by_mode.items()]
    means = [
        f"{100 * np.mean([float(r[figure]) for r in mine]):.1f}"
        for figure in ("source_only", "flowing", "end", "after_100", "after_300", "offline")
    ]
    return "\n".join([*lines, "| mean | " + " | ".join(means) + " |"])
