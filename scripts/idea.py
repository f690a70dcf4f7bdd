"""Draw docs/images/idea.svg: ``python scripts/idea.py``.

Everything in the picture is computed: three labelled sources and a target of the synthetic data, their
mixtures, the distances between them, and the barycenter of the sources that reproduces the target.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Ellipse, FancyBboxPatch, Polygon

from baryflow import Mixture, MixtureClassifier, barycenter, fit_mixture, mw2_squared
from baryflow.datasets import make_domains

OUTPUT = Path(__file__).parents[1] / "docs" / "images" / "idea.svg"
CLASSES = ("#0072B2", "#E69F00", "#009E73")  # can be told apart by people who are colour-blind
MARKERS = ("o", "s", "^")
INK, PALE = "#333333", "#b8b8b8"


def main() -> None:
    """Compute and draw."""
    mpl.rcParams.update({"svg.hashsalt": "baryflow", "svg.fonttype": "path", "font.size": 10})
    data = make_domains(
        n_sources=3, n_classes=3, n_features=2, n_per_class=60, shift=1.3, noise=0.28, own=0.05,
        random_state=85,
    )  # fmt: skip
    of_source = [data.domain == number for number in (1, 2, 3)]
    sources = [MixtureClassifier(1, 1).fit(data.X[rows], data.y[rows]).mixture_ for rows in of_source]
    target = fit_mixture(data.X_target, 1, 6, random_state=0)
    shares = nearest_shares(sources, target)
    labelled = barycenter(sources, shares).mixture

    figure = Figure(figsize=(11, 4.1))
    figure.patch.set_alpha(0.0)
    figure.add_artist(
        FancyBboxPatch(
            (0.004, 0.01), 0.992, 0.98, boxstyle="round,pad=0,rounding_size=0.015", facecolor="white",
            edgecolor="#dddddd", transform=figure.transFigure, zorder=-1,
        )
    )  # fmt: skip
    small = [figure.add_axes((0.025, 0.575 - 0.24 * place, 0.14, 0.22)) for place in range(3)]
    stream, points, result = (
        figure.add_axes((left, 0.18, 0.205, 0.58)) for left in (0.235, 0.51, 0.775)
    )
    for axes, words in (
        (small[0], "Labelled histories\nbecome mixtures"),
        (stream, "A stream without labels\nbecomes a mixture, too"),
        (points, "Domains are points:\nthe target lies between"),
        (result, "It inherits the labels\nof its neighbours"),
    ):
        box = axes.get_position()
        figure.text((box.x0 + box.x1) / 2, 0.93, words, ha="center", va="top", weight="bold", color=INK)

    limits = limits_of([data.X, data.X_target])
    for axes, mixture, rows, name in zip(small, sources, of_source, "ABC", strict=True):
        draw_rows(axes, data.X[rows][::4], data.y[rows][::4], 5)
        draw_mixture(axes, mixture)
        frame(axes, limits)
        axes.text(0.03, 0.95, name, transform=axes.transAxes, va="top", weight="bold", color=INK)
    draw_stream(stream, data.X_target, target)
    draw_points(points, sources, target, shares)
    draw_rows(result, data.X_target, labelled.predict_proba(data.X_target).argmax(axis=1), 9)
    draw_mixture(result, labelled)
    around = limits_of([data.X_target])
    for axes in (stream, result):
        frame(axes, around)
    figure.text(0.2, 0.46, "+", ha="center", va="center", fontsize=22, color=INK)
    figure.text(0.095, 0.035, "colours are classes", ha="center", color=INK, fontsize=9)
    for left, right in ((stream, points), (points, result)):
        figure.add_artist(
            ConnectionPatch(
                (1.04, 0.5), (-0.04, 0.5), "axes fraction", "axes fraction", axesA=left, axesB=right,
                arrowstyle="-|>", mutation_scale=18, color=INK, lw=1.5,
            )
        )  # fmt: skip
    figure.savefig(OUTPUT, metadata={"Date": None})


def nearest_shares(sources: list[Mixture], target: Mixture) -> list[float]:
    """Return the coordinates of the barycenter of the sources that is nearest to the target."""
    grid = [(a / 50, b / 50, (50 - a - b) / 50) for a in range(51) for b in range(51 - a)]
    return list(min(grid, key=lambda some: mw2_squared(barycenter(sources, some).mixture, target)))


def limits_of(tables: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest corner of rows, with a margin."""
    rows = np.concatenate(tables)
    low, high = rows.min(axis=0), rows.max(axis=0)
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def frame(axes: Axes, limits: tuple[np.ndarray, np.ndarray]) -> None:
    """Set the range and leave a thin frame only."""
    (x_low, y_low), (x_high, y_high) = limits
    axes.set(xlim=(x_low, x_high), ylim=(y_low, y_high), xticks=[], yticks=[])
    axes.spines[:].set_color(PALE)


