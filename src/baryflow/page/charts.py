"""Charts as inline SVG. Labels are HTML outside the SVG, so that narrow screens do not shrink them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from baryflow.page.text import escape, format_count, plural
from baryflow.validation import Floats, Integers

#: Size of the SVG coordinate system; the browser stretches it to the width of the page.
WIDTH, HEIGHT = 1000.0, 400.0


@dataclass(frozen=True)
class Series:
    """A named curve or area over the stream."""

    name: str
    color: str  # a CSS class of the style sheet
    values: Floats
    last: str  # the last value, formatted


@dataclass(frozen=True)
class Axis:
    """Range of a vertical axis, and its tick labels from top to bottom."""

    low: float
    high: float
    ticks: tuple[str, ...]
    logarithmic: bool = False

    def heights(self, values: Floats) -> Floats:
        """Return the vertical coordinates of values; 0 is the top."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, values = math.log(low), math.log(high), np.log(np.maximum(values, low))
        return np.asarray(HEIGHT * (1.0 - np.clip((values - low) / (high - low), 0.0, 1.0)))


#: Axis for fractions of a whole.
SHARES = Axis(0.0, 1.0, ("100 %", "50 %", "0 %"))


def draw_areas(
    key: str, title: str, rows: Integers, series: Sequence[Series], marks: Sequence[float]
) -> str:
    """Draw stacked areas, the first at the bottom."""
    x = _horizontal(rows)
    below = np.zeros(len(rows))
    shapes = []
    for part in series:
        above = below + np.nan_to_num(part.values)
        top, bottom = SHARES.heights(above), SHARES.heights(below)
        outline = [*zip(x, top, strict=True), *zip(x[::-1], bottom[::-1], strict=True)]
        if len(rows) == 1:  # extend a single point over the whole width
            outline = [(0.0, top[0]), (WIDTH, top[0]), (WIDTH, bottom[0]), (0.0, bottom[0])]
        shapes.append(f'<polygon class="area {part.color}" points="{_points(outline)}"/>')
        below = above
    return _frame(key, title, "".join(shapes), SHARES, rows, series, marks)


def draw_lines(
    key: str, title: str, rows: Integers, series: Sequence[Series], axis: Axis, marks: Sequence[float]
) -> str:
    """Draw one line per series."""
    x = _horizontal(rows)
    shapes = []
    for curve in series:
        y = axis.heights(np.asarray(curve.values, dtype=float))
        points = [point for point in zip(x, y, strict=True) if math.isfinite(point[1])]
        if len(points) == 1:
            points = [(0.0, points[0][1]), (WIDTH, points[0][1])]
        shapes.append(f'<polyline class="line {curve.color}" points="{_points(points)}"/>')
    return _frame(key, title, "".join(shapes), axis, rows, series, marks)


def draw_bar(share: float, color: str) -> str:
    """Draw the bar of a table cell; the next cell holds the value."""
    width = 100.0 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    return (
        f'<svg class="bar" aria-hidden="true"><rect class="area {color}" width="{width:.1f}%" '
        f'height="100%"/></svg>'
    )


def draw_trend(rows: Integers, shares: Floats, color: str) -> str:
    """Draw a share along the stream for a table cell; the next cell holds the last value."""
    x, heights = _horizontal(rows), 100.0 * (1.0 - np.clip(shares, 0.0, 1.0))
    if len(rows) == 1:  # extend a single point over the whole width
        x, heights = np.array([0.0, WIDTH]), np.repeat(heights, 2)
    outline = [(0.0, 100.0), *zip(x, heights, strict=True), (WIDTH, 100.0)]
    return (
        f'<svg class="bar trend" aria-hidden="true" viewBox="0 0 {WIDTH:.0f} 100" '
        f'preserveAspectRatio="none"><polygon class="area {color}" points="{_points(outline)}"/></svg>'
    )


def draw_deviation(value: float, largest: float) -> str:
    """Draw a bar to the left or to the right of a centre line."""
    reach = 50.0 * min(abs(value) / largest, 1.0) if largest > 0.0 else 0.0
    left = 50.0 - reach if value < 0 else 50.0
    color = "c5" if value > 0 else "c0"
    return (
        f'<svg class="bar wide" aria-hidden="true"><rect class="area {color}" x="{left:.1f}%" '
        f'width="{reach:.1f}%" height="100%"/>'
        f'<line class="middle" x1="50%" x2="50%" y1="0" y2="100%"/></svg>'
    )


def _horizontal(rows: Integers) -> Floats:
    first = 0.0 if len(rows) < 2 else float(rows[0])
    span = float(rows[-1]) - first
    return np.asarray((rows - first) / (span or 1.0) * WIDTH)


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
    """Add axes, event marks, a legend and a text alternative for screen readers."""
    first = 0 if len(rows) < 2 else int(rows[0])
    last = int(rows[-1])
    inside = [mark for mark in marks if first <= mark <= last]
    lines = "".join(
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT:.0f}"/>'
        for x in ((mark - first) / ((last - first) or 1) * WIDTH for mark in inside)
    )
    grid = "".join(
        f'<line class="grid" x1="0" x2="{WIDTH:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        for y in np.linspace(0.0, HEIGHT, len(axis.ticks))
    )
    values = "; ".join(f"{part.name}: {part.last}" for part in series)
    description = f"Over {plural(last, 'target row')}. Last values: {values}."
    if inside:
        description += f" Vertical lines mark {plural(len(inside), 'event')}."
    ticks = "".join(f"<span>{escape(tick)}</span>" for tick in axis.ticks)
    middle = f"<span>{format_count((first + last) // 2)}</span>" if last - first > 1 else ""
    legend = "".join(
        f'<li><svg class="key" aria-hidden="true"><rect class="area {part.color}" width="100%" '
        f'height="100%"/></svg><bdi>{escape(part.name)}</bdi> <b>{escape(part.last)}</b></li>'
        for part in series
    )
    return f"""<figure>
<div class="chart"><div class="y" aria-hidden="true">{ticks}</div>
<svg class="plot" role="img" aria-labelledby="{key}-t {key}-d" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" \
preserveAspectRatio="none"><title id="{key}-t">{escape(title)}</title>\
<desc id="{key}-d">{escape(description)}</desc>{grid}{shapes}{lines}</svg>
<div class="x" aria-hidden="true"><span>{format_count(first)}</span>{middle}\
<span>{format_count(last)}</span></div>
</div>
<p class="axis" aria-hidden="true">target rows seen</p>
<ul class="legend" aria-hidden="true">{legend}</ul>
</figure>"""
