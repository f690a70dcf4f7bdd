"""A picture of a model along its stream. matplotlib is imported when something is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from baryflow.estimators._history import History
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers

#: Colours that people who cannot tell red from green can tell apart: of classes and lines (Okabe and
#: Ito, 2008), and of sources (Tol, 2021).
AREA = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
SOURCES = ("#332288", "#DDCC77", "#117733", "#CC6677", "#88CCEE", "#AA4499")
INK, PALE = "#4d4d4d", "#dddddd"
#: Of the two curves of a panel.
_LINES = (AREA[0], AREA[5])
_LONGEST_NAME, _LONGEST_FULL_NAME = 22, 64
#: Heights of panels of shares and of curves, of a line of text and of a lane, all in inches.
_HIGH, _LOW, _TEXT, _LANE = 2.4, 1.5, 0.17, 0.155


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of this size in inches that is not tied to any window."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ModuleNotFoundError(
            "pictures need matplotlib: pip install 'baryflow[plot]'", name="matplotlib"
        ) from error
    return Figure(figsize=(width, height), layout="constrained", dpi=120)


def plot_stream(
    history: History, sources: Sequence[Any], classes: Sequence[Any], *, figure: Any = None
) -> Any:
    """Draw what became of a model along its stream.

    Four panels, one below the other: which sources the target resembles, how far its predictions can be
    relied on and how novel its rows are, the proportions of its classes, and the loss before and after
    the steps of each update. Up to six sources or classes are areas on top of each other; of more, each
    has a lane of its own that is darker the larger its share is.

    `sources` and `classes` are names in the order of the history's columns. Draw into `figure`, a
    matplotlib Figure or SubFigure, or into a new one.
    """
    if not len(history):
        raise InvalidInputError("there is nothing to draw: no target row was seen yet")
    for name, names, table in (
        ("sources", sources, history.resemblance),
        ("classes", classes, history.proportions),
    ):
        if len(names) != table.shape[1]:
            raise InvalidInputError(
                f"expected {name} to hold {table.shape[1]} names, as many as the history has columns, "
                f"got {len(names)}"
            )
    # Proportions of new classes are not estimated.
    known = np.flatnonzero(~np.isnan(history.proportions[-1])).tolist()
    heights = (_height(len(sources)), _LOW, _height(len(known)), _LOW)
    if figure is None:
        figure = new_figure(8.5, 1.2 + sum(heights))
    panels = figure.subplots(4, 1, sharex=True, height_ratios=heights)
    rows = history.n_rows
    _shares(panels[0], rows, history.resemblance, sources, "source", SOURCES)
    curves = (("reliability", history.reliability), ("novelty", history.novelty))
    _lines(panels[1], rows, curves, (0.0, 1.0))
    _shares(panels[2], rows, history.proportions[:, known], [classes[k] for k in known], "class", AREA)
    before, after = history.losses.T
    curves = (("after its steps", after), ("before an update", before))
    _lines(panels[3], rows, curves, loss_limits(history.losses))
    titles = ("Resemblance to the sources", "Reliability and novelty of each batch", "Class proportions")
    for panel, title in zip(panels, (*titles, "Loss of the target"), strict=True):
        panel.set_title(title, loc="left", fontsize=10, color="black")
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[["left", "bottom"]].set_color(INK)
        panel.tick_params(colors=INK, labelsize=8)
    panels[-1].set_xlim(0, max(1, int(rows[-1])))
    panels[-1].set_xlabel("target rows seen", fontsize=9, color=INK)
    return figure


def _height(n: int) -> float:
    """Return the height of a panel of shares."""
    return _HIGH if n <= len(AREA) else max(_HIGH, n * _LANE)


def _shares(
    panel: Any,
    rows: Integers,
    table: Floats,
    names: Sequence[Any],
    kind: str,
    colors: Sequence[str],
) -> None:
    """Draw parts of a whole along the stream, all by name, the largest first."""
    table = np.nan_to_num(table)
    order = by_size(table)
    shares, named = table[:, order], [names[k] for k in order]
    shown = [
        f"{short_name(name, kind, _LONGEST_FULL_NAME)}: {100 * share:.0f} %"
        for name, share in zip(named, shares[-1], strict=True)
    ]
    x, stack = _from_zero(rows, shares.T)
    if len(order) > len(colors):
        _lanes(panel, x, stack, shown, colors[0])
        return
    panel.stackplot(x, stack, colors=colors[: len(order)], linewidth=0.6, edgecolor="white")
    top = max(1.0, float(stack.sum(axis=0).max()))
    panel.set_ylim(0.0, top)
    panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    last = stack[:, -1]
    heights = (np.cumsum(last) - 0.5 * last) / top
    _labels(panel, heights, shown, colors[: len(order)], _TEXT / _HIGH)


def by_size(table: Floats) -> Integers:
    """Return the parts from the largest, on the whole or now."""
    size = np.maximum(table.mean(axis=0), table[-1])
    return np.argsort(-size, kind="stable")


def _lanes(panel: Any, x: Any, stack: Floats, shown: Sequence[str], color: str) -> None:
    """Draw each part as a lane, darker the larger it is, with its name beside it."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    n, largest = len(stack), float(stack.max())
    # A value holds from the middle between two points to the next.
    edges = np.concatenate([x[:1], 0.5 * (x[1:] + x[:-1]), x[-1:]])
    shades = LinearSegmentedColormap.from_list("shades", ["#f2f2f2", color])
    norm = PowerNorm(0.5, 0.0, largest or 1.0)  # small shares remain visible beside one large share
    panel.pcolormesh(edges, np.arange(n + 1), stack, cmap=shades, norm=norm, rasterized=True)
    panel.hlines(np.arange(1, n), edges[0], edges[-1], color="white", linewidth=0.6)
    panel.set_ylim(n, 0)
    panel.yaxis.tick_right()
    panel.set_yticks(np.arange(n) + 0.5, shown)
    panel.tick_params(axis="y", length=0)


