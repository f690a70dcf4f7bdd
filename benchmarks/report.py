"""The performance page: its tables and plots, made from the results."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks import harness, pages
from benchmarks.harness import Curve, Outcome, Result

PAGE = "docs/benchmarks/performance.md"
IMAGES = pages.ROOT / "docs" / "images"
#: Okabe and Ito's colours, told apart by colour-blind readers; each series also has a marker of its own.
BLUE, ORANGE, GREY, INK = "#0072B2", "#D55E00", "#9A9A9A", "#333333"
MARKERS = {BLUE: "o", ORANGE: "s"}


def tables(outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """Return the tables of the page by their names."""
    lines = [r for case, found in outcomes.items() for r in found.results if case != "rows"]
    rows = outcomes["rows"].results if "rows" in outcomes else []
    return {
        "benchmarks": harness.markdown(lines),
        "rows": _rows(rows),
        "environment": _environments(outcomes),
    }


def _rows(results: list[Result]) -> str:
    """Return what a row costs, cheapest first."""
    lines = [(r.rival, r.rival_s, r.quality["accuracy, rival"]) for r in results]
    if results:
        ours = results[0]
        lines.append(
            ("**baryflow, predict + partial_fit**", ours.ours_s, ours.quality["accuracy, ours"])
        )
    lines.sort(key=lambda line: line[1])
    body = [f"| {name} | {harness.seconds(spent)} | {accuracy:.1%} |" for name, spent, accuracy in lines]
    return "\n".join(["| | CPU time of a row | rows right |", "|---|---|---|", *body])


def _environments(outcomes: Mapping[str, Outcome]) -> str:
    """Return with which code and libraries the cases were run."""
    keys = ("baryflow", "sources", "python", "numpy", "scipy", "scikit-learn", "cpus")
    cases: dict[tuple[str, ...], list[str]] = {}
    for case, found in outcomes.items():
        cases.setdefault(tuple(str(found.environment[key]) for key in keys), []).append(case)
    head = [f"| {' | '.join(keys)} | cases |", "|---" * (len(keys) + 1) + "|"]
    return "\n".join(
        [*head, *(f"| {' | '.join(values)} | {', '.join(names)} |" for values, names in cases.items())]
    )


def write(outcomes: Mapping[str, Outcome]) -> None:
    """Fill the page, and draw its plots if matplotlib is installed."""
    for name, content in tables(outcomes).items():
        pages.fill(PAGE, name, content)
    try:
        import matplotlib as mpl
    except ImportError:
        print("the plots are left as they are: pip install 'baryflow[plot]' draws them")
        return
    mpl.use("Agg")
    curves = {case: found.curves for case, found in outcomes.items() if found.curves}
    growing = [curve for case, found in curves.items() if case != "scaling-transport" for curve in found]
    if growing:
        draw_curves(growing, "performance-scaling.png", columns=3)
    if "scaling-transport" in curves:
        draw_curves(curves["scaling-transport"], "performance-transport.png", columns=2)
    if "rows" in outcomes:
        draw_rows(outcomes["rows"].results)


def draw_curves(curves: list[Curve], name: str, columns: int) -> None:
    """Draw one panel for each curve, on logarithmic axes of the same height."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    rows = -(-len(curves) // columns)
    figure, panels = plt.subplots(
        rows,
        columns,
        figsize=(3.4 * columns, 2.7 * rows),
        sharey="all",
        squeeze=False,
        layout="constrained",
    )
    shown = panels.ravel()
    for panel, curve in zip(shown, curves, strict=False):
        for (series, costs), colour in zip(curve.costs.items(), (BLUE, ORANGE), strict=True):
            panel.plot(
                curve.sizes, costs, color=colour, marker=MARKERS[colour], ms=4.5, lw=1.5, label=series
            )
        panel.set(xscale="log", yscale="log", xlabel=curve.size)
        panel.set_xticks(curve.sizes, [f"{size:,}" for size in curve.sizes])
        panel.set_xticks([], minor=True)
        panel.yaxis.set_major_formatter(EngFormatter(unit="s"))
        panel.grid(visible=True, which="major", color="#E4E4E4", lw=0.7)
        panel.tick_params(labelsize=8, colors=INK)
        panel.spines[["top", "right"]].set_visible(False)
        if len(curves) == 2:
            panel.set_title(curve.name, loc="left", fontsize=9)
            panel.legend(fontsize=8, frameon=False, loc="upper left")
    for panel in shown[len(curves) :]:
        panel.set_axis_off()
    for row in panels:
        row[0].set_ylabel(curves[0].cost, color=INK)
    if len(curves) != 2:
        handles = shown[0].get_legend_handles_labels()
        where = shown[-1] if len(curves) < len(shown) else shown[0]
        where.legend(*handles, loc="center" if len(curves) < len(shown) else "best", frameon=False)
    figure.savefig(IMAGES / name, dpi=130)
    plt.close(figure)


def draw_rows(results: list[Result]) -> None:
    """Draw what a row costs, cheapest first."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    dots = [(result.rival.split(",")[0], result.rival_s, GREY) for result in results]
    dots.append(("baryflow, predict + partial_fit", results[0].ours_s, BLUE))
    dots.sort(key=lambda dot: -dot[1])
    figure, panel = plt.subplots(figsize=(7.5, 0.36 * len(dots) + 0.9), layout="constrained")
    for place, (_, cost, colour) in enumerate(dots):
        panel.plot(cost, place, "o", color=colour, ms=8)
        panel.annotate(
            harness.seconds(cost).replace("us", "µs"),
            (cost, place),
            (8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    panel.set_yticks(range(len(dots)), [name for name, _, _ in dots])
    panel.set(xscale="log", xlabel="CPU time of a row")
    panel.set_xlim(0.6 * dots[-1][1], 2.5 * dots[0][1])
    panel.xaxis.set_major_formatter(EngFormatter(unit="s"))
    panel.grid(visible=True, axis="y", color="#E4E4E4", lw=0.7)
    panel.tick_params(labelsize=8, colors=INK)
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGES / "performance-rows.png", dpi=130)
    plt.close(figure)
