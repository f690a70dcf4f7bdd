"""The main job in small: sources are learned, a stream flows past, the classifier follows it.

Until the dictionary does this better, the target is taken to be a barycenter of the sources themselves:
its mixture is kept up to date batch by batch, the coordinates are those whose barycenter is nearest to
it, and the rows are classified with that labelled barycenter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from baryflow.core.barycenter import barycenter
from baryflow.core.compress import compress
from baryflow.core.em import fit_mixture
from baryflow.core.mixture import Mixture
from baryflow.core.transport import mw2_squared, smw2_squared
from baryflow.datasets import Domains, make_domains
from baryflow.estimators.classifier import MixtureClassifier
from baryflow.validation import Floats, Integers

BATCH = 32
MAX_COMPONENTS = 24
#: Rows the target's mixture must stand for before its coordinates are believed.
PATIENCE = 96


@dataclass(frozen=True)
class Progress:
    """Where the demo stands after a batch."""

    n_rows: int
    n_rows_total: int
    adapted: float  # share of correct predictions so far, each made before the row was learned from
    source_only: float
    coordinates: Floats


@dataclass(frozen=True)
class Outcome:
    """What the demo found."""

    history: tuple[Progress, ...]
    source_only: float
    after_stream: float
    target_trained: float
    mixing: Floats


def problem(random_state: int = 0) -> Domains:
    """Return the demo's data: four operating modes known, a fifth one flowing in."""
    return make_domains(n_per_class=120, random_state=random_state)


def stream(data: Domains) -> Iterator[Progress | Outcome]:
    """Run the demo; yield the progress after every batch and the outcome at the end."""
    sources = source_mixtures(data)
    pooled = MixtureClassifier(random_state=0).fit(data.X, data.y)
    coordinates = np.full(len(sources), 1.0 / len(sources))
    reconstruction: Mixture | None = None
    target: Mixture | None = None
    n, correct, correct_pooled = 0, 0, 0
    history = []
    for start in range(0, len(data.X_target), BATCH):
        X, y = data.X_target[start : start + BATCH], data.y_target[start : start + BATCH]
        before = pooled.predict(X)
        n += len(X)
        correct_pooled += int((before == y).sum())
        correct += int(((before if reconstruction is None else reconstruction.predict(X)) == y).sum())

        batch = fit_mixture(X, len(X), std_floor=0.1)  # every row a component, then compressed
        target = compress(
            batch if target is None else Mixture.concatenate([target, batch]), MAX_COMPONENTS
        )
        if n >= PATIENCE:
            coordinates = fit_coordinates(target, sources, coordinates)
            reconstruction = barycenter(sources, coordinates)
        progress = Progress(n, len(data.X_target), correct / n, correct_pooled / n, coordinates)
        history.append(progress)
        yield progress
    final = reconstruction or pooled.mixture_
    yield Outcome(
        history=tuple(history),
        source_only=float((pooled.predict(data.X_target) == data.y_target).mean()),
        after_stream=float((final.predict(data.X_target) == data.y_target).mean()),
        target_trained=_target_trained(data.X_target, data.y_target),
        mixing=data.mixing,
    )


def source_mixtures(data: Domains) -> list[Mixture]:
    """Return one labelled mixture for each source domain."""
    return [
        MixtureClassifier(random_state=0)
        .fit(data.X[data.domain == domain], data.y[data.domain == domain])
        .mixture_
        for domain in np.unique(data.domain)
    ]


def fit_coordinates(
    target: Mixture, sources: list[Mixture], coordinates: Floats, n_steps: int = 3
) -> Floats:
    """Return coordinates whose barycenter of the sources is nearer to the target.

    With all plans held fixed the distance is a quadratic in the coordinates; each step solves the
    plans and then minimises that quadratic on the simplex.
    """
    for _ in range(n_steps):
        current = barycenter(sources, coordinates)
        _, plan = mw2_squared(current, target, return_plan=True)
        wanted = (
            np.concatenate([plan @ target.means, plan @ target.stds], axis=1) / current.weights[:, None]
        )
        sent = []
        for source in sources:
            _, to_source = smw2_squared(current, source, return_plan=True)
            points = np.concatenate([source.means, source.stds], axis=1)
            sent.append((to_source @ points) / current.weights[:, None])
        root = np.sqrt(current.weights)[:, None]
        design = np.stack([(root * points).ravel() for points in sent], axis=1)
        coordinates = _simplex_least_squares(design, (root * wanted).ravel())
    return coordinates


def _simplex_least_squares(design: Floats, wanted: Floats) -> Floats:
    """Minimise ‖design · x − wanted‖² over the simplex by non-negative least squares."""
    from scipy.optimize import nnls

    # A heavy extra row asks for a sum of one; what is left of it goes by normalising.
    heavy = 1e3 * max(1.0, float(np.abs(design).max()))
    solution, _ = nnls(np.vstack([design, np.full(design.shape[1], heavy)]), np.append(wanted, heavy))
    return np.asarray(solution / solution.sum())


def _target_trained(X: Floats, y: Integers) -> float:
    """Return the accuracy of a classifier trained on the labels of half of the target."""
    even = np.arange(len(X)) % 2 == 0
    scores = [
        MixtureClassifier(random_state=0).fit(X[half], y[half]).score(X[~half], y[~half])
        for half in (even, ~even)
    ]
    return float(np.mean(scores))


def draw(outcome: Outcome, path: str) -> None:
    """Write one figure: accuracy along the stream, and the coordinates on their way."""
    from matplotlib.figure import Figure

    rows = [progress.n_rows for progress in outcome.history]
    figure = Figure(figsize=(9.5, 3.8), layout="constrained", dpi=150)
    left, right = figure.subplots(1, 2)
    left.plot(rows, [p.adapted for p in outcome.history], color="#0b6e99", label="adapting")
    left.plot(rows, [p.source_only for p in outcome.history], color="#b3541e", label="source-only")
    left.axhline(outcome.target_trained, color="0.4", ls=":", label="trained on target labels")
    left.set(xlabel="target rows seen", ylabel="accuracy so far (predict, then learn)")
    left.set_ylim(top=1.01)
    left.legend(frameon=False, loc="center right")
    coordinates = np.array([p.coordinates for p in outcome.history])
    for source, color in enumerate(("#0b6e99", "#b3541e", "#4d8a3d", "#7a4b94")):
        right.plot(rows, coordinates[:, source], color=color, label=f"mode {source + 1}")
        right.plot(rows[-1] * 1.02, outcome.mixing[source], marker="<", color=color, clip_on=False)
    right.set(xlabel="target rows seen", ylabel="coordinate", ylim=(0, 1))
    right.legend(frameon=False, title="nearness to source (◂ true)", ncols=2)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
