"""The sections of the page, from what a model exposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from baryflow.estimators._adapter import Adapter
from baryflow.estimators._plots import AREA, loss_limits, worth_naming
from baryflow.estimators._report import expert_table
from baryflow.page.charts import SHARES, Axis, Series, draw_areas, draw_bar, draw_deviation, draw_lines
from baryflow.page.tables import draw_table, fold
from baryflow.page.text import count, escape, figure, percent, plain_name, show_name
from baryflow.validation import Floats

#: Points of the stream in a table behind a picture, columns compared, columns of the table of means.
_POINTS, _COLUMNS, _MEANS = 12, 20, 12
#: Sources or classes that are shown at once; more are folded away.
_PARTS = 12
#: Columns that are listed at most.
_MOST_COLUMNS = 500


def show_decision(model: Adapter) -> str:
    """Say what was learned and decided, and why."""
    committee = model.committee_
    sources, classes = _list(model.sources_, "source"), _list(model.classes_.tolist(), "class")
    otherwise = "do not adapt; the plain classifiers on raw rows predict"
    words = (
        f"<h2>What was learned and decided</h2>{sources}{classes}"
        f"<p><b>Decision:</b> {'adapt' if committee.adapts else otherwise}. "
        f"<b>Why:</b> {escape(committee.reason)}.</p>"
    )
    tables = []
    if committee.adapts and len(committee.experts) > 1:
        described = model.describe_experts()
        body = [
            [escape(described[name]), percent(first), percent(last), alone.strip()]
            for name, first, last, alone in expert_table(committee)
        ]
        head = ("Expert", "At the beginning", "All classes seen", "Accuracy alone")
        tables.append(draw_table("Experts and their weights", head, body, "tnnn"))
    if committee.scores:
        body = [
            [escape(name), percent(before), percent(after)] for name, before, after in committee.scores
        ]
        heads = ("Kind of stream", "Not adapting", "Adapting")
        tables.append(draw_table("Leave-one-source-out accuracy", heads, body, "tnn"))
    return words + (f'<div class="pair">{"".join(tables)}</div>' if tables else "")


def _list(names: Sequence[Any], kind: str) -> str:
    """Return names, or of many how many they are."""
    shown = ", ".join(show_name(name, kind) for name in names)
    title = "Sources" if kind == "source" else "Classes"
    if len(names) <= _PARTS:
        return f"<p><b>{title}:</b> {shown}</p>"
    return f"<p><b>{title}:</b> {count(len(names))}</p>{fold('Their names', f'<p>{shown}</p>')}"


def show_sources(model: Adapter, marks: Sequence[float]) -> str:
    """Show which source the target resembles, now and along the stream."""
    words = (
        "How much of each source is in the target. Shift and scale of its columns do not count here: "
        "they are under “Columns”."
    )
    return _show_shares(
        "source",
        "Which source the target resembles",
        words,
        model,
        (model.sources_, list(model.resemblance_.values()), model.history_.resemblance),
        marks,
    )


def show_classes(model: Adapter, marks: Sequence[float]) -> str:
    """Show how much there is of each class."""
    return _show_shares(
        "class",
        "Class proportions",
        model.describe_label_shift(),  # escaped below
        model,
        (model.classes_.tolist(), model.proportions_.tolist(), model.history_.proportions),
        marks,
    )


def _show_shares(
    kind: str,
    title: str,
    words: str,
    model: Adapter,
    parts: tuple[Sequence[Any], Sequence[float], Floats],
    marks: Sequence[float],
) -> str:
    names, now, table = parts
    colors = {}
    chart = ""
    if len(table):
        table = np.nan_to_num(table)
        named = worth_naming(table).tolist()
        colors = {k: f"c{i}" for i, k in enumerate(named[: len(AREA)])}
        series = [
            Series(plain_name(names[k], kind), colors[k], table[:, k], percent(table[-1, k]))
            for k in named
        ]
        if others := [k for k in range(len(names)) if k not in colors]:
            rest = table[:, others].sum(axis=1)
            words_of = f"{len(others)} others" if named else f"{len(others)} of much the same size"
            series.append(Series(words_of, "rest", rest, percent(rest[-1])))
        chart = draw_areas(kind, f"{title}, along the stream", model.history_.n_rows, series, marks)
        chart += _behind(
            model,
            [plain_name(name, kind) for name in names],
            [[percent(v) for v in line] for line in table],
        )
    largest = max(now) or 1.0
    body = [
        [show_name(names[k], kind), draw_bar(now[k] / largest, colors.get(k, "rest")), percent(now[k])]
        for k in np.argsort(-np.asarray(now), kind="stable")
    ]
    head = (kind.capitalize(), "", "Share")
    bars = draw_table("Now", head, body[:_PARTS], "tbn")
    if more := body[_PARTS:]:
        bars += fold(f"{count(len(more))} smaller ones", draw_table("Smaller ones", head, more, "tbn"))
    note = f'<p class="note">{escape(words)}</p>' if words else ""
    return f'<h2>{title}</h2>{note}<div class="pair"><div>{bars}</div><div>{chart}</div></div>'


def show_reliability(model: Adapter, marks: Sequence[float]) -> str:
    """Show how far to trust predictions, and how strange rows were."""
    history = model.history_
    reliability, novelty = history.reliability, history.novelty
    series = (
        Series("reliability", "c0", reliability, percent(reliability[-1])),
        Series("novelty", "c5", novelty, percent(novelty[-1])),
    )
    title = "Reliability and novelty"
    chart = draw_lines("trust", f"{title} of each batch", history.n_rows, series, SHARES, marks)
    cells = [[percent(a), percent(b)] for a, b in zip(reliability, novelty, strict=True)]
    words = (
        "Reliability is how far to trust the predictions for a batch: how sure they are, times the "
        "share of rows that are not novel, times (if the model adapts) the share of classes seen. "
        "Novelty is the share of rows less like anything known than 99 % of the rows of sources."
    )
    behind = _behind(model, ["reliability", "novelty"], cells)
    return f'<h2>{title}</h2><p class="note">{words}</p>{chart}{behind}'


def show_loss(model: Adapter, marks: Sequence[float]) -> str:
    """Show how well the target could be rebuilt from the sources."""
    history = model.history_
    before, after = history.losses.T
    low, high = loss_limits(history.losses)
    logarithmic = low > 0.0
    middle = float(np.sqrt(low * high)) if logarithmic else 0.5 * (low + high)
    ticks = tuple(f"{value:.2g}".replace("e-0", "e-") for value in (high, middle, low))
    series = (
        Series("after its steps", "c0", after, figure(after[-1])),
        Series("before an update", "c5", before, figure(before[-1])),
    )
    axis = Axis(low, high, ticks, logarithmic)
    chart = draw_lines("loss", "Loss of the target", history.n_rows, series, axis, marks)
    words = (
        "How far the target is from the best blend of the sources, before and after each update; lower "
        "is nearer."
    )
    cells = [[figure(a), figure(b)] for a, b in zip(after, before, strict=True)]
    behind = _behind(model, ["after its steps", "before an update"], cells)
    return f'<h2>Loss</h2><p class="note">{words}</p>{chart}{behind}'


def show_columns(model: Adapter) -> str:
    """Show which columns differ most from the sources, and which have faults."""
    parts = ["<h2>Columns</h2>"]
    found = model.compare_columns()
    order = found.order()
    if len(order):
        finite = np.abs(found.differences[order])
        largest = float(np.max(finite[np.isfinite(finite)], initial=0.5))

        def row(j: int) -> list[str]:
            scale = float(found.source_stds[j])
            return [
                show_name(found.names[j], "column"),
                draw_deviation(float(found.differences[j]), largest),
                figure(float(found.differences[j]), 1.0, sign=True),
                figure(float(found.target_means[j] - found.source_means[j]), scale, sign=True),
                figure(float(found.target_means[j]), scale),
                figure(float(found.source_means[j]), scale),
                figure(scale, scale),
            ]

        head = ("Column", "", "In stds", "Difference", "Target mean", "Sources’ mean", "Sources’ std")
        first = [row(j) for j in order[:_COLUMNS]]
        words = (
            "Means of the target and of all sources together, in your units; the difference also in "
            "standard deviations of the sources. A sensor that is set otherwise, another operating "
            "point and another mix of classes all move a mean."
        )
        parts.append(f'<p class="note">{words}</p>')
        caption = "Those that differ most first"
        if len(order) > _COLUMNS:
            caption = f"The {_COLUMNS} of {count(len(order))} columns that differ most"
        parts.append(draw_table(caption, head, first, "tdnnnnn"))
        if rest := [row(j) for j in order[_COLUMNS:_MOST_COLUMNS]]:
            parts.append(
                fold(f"{count(len(rest))} more", draw_table("More columns", head, rest, "tdnnnnn"))
            )
    else:
        words = "The model was made from mixtures: how columns vary in the sources is not known."
        parts.append(f'<p class="note">{words}</p>')
    if model.columns_:
        body = [[show_name(name, "column"), escape(fault)] for name, fault in model.columns_.items()]
        parts.append("<h3>Columns with faults</h3>")
        parts.append(draw_table("Not as they should be", ("Column", "What is wrong"), body, "tt"))
    return "".join(parts)


def show_means(model: Adapter) -> str:
    """Show the means of the classes in the columns that differ most."""
    found = model.compare_columns()
    shown = found.order()[:_MEANS]
    if not len(shown):
        return ""
    means = model.class_means_
    body = [
        [
            show_name(name, "class"),
            *(figure(float(means[k, j]), float(found.source_stds[j])) for j in shown),
        ]
        for k, name in enumerate(model.classes_.tolist())
    ]
    head = ["Class", *(plain_name(found.names[j], "column") for j in shown)]
    table = draw_table("As the target shows them, in your units", head, body, "t" + "n" * len(shown))
    return fold("Mean of each class on the target", table)


def _behind(model: Adapter, names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return the figures behind a picture, at some points of the stream."""
    rows = model.history_.n_rows
    picked = np.unique(np.linspace(0, len(rows) - 1, min(_POINTS, len(rows))).round().astype(int))
    body = [[count(int(rows[i])), *cells[i]] for i in picked]
    table = draw_table("Along the stream", ("Rows seen", *names), body, "t" + "n" * len(names))
    return fold("The figures", table)
