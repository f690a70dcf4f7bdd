"""The main job in small: sources are learned, a stream flows past, the classifier follows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from baryflow.datasets import Domains, make_domains
from baryflow.estimators.classifier import MixtureClassifier
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.validation import Floats, Integers

BATCH = 32


@dataclass(frozen=True)
class Progress:
    """Where the demo stands after a batch."""

    n_rows: int
    n_rows_total: int
    adapted: float  # share of correct predictions so far, each made before the row was learned from
    source_only: float
    trust: float
    shares: dict[int, float]  # which sources the target resembles


@dataclass(frozen=True)
class Outcome:
    """What the demo found."""

    history: tuple[Progress, ...]
    source_only: float
    after_stream: float
    target_trained: float
    report: str
    mixing: Floats  # the true shares of the sources


def problem(random_state: int = 0) -> Domains:
    """Return the demo's data: four operating modes known, a fifth one flowing in."""
    return make_domains(n_per_class=120, random_state=random_state)


def stream(data: Domains) -> Iterator[Progress | Outcome]:
    """Run the demo; yield the progress after every batch and the outcome at the end."""
    model = OnlineDaDiL(random_state=0).fit(data.X, data.y, sample_domain=data.domain)
    before = model.predict(data.X_target)  # no target row was seen yet
    right = []
    history = []
    for start in range(0, len(data.X_target), BATCH):
        X, y = data.X_target[start : start + BATCH], data.y_target[start : start + BATCH]
        right.append(model.predict(X) == y)  # test ...
        model.partial_fit(X)  # ... then train
        n = start + len(X)
        progress = Progress(
            n_rows=n,
            n_rows_total=len(data.X_target),
            adapted=float(np.concatenate(right).mean()),
            source_only=float((before[:n] == data.y_target[:n]).mean()),
            trust=model.trust_,
            shares=model.resemblance_,
        )
        history.append(progress)
        yield progress
    model.refine()
    yield Outcome(
        history=tuple(history),
        source_only=float((before == data.y_target).mean()),
        after_stream=float(model.score(data.X_target, data.y_target)),
        target_trained=_target_trained(data.X_target, data.y_target),
        report=model.report(),
        mixing=data.mixing,
    )


def _target_trained(X: Floats, y: Integers) -> float:
    """Return the accuracy of a classifier trained on the labels of half of the target."""
    even = np.arange(len(X)) % 2 == 0
    scores = [
        MixtureClassifier(random_state=0).fit(X[half], y[half]).score(X[~half], y[~half])
        for half in (even, ~even)
    ]
    return float(np.mean(scores))


def draw(outcome: Outcome, path: str) -> None:
    """Write one figure: accuracy along the stream, and which sources the target resembles."""
    from matplotlib.figure import Figure

    rows = [progress.n_rows for progress in outcome.history]
    figure = Figure(figsize=(9.5, 3.8), layout="constrained", dpi=150)
    left, right = figure.subplots(1, 2)
    left.plot(rows, [p.adapted for p in outcome.history], color="#0b6e99", label="adapting")
    left.plot(rows, [p.source_only for p in outcome.history], color="#b3541e", label="source-only")
    left.axhline(outcome.target_trained, color="0.4", ls=":", label="trained on target labels")
    left.set(xlabel="target rows seen", ylabel="accuracy so far (predict, then learn)")
    left.set_ylim(top=1.01)
    left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8)
    colors = ("#0b6e99", "#b3541e", "#4d8a3d", "#7a4b94")
    for number, name in enumerate(sorted(outcome.history[-1].shares)):
        shares = [p.shares[name] for p in outcome.history]
        color = colors[number % len(colors)]
        right.plot(rows, shares, color=color, label=f"mode {name}")
        right.axhline(outcome.mixing[number], color=color, ls=":", lw=1)
    right.set(xlabel="target rows seen", ylabel="share of each source (dotted: true)", ylim=(0, 1))
    right.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