def draw_rows(axes: Axes, X: np.ndarray, y: np.ndarray, size: float) -> None:
    """Draw labelled rows."""
    for label, (color, marker) in enumerate(zip(CLASSES, MARKERS, strict=True)):
        axes.scatter(*X[y == label].T, s=size, color=color, marker=marker, lw=0)


def draw_mixture(axes: Axes, mixture: Mixture) -> None:
    """Draw components as ellipses of two standard deviations, in the colour of their class if known."""
    labels = [None] * len(mixture.means) if mixture.labels is None else mixture.labels.argmax(axis=1)
    for mean, std, label in zip(mixture.means, mixture.stds, labels, strict=True):
        color = INK if label is None else CLASSES[label]
        axes.add_patch(
            Ellipse(mean, *(4.4 * std), facecolor=(*mpl.colors.to_rgb(color), 0.12), edgecolor=color)
        )


def draw_stream(axes: Axes, X: np.ndarray, mixture: Mixture) -> None:
    """Draw rows without labels, and the rows still to come as dots that lead in."""
    axes.scatter(*X.T, s=8, color="0.55", lw=0)
    draw_mixture(axes, mixture)
    for height, place in zip(np.linspace(-0.2, -0.05, 5), (0.47, 0.53, 0.48, 0.52, 0.5), strict=True):
        axes.plot(place, height, "o", ms=3.5, color="0.55", transform=axes.transAxes, clip_on=False)
    axes.annotate(
        "", (0.5, 0.075), (0.5, -0.04), xycoords="axes fraction",
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.5, "mutation_scale": 18},
    )  # fmt: skip
    axes.text(0.57, -0.12, "row by row", transform=axes.transAxes, va="center", color=INK, fontsize=9)


def draw_points(axes: Axes, sources: list[Mixture], target: Mixture, shares: list[float]) -> None:
    """Place domains by their distances, the target among them, with the share of each source."""
    mixtures = [*sources, target]
    squared = np.array([[mw2_squared(a, b) for b in mixtures] for a in mixtures])
    centred = np.eye(4) - 0.25
    values, vectors = np.linalg.eigh(-0.5 * centred @ squared @ centred)
    places = vectors[:, -2:] * np.sqrt(values[-2:])
    axes.add_patch(Polygon(places[:3], facecolor="#f3f3f3", edgecolor=PALE))
    middle = places[:3].mean(axis=0)
    for place, name, share in zip(places[:3], "ABC", shares, strict=True):
        axes.plot(*np.transpose([place, places[3]]), color=INK, lw=0.6 + 5 * share, alpha=0.35, zorder=1)
        axes.scatter(*place, s=230, color="white", edgecolor=INK, zorder=3)
        axes.text(*place, name, ha="center", va="center", weight="bold", color=INK, zorder=4)
        out = (place - middle) / np.linalg.norm(place - middle)
        axes.text(*(place + 0.42 * out), f"{share:.0%}", ha="center", va="center", color=INK)
    axes.scatter(*places[3], s=260, marker="*", color="#D55E00", zorder=3)
    axes.annotate(
        "target", places[3], (0, -14), textcoords="offset points", ha="center", va="top", color="#A84300"
    )
    low, high = places.min(axis=0) - 0.55, places.max(axis=0) + 0.55
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    axes.axis("off")


if __name__ == "__main__":
    main()