def _lines(
    panel: Any, rows: Integers, curves: Sequence[tuple[str, Floats]], limits: tuple[float, float]
) -> None:
    low, high = limits
    scale = np.log if low > 0.0 else np.asarray
    if low > 0.0:
        panel.set_yscale("log")
    panel.set_ylim(low, high)
    ends = []
    for (_, values), color in zip(curves, _LINES, strict=True):
        x, y = _from_zero(rows, values[None])
        panel.plot(x, y[0], color=color, lw=1.5, clip_on=False, zorder=3)
        ends.append(scale(float(np.clip(y[0, -1], low, high))))
    heights = (np.array(ends) - scale(low)) / (scale(high) - scale(low))
    _labels(panel, np.nan_to_num(heights), [name for name, _ in curves], _LINES, _TEXT / _LOW)


def loss_limits(losses: Floats) -> tuple[float, float]:
    """Return the range of an axis of losses, from 0, or not if they span more than a factor of 30."""
    values = losses[np.isfinite(losses)]
    if not len(values) or values.max() <= 0.0:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    return (low / 1.2, high * 1.2) if high > 30.0 * low > 0.0 else (0.0, 1.1 * high)


def _from_zero(rows: Integers, values: Floats) -> tuple[Any, Floats]:
    """Return what to draw; a single point stands for everything before it."""
    if len(rows) > 1:
        return rows, values
    return np.array([0, rows[0]]), np.repeat(values, 2, axis=1)


def _labels(
    panel: Any, heights: Floats, words: Sequence[str], colors: Sequence[str], gap: float
) -> None:
    """Write names beside the right end of what they name, pushed apart where they would overlap."""
    for height, word, color in zip(_spread(heights, gap), words, colors, strict=True):
        # The words in ink, since pale colours are hard to read.
        for text, shift, ink in (("■", 5, color), (word, 15, INK)):
            panel.annotate(
                text, (1.0, height), xycoords="axes fraction", xytext=(shift, 0), va="center", ha="left",
                textcoords="offset points", fontsize=8.5, color=ink, annotation_clip=False,
            )  # fmt: skip


def _spread(heights: Floats, gap: float) -> Floats:
    """Return heights between 0 and 1 that are a gap apart or more, in the same order.

    Neighbours that are too close become a block around their common middle, as in isotonic regression.
    """
    order = np.argsort(heights, kind="stable")
    blocks: list[tuple[float, int]] = []  # the lowest of a block, and how many it has
    for height in heights[order].tolist():
        low, count = height, 1
        while blocks and blocks[-1][0] + blocks[-1][1] * gap > low:
            below, n = blocks.pop()
            low, count = (n * below + count * (low - n * gap)) / (n + count), n + count
        blocks.append((low, count))
    placed = np.concatenate([low + gap * np.arange(count) for low, count in blocks])
    number = np.arange(len(placed))
    placed = np.minimum(np.maximum(placed, gap * number), 1.0 - gap * number[::-1])
    spread = np.empty(len(placed))
    spread[order] = placed
    return spread


def short_name(name: Any, kind: str = "", longest: int = _LONGEST_NAME) -> str:
    """Return a name of limited length; long names often differ at their end.

    `kind` is put before a number, so that it does not look like a figure.
    """
    words = str(name) if isinstance(name, str) or not kind else f"{kind} {name}"
    if len(words) <= longest:
        return words
    half = longest // 2
    return f"{words[:half].rstrip()}…{words[-half + 1 :].lstrip()}"
