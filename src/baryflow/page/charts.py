"""Values along the stream, and their coordinates in charts that ``report.html`` draws as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from baryflow.page.text import format_percent
from baryflow.validation import Floats, Integers

#: Size of the SVG coordinate system; the browser stretches it to the width of the page.
WIDTH, HEIGHT = 1000.0, 400.0
#: Rows of the table behind a chart.
_POINTS = 12


@dataclass(frozen=True, eq=False)
class Chart:
    """Named values along the stream: what a chart and the table behind it show.

    `rows` are the numbers of target rows seen; `values` has a row for each of them, and a column for
    each name. `key` is an id that is unique in the page.
    """

    key: str
    title: str
    rows: Integers
    names: Sequence[str]
    values: Floats
    show: Callable[[float], str] = format_percent
    limits: tuple[float, float] = (0.0, 1.0)
    is_logarithmic: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last number of rows on the horizontal axis."""
        return (0 if len(self.rows) < 2 else int(self.rows[0])), int(self.rows[-1])

    def ticks(self) -> list[str]:
        """Return the labels of the vertical axis, from top to bottom."""
        low, high = self.limits
        middle = np.sqrt(low * high) if self.is_logarithmic else 0.5 * (low + high)
        return [self.show(value) for value in (high, float(middle), low)]

    def sample(self) -> list[tuple[int, list[float]]]:
        """Return the values at some points of the stream."""
        n = len(self.rows)
        picked = np.unique(np.linspace(0, n - 1, min(_POINTS, n)).round().astype(int))
        return [(int(self.rows[i]), self.values[i].tolist()) for i in picked]

    def marks(self, rows: Iterable[float | None]) -> list[float]:
        """Return the horizontal coordinates of those numbers of rows that are on the axis."""
        first, last = self.span
        inside = [row for row in rows if row is not None and first <= row <= last]
        return [(row - first) / ((last - first) or 1) * WIDTH for row in inside]

    def lines(self) -> list[str]:
        """Return the points of a line for each name."""
        found = []
        for y in self._heights(self.values).T:
            known = np.isfinite(y)
            found.append(_join(self._x()[known], y[known]))
        return found

    def areas(self) -> list[str]:
        """Return the outlines of stacked areas, the first at the bottom."""
        above = np.cumsum(np.nan_to_num(self.values), axis=1)
        below = np.hstack([np.zeros((len(self.rows), 1)), above[:, :-1]])
        return [self._outline(*pair) for pair in zip(below.T, above.T, strict=True)]

    def trends(self) -> list[str]:
        """Return the outlines of areas, each by itself and relative to the largest value of all."""
        values = self.values / (float(self.values.max()) or 1.0)
        return [self._outline(np.zeros(len(self.rows)), above) for above in values.T]

    def _x(self) -> Floats:
        first, last = self.span
        return np.asarray((self.rows - first) / ((last - first) or 1) * WIDTH)

    def _heights(self, values: Floats) -> Floats:
        """Return vertical coordinates; 0 is the top."""
        low, high = self.limits
        if self.is_logarithmic:
            low, high, values = np.log(low), np.log(high), np.log(np.maximum(values, low))
        return np.asarray(HEIGHT * (1.0 - np.clip((values - low) / (high - low), 0.0, 1.0)))

    def _outline(self, below: Floats, above: Floats) -> str:
        x, top, bottom = self._x(), self._heights(above), self._heights(below)
        if len(x) == 1:
            x, top, bottom = np.array([0.0, WIDTH]), np.repeat(top, 2), np.repeat(bottom, 2)
        return _join(np.append(x, x[::-1]), np.append(top, bottom[::-1]))


def _join(x: Floats, y: Floats) -> str:
    """Return points as text; a single one is extended over the whole width."""
    if len(x) == 1:
        x, y = np.array([0.0, WIDTH]), np.repeat(y, 2)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
