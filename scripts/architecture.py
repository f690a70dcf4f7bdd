"""Draw the house: which module imports which, and which modules a row walks through.

Run ``python scripts/architecture.py`` to write the drawing into CONTRIBUTING.md, or with ``--check`` to
learn whether it is up to date (numbers aside, which may differ between machines).

Nothing is drawn from memory: imports are read from the source, and walks are made by watching the calls
of a model that learns four sources and follows a target in batches of 32 rows. A *crossing* is a call of
a Python function whose nearest caller within baryflow is in another module; the way back is not counted.
The walks leave out the checks in `validation` and what the core does within itself; counts leave out
nothing but the wrapper that limits threads.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import grimp

PACKAGE = "baryflow"
ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- architecture -->", "<!-- /architecture -->"
#: Packages whose modules are drawn one by one.
ROOMS = ("core", "estimators")
#: Calls into these are not worth a line in a walk.
SILENT = ("validation", "exceptions", "typing")
#: Nobody stops here: it wraps methods to limit the threads of BLAS.
TRANSPARENT = f"{PACKAGE}.estimators.threads"
BATCH, EARLIER_BATCHES = 32, 5
#: Modules below modules that a walk is followed; columns of a line, and of the name of a module in it.
DEPTH, WIDTH, PLACE = 3, 105, 36


@dataclass
class Step:
    """A function that was entered from another module, and what was entered from there."""

    module: str
    name: str
    times: int = 0
    steps: dict[tuple[str, str], Step] = field(default_factory=dict)

    def crossings(self) -> int:
        """Return how often another module was entered below this step."""
        return sum(step.times + step.crossings() for step in self.steps.values())

    def modules(self) -> set[str]:
        """Return the modules of this step and of all below it."""
        return {self.module}.union(*(step.modules() for step in self.steps.values()))


def outline(steps: list[Step], depth: int = 0) -> Iterator[str]:
    """Yield a line for each module that is entered, with the functions, and below it where they go.

    The core is entered, but what its modules do among themselves is not told.
    """
    rooms: dict[str, list[Step]] = {}
    for step in steps:
        if step.module not in SILENT:
            rooms.setdefault(step.module, []).append(step)
    for module, entered in rooms.items():
        names = ", ".join(dict.fromkeys(step.name for step in entered))
        place = "  " * depth + module.replace(".", "/")
        yield textwrap.fill(
            names, WIDTH, initial_indent=f"{place:<{PLACE}} ", subsequent_indent=" " * (PLACE + 1)
        )
        if not module.startswith("core.") and depth < DEPTH:
            yield from outline([below for step in entered for below in step.steps.values()], depth + 1)


def watch(call: Callable[[], Any]) -> Step:
    """Call a function and return the steps that it took through the modules of the package."""
    root = Step("", "")
    stack = [root]

    def profile(frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event not in {"call", "return"} or not module.startswith(f"{PACKAGE}."):
            return
        if module == TRANSPARENT:
            return
        if event == "return":
            stack.pop()
            return
        here, module = stack[-1], module.removeprefix(f"{PACKAGE}.")
        if here.module != module:
            key = module, _function_name(frame)
            here = here.steps.setdefault(key, Step(*key))
            here.times += 1
        stack.append(here)

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    (first,) = root.steps.values()
    return first


def _function_name(frame: FrameType) -> str:
    code = frame.f_code
    if code.co_name == "__init__" or code.co_qualname.startswith("__create_fn__"):
        # Methods that a dataclass was given do not know where they belong.
        owner = type(next(iter(frame.f_locals.values()))).__name__
        return owner if code.co_name == "__init__" else f"{owner}.{code.co_name}"
    return code.co_qualname.split(".<locals>")[0]


def walks() -> dict[str, Step]:
    """Return the walks of a source's rows and of a batch of a target, once the stream has begun."""
    from baryflow import OnlineDaDiL
    from baryflow.datasets import make_domains

    p = make_domains(random_state=0)
    model = OnlineDaDiL(random_state=0)
    model.fit(p.X, p.y, sample_domain=p.domain)  # what is imported late is imported now
    found = {"fit": watch(lambda: model.fit(p.X, p.y, sample_domain=p.domain))}
    batches = [p.X_target[i : i + BATCH] for i in range(0, len(p.X_target), BATCH)]
    for batch in batches[:EARLIER_BATCHES]:
        model.partial_fit(batch)
    batch = batches[EARLIER_BATCHES]
    found["predict"] = watch(lambda: model.predict(batch))
    found["partial_fit"] = watch(lambda: model.partial_fit(batch))
    return found


