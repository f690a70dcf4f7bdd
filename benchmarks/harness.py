"""Time ours and a rival in turn, keep the best of each, and write the table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import pages

RESULTS = Path(__file__).parent / "results.json"


@dataclass
class Result:
    """One line of the table. `ratio` is rival_s / ours_s; it must reach `bar`."""

    name: str
    ours_s: float
    rival: str
    rival_s: float
    ratio: float
    bar: float
    ok: bool
    #: What must hold beside the speed, in words and figures.
    quality: dict[str, Any] = field(default_factory=dict)


def best_of(function: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def compare(
    name: str,
    ours: Callable[[], object],
    rival: str,
    theirs: Callable[[], object],
    *,
    bar: float,
    calls: int = 1,
    rounds: int = 7,
    rival_rounds: int | None = None,
    quality: dict[str, Any] | None = None,
) -> Result:
    """Time both sides alternately, so that a busy moment of the machine hits both alike."""
    ours()  # warm caches, imports
    ours_s = rival_s = float("inf")
    for i in range(rounds):
        ours_s = min(ours_s, best_of(ours, 1))
        if i < (rival_rounds or rounds):
            rival_s = min(rival_s, best_of(theirs, 1))
    ratio = rival_s / ours_s
    quality = quality or {}
    return Result(
        name=name,
        ours_s=round(ours_s / calls, 9),
        rival=rival,
        rival_s=round(rival_s / calls, 9),
        ratio=round(ratio, 3),
        bar=bar,
        ok=ratio >= bar and quality.get("ok", True),
        quality=quality,
    )


HEADER = ("benchmark", "ours", "rival", "its time", "ratio", "bar", "")


def table(results: list[Result]) -> str:
    """Return the table for a terminal."""
    rows = [HEADER, *map(_cells, results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def markdown(results: list[Result]) -> str:
    """Return the table for the README."""
    rows = [HEADER, ("---",) * len(HEADER), *map(_cells, results)]
    return "\n".join(f"| {' | '.join(row)} |".replace("  |", " |") for row in rows)


def _cells(r: Result) -> tuple[str, ...]:
    return (
        r.name,
        _seconds(r.ours_s),
        r.rival,
        _seconds(r.rival_s),
        f"{r.ratio:.2f}×",
        f"≥ {r.bar:.2f}×",
        "ok" if r.ok else "missed",
    )


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def write(results: list[Result]) -> None:
    """Write results.json, and the same figures into the README."""
    RESULTS.write_text(json.dumps([asdict(r) for r in results], indent=2, ensure_ascii=False) + "\n")
    pages.fill("README.md", "benchmarks", markdown(results))


def read() -> list[Result]:
    return [Result(**entry) for entry in json.loads(RESULTS.read_text())]
