"""Time ours and a rival in turn, keep the best of each; store results with the code they are of."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import pages

RESULTS = Path(__file__).parent / "results.json"


@dataclass
class Result:
    """One line of the table. `ratio` is rival_s / ours_s; it must reach `bar` if there is one."""

    name: str
    ours_s: float
    rival: str
    rival_s: float
    ratio: float
    bar: float | None
    ok: bool
    #: What must hold beside the speed, in words and figures.
    quality: dict[str, Any] = field(default_factory=dict)


@dataclass
class Curve:
    """One panel of a plot: how costs grow with one size."""

    name: str
    size: str  # what grows: the label of the x-axis
    cost: str  # what is measured, with its unit: the label of the y-axis
    sizes: list[int]
    costs: dict[str, list[float | None]]  # one entry for each size; None: not measured


@dataclass
class Outcome:
    """What a case found, and with which code and libraries."""

    results: list[Result]
    curves: list[Curve]
    environment: dict[str, Any]


def cpu_seconds(function: Callable[[], object]) -> float:
    """Return the CPU time of one call: other processes do not count."""
    start = time.process_time()
    function()
    return time.process_time() - start


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
    bar: float | None,
    calls: int = 1,
    rounds: int = 7,
    rival_rounds: int | None = None,
    quality: dict[str, Any] | None = None,
) -> Result:
    """Time both sides alternately, so that a busy moment of the machine hits both alike."""
    ours()  # warm caches, imports
    ours_s = rival_s = float("inf")
    for i in range(rounds):
        ours_s = min(ours_s, cpu_seconds(ours))
        if i < (rival_rounds or rounds):
            rival_s = min(rival_s, cpu_seconds(theirs))
    return judge(name, ours_s / calls, rival, rival_s / calls, bar, quality)


def judge(
    name: str,
    ours_s: float,
    rival: str,
    rival_s: float,
    bar: float | None,
    quality: dict[str, Any] | None = None,
) -> Result:
    """Return a line of the table, with the ratio held against its bar."""
    ratio, quality = round(rival_s / ours_s, 3), quality or {}
    bar = None if bar is None else round(bar, 3)
    ok = (bar is None or ratio >= bar) and quality.get("ok", True)
    return Result(name, round(ours_s, 9), rival, round(rival_s, 9), ratio, bar, ok, quality)


# -- the table -----------------------------------------------------------------------------------

HEADER = ("benchmark", "ours", "rival", "its time", "ratio", "bar", "")


def table(results: list[Result]) -> str:
    """Return the table for a terminal."""
    rows = [HEADER, *map(_cells, results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def markdown(results: list[Result]) -> str:
    """Return the table for a page."""
    rows = [HEADER, ("---",) * len(HEADER), *map(_cells, results)]
    return "\n".join(f"| {' | '.join(row)} |".replace("  |", " |") for row in rows)


def _cells(r: Result) -> tuple[str, ...]:
    return (
        r.name,
        seconds(r.ours_s),
        r.rival,
        seconds(r.rival_s),
        f"{r.ratio:.2f}×",
        "" if r.bar is None else f"≥ {r.bar:.2f}×",
        "" if r.bar is None else "ok" if r.ok else "missed",
    )


def seconds(value: float) -> str:
    """Return a duration with a readable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


# -- results on disk -----------------------------------------------------------------------------


def environment() -> dict[str, Any]:
    """Return what results depend on: the code, the libraries and the number of CPUs."""
    return {
        "sources": _digest(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("baryflow", "numpy", "scipy", "scikit-learn")},
        "cpus": os.cpu_count(),
    }


def _digest() -> str:
    """Return a digest of all code that is timed, or times; how results are shown does not count."""
    digest = hashlib.sha256()
    ours = (pages.ROOT / "benchmarks").glob("*.py")
    shown = ("__main__.py", "pages.py", "report.py")
    paths = [*(pages.ROOT / "src").rglob("*.py"), *(path for path in ours if path.name not in shown)]
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def encode(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def decode(entry: dict[str, Any]) -> Outcome:
    return Outcome(
        [Result(**result) for result in entry["results"]],
        [Curve(**curve) for curve in entry["curves"]],
        entry["environment"],
    )


def read() -> dict[str, Outcome]:
    """Return the outcomes of all cases that have been run, by case."""
    if not RESULTS.exists():
        return {}
    return {case: decode(entry) for case, entry in json.loads(RESULTS.read_text()).items()}


def write(outcomes: dict[str, Outcome]) -> None:
    text = json.dumps(
        {case: encode(found) for case, found in outcomes.items()}, indent=1, ensure_ascii=False
    )
    unfinished = RESULTS.with_suffix(".new")
    unfinished.write_text(text + "\n")
    unfinished.replace(RESULTS)