def import_graph() -> str:
    """Return what imports what: the packages as a chart, two of them module by module."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    parts = _reduced(_uses(graph, PACKAGE))
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"  {name} --> {other}" for name in parts for other in parts[name]]
    lines += ["```", ""]
    for room in ROOMS:
        uses = _reduced(_uses(graph, f"{PACKAGE}.{room}"))
        width = max(map(len, uses))
        lines += [f"`{room}/`, from the top to the bottom, and what each needs there:", "", "```text"]
        lines += [f"{name:<{width}}  {', '.join(uses[name])}".rstrip() for name in uses]
        lines += ["```", ""]
    return "\n".join(lines).rstrip()


def _uses(graph: Any, parent: str) -> dict[str, set[str]]:
    """Return for each part of a package the other parts that it, or anything in it, imports."""
    uses = {}
    for child in graph.find_children(parent):
        inside = {child} | graph.find_descendants(child)
        imported = set().union(*(graph.find_modules_directly_imported_by(m) for m in inside))
        parts = {m[len(parent) + 1 :].split(".")[0] for m in imported if m.startswith(f"{parent}.")}
        uses[child[len(parent) + 1 :]] = parts - {child[len(parent) + 1 :]}
    return uses


def _reduced(uses: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return parts from the top to the bottom, without what they need only through another."""
    below: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in below:
            below[name] = set()  # imports point one way, which lint-imports checks
            below[name] = uses[name].union(*(reach(other) for other in uses[name]))
        return below[name]

    order = sorted(uses, key=lambda name: (-len(reach(name)), name))
    return {
        name: sorted(o for o in uses[name] if not any(o in reach(x) for x in uses[name] - {o}))
        for name in order
    }


def drawing(found: dict[str, Step]) -> str:
    """Return all of it as text."""
    batch = found["partial_fit"]
    crossings = (
        f"To predict it takes {found['predict'].crossings()} crossings from one module into another, to "
        f"learn from it {batch.crossings()}, in {len(batch.modules())} modules."
    )
    parts = [
        "What imports what; needs that come through another are left out.",
        "",
        import_graph(),
        "",
        "A batch of a target, once the stream has begun: which modules are entered, and where.",
        crossings,
        "",
        "```text",
        *outline([found["predict"]]),
        *outline([batch]),
        "```",
        "",
        "The rows of the sources:",
        "",
        "```text",
        *outline([found["fit"]]),
        "```",
    ]
    return "\n".join(parts)


def page_with(found: dict[str, Step]) -> str:
    """Return the page with the drawing made anew."""
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{drawing(found)}\n{END}{after}"


def is_up_to_date(found: dict[str, Step]) -> bool:
    """Tell whether the page holds this drawing, whatever its numbers."""
    drawn, there = (re.sub(r"\d+", "#", text) for text in (page_with(found), PAGE.read_text()))
    return drawn == there


def main() -> int:
    """Draw, or check what was drawn; say how many crossings there are."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if the drawing is out of date")
    check = parser.parse_args().check
    found = walks()
    batch = found["partial_fit"]
    print(f"partial_fit: {batch.crossings()} crossings, {len(batch.modules())} modules")
    if not check:
        PAGE.write_text(page_with(found))
    elif not is_up_to_date(found):
        print(f"{PAGE.name} is out of date: run python scripts/{Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
