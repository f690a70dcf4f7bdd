"""Pictures as inline SVG. Words stand outside of them, as text, so that a phone does not shrink them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from baryflow.page.text import count, escape
from baryflow.validation import Floats, Integers

#: Coordinates inside a picture, which is stretched to the width of the page.
WIDE, HIGH = 1000.0, 400.0


@dataclass(frozen=True)
class Series:
    """Something to draw, along a stream: its name, its colour (a class of the style), its values."""

    name: str
    color: str
    values: Floats
    last: str  # what it came to, in words


@dataclass(frozen=True)
class Axis:
    """Range of the values, and the words beside it, from the top down."""

    low: float
    high: float
    ticks: tuple[str, ...]
    logarithmic: bool = False

    def heights(self, values: Floats) -> Floats:
        """Return values as coordinates, 0 at the top."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, values = math.log(low), math.log(high), np.log(np.maximum(values, low))
        return np.asarray(HIGH * (1.0 - np.clip((values - low) / (high - low), 0.0, 1.0)))


#: An axis of shares of a whole.
SHARES = Axis(0.0, 1.0, ("100 %", "50 %", "0 %"))


def draw_areas(
    key: str, title: str, rows: Integers, series: Sequence[Series], marks: Sequence[float]
) -> str:
    """Draw parts of a whole on top of each other, the first at the bottom."""
    x = _across(rows)
    below = np.zeros(len(rows))
    shapes = []
    for part in series:
        above = below + np.nan_to_num(part.values)
        top, bottom = SHARES.heights(above), SHARES.heights(below)
        outline = [*zip(x, top, strict=True), *zip(x[::-1], bottom[::-1], strict=True)]
        if len(rows) == 1:  # a single point stands for everything before it
            outline = [(0.0, top[0]), (WIDE, top[0]), (WIDE, bottom[0]), (0.0, bottom[0])]
        shapes.append(f'<polygon class="area {part.color}" points="{_points(outline)}"/>')
        below = above
    return _frame(key, title, "".join(shapes), SHARES, rows, series, marks)


def draw_lines(
    key: str, title: str, rows: Integers, series: Sequence[Series], axis: Axis, marks: Sequence[float]
) -> str:
    """Draw curves."""
    x = _across(rows)
    shapes = []
    for curve in series:
        y = axis.heights(np.asarray(curve.values, dtype=float))
        points = [point for point in zip(x, y, strict=True) if math.isfinite(point[1])]
        if len(points) == 1:
            points = [(0.0, points[0][1]), (WIDE, points[0][1])]
        shapes.append(f'<polyline class="line {curve.color}" points="{_points(points)}"/>')
    return _frame(key, title, "".join(shapes), axis, rows, series, marks)


def draw_bar(share: float, color: str) -> str:
    """Draw a bar for the cell of a table; the cell beside it says how long it is."""
    width = 100.0 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    return (
        f'<svg class="bar" aria-hidden="true"><rect class="area {color}" width="{width:.1f}%" '
        f'height="100%"/></svg>'
    )


def draw_deviation(value: float, largest: float) -> str:
    """Draw a bar to the left or the right of a middle."""
    reach = 50.0 * min(abs(value) / largest, 1.0) if largest > 0.0 else 0.0
    left = 50.0 - reach if value < 0 else 50.0
    color = "c5" if value > 0 else "c0"
    return (
        f'<svg class="bar wide" aria-hidden="true"><rect class="area {color}" x="{left:.1f}%" '
        f'width="{reach:.1f}%" height="100%"/>'
        f'<line class="middle" x1="50%" x2="50%" y1="0" y2="100%"/></svg>'
    )


def _across(rows: Integers) -> Floats:
    first = 0.0 if len(rows) < 2 else float(rows[0])
    span = float(rows[-1]) - first
    return np.asarray((rows - first) / (span or 1.0) * WIDE)


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _frame(
    key: str,
    title: str,
    shapes: str,
    axis: Axis,
    rows: Integers,
    series: Sequence[Series],
    marks: Sequence[float],
) -> str:
    """Put axes, marks and a legend around shapes, and the same in words for who cannot see."""
    first = 0 if len(rows) < 2 else int(rows[0])
    last = int(rows[-1])
    inside = [mark for mark in marks if first <= mark <= last]
    lines = "".join(
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HIGH:.0f}"/>'
        for x in ((mark - first) / ((last - first) or 1) * WIDE for mark in inside)
    )
    grid = "".join(
        f'<line class="grid" x1="0" x2="{WIDE:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        for y in np.linspace(0.0, HIGH, len(axis.ticks))
    )
    said = "; ".join(f"{part.name}: {part.last}" for part in series)
    said = f"Along {count(last)} target rows. At the end: {said}."
    if inside:
        said += f" Vertical lines: {len(inside)} events."
    ticks = "".join(f"<span>{escape(tick)}</span>" for tick in axis.ticks)
    middle = f"<span>{count((first + last) // 2)}</span>" if last - first > 1 else ""
    legend = "".join(
        f'<li><svg class="key" aria-hidden="true"><rect class="area {part.color}" width="100%" '
        f'height="100%"/></svg><bdi>{escape(part.name)}</bdi> <b>{escape(part.last)}</b></li>'
        for part in series
    )
    return f"""<figure>
<div class="chart"><div class="y" aria-hidden="true">{ticks}</div>
<svg class="plot" role="img" aria-labelledby="{key}-t {key}-d" viewBox="0 0 {WIDE:.0f} {HIGH:.0f}" \
preserveAspectRatio="none"><title id="{key}-t">{escape(title)}</title>\
<desc id="{key}-d">{escape(said)}</desc>{grid}{shapes}{lines}</svg>
<div class="x" aria-hidden="true"><span>{count(first)}</span>{middle}<span>{count(last)}</span></div>
</div>
<p class="axis" aria-hidden="true">target rows seen</p>
<ul class="legend" aria-hidden="true">{legend}</ul>
</figure>"""
