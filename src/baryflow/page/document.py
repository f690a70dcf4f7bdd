"""The report of a model as one HTML document: header, sections, tables.

To add a section, write a function that returns HTML and add it to the list in :func:`html_report`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from baryflow.estimators._adapter import Adapter
from baryflow.estimators._experts import describe_experts
from baryflow.estimators._plots import AREA, by_size, loss_limits
from baryflow.estimators._predict import class_means
from baryflow.estimators._report import expert_table
from baryflow.exceptions import InvalidInputError
from baryflow.page.charts import (
    SHARES,
    Axis,
    Series,
    draw_areas,
    draw_bar,
    draw_deviation,
    draw_lines,
    draw_trend,
)
from baryflow.page.style import STYLE
from baryflow.page.text import (
    breakable,
    escape,
    format_count,
    format_number,
    format_percent,
    name_html,
    plural,
    report_html,
    short_name,
)
from baryflow.validation import Floats

#: The page may apply its own styles and load nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
#: Names in cards are shortened to this length, and set smaller beyond the second.
_MAX_CARD, _LONG_CARD = 36, 14
#: Rows of the table behind a chart, rows of the column table, columns of the class-mean table.
_POINTS, _COLUMNS, _MEANS = 12, 20, 12
#: Names of sources or classes listed in a sentence; more are collapsed.
_PARTS = 12
#: Columns and events listed at most, and characters of an event's details.
_MAX_COLUMNS, _MAX_EVENTS, _MAX_DETAILS = 500, 200, 400
#: Share of novel rows from which on a batch is unlike all sources.
_UNLIKE = 0.5
#: Keys of an event that hold its position and its kind, by precedence.
_POSITION_KEYS, _KIND_KEYS = ("row", "n_rows", "position", "offset"), ("kind", "event", "type")


def html_report(
    model: Any,
    *,
    title: str | None = None,
    events: Sequence[Mapping[str, Any]] | None = None,
    about: str = "",
) -> str:
    """Return a self-contained HTML report of a fitted model.

    The report shows the sources and classes, the decision to adapt and its reason, which sources the
    target resembles, the class proportions, reliability and novelty along the stream, the loss, events,
    and the columns that differ most from the sources, in the units of the rows. The page contains no
    script and loads nothing from the network. It has a dark and a print style, fits narrow screens, and
    gives screen readers a description of every chart. The same model yields the same page.

    Parameters
    ----------
    model : OnlineDaDiL or DaDiL
        A fitted model. It need not have seen a target yet.
    title : str, optional
        Title of the page, for example the name of the target.
    events : sequence of mappings, optional
        Events along the stream, for example drift, in the order in which to list them. Pass an empty
        sequence if nothing happened: the page then states that no drift was reported. ``row`` (or
        ``n_rows``, ``position``, ``offset``) is the number of target rows seen by then, at which the
        charts mark the event; ``time`` is its time and ``kind`` (or ``event``, ``type``) its kind. All
        other entries are listed as details. Those of the kinds ``alarm`` and ``label`` are listed by
        themselves, and not marked.
    about : str, default=""
        A sentence for the top of the page, for example where the rows come from.

    Returns
    -------
    str
        The document. Write it with ``Path("report.html").write_text(page, encoding="utf-8")``.

    Raises
    ------
    InvalidInputError
        If the model is of another class, or an event is not a mapping.
    NotFittedError
        If the model is not fitted.

    Examples
    --------
    >>> from baryflow import OnlineDaDiL
    >>> from baryflow.datasets import make_domains
    >>> from baryflow.page import html_report
    >>> p = make_domains(n_per_class=40, random_state=0)
    >>> model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    >>> model = model.fit(p.X, p.y, sample_domain=p.domain)
    >>> html_report(model, title="Unit 7")[:15]
    '<!doctype html>'
    """
    if not isinstance(model, Adapter):
        raise InvalidInputError(
            f"html_report expects a model that adapts, OnlineDaDiL or DaDiL; got {type(model).__name__}"
        )
    report = model.report()  # raises if the model is not fitted
    listed = _read_events(events or ())
    name = "Model report" if title is None else title
    alarms, labels = ([one for one in listed if one.kind == kind] for kind in ("alarm", "label"))
    listed = [one for one in listed if one.kind not in ("alarm", "label")]
    marks = [event.row for event in listed if event.row is not None]
    sections = [_decision(model)]
    if model.resemblance_:
        sections += [_sources(model, marks), _classes(model, marks)]
    else:
        sections.append("<h2>The target</h2><p>The model has not seen a target yet.</p>")
    if len(model.history_):
        sections.append(_reliability(model, marks))
    sections.append(_events(None if events is None else listed))
    sections += [_list_events("Alarms", alarms), _list_events("Labels", labels)]
    if model.resemblance_:
        sections += [_columns(model), _class_means(model)]
    if len(model.history_):
        sections.append(_loss(model, marks))
    sections.append(collapsed("Full text report", report_html(report)))
    body = "\n".join(f"<section>{section}</section>" for section in sections if section)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
<title>{escape(name)}</title>
<style>
{STYLE}
</style>
</head>
<body>
<header><h1>{escape(name)}</h1>
<p class="lede">{_summary(model)}</p>
{f'<p class="note">{escape(about)}</p>' if about else ""}{_cards(model, listed)}</header>
<main>
{body}
</main>
<footer>{escape(type(model).__name__)}, written by baryflow {escape(version("baryflow"))}. This page is a
snapshot: it does not change as the model learns.</footer>
</body>
</html>
"""


def _summary(model: Adapter) -> str:
    """Return the page in two sentences."""
    classes, sources = (
        plural(len(model.classes_), "class", "classes"),
        plural(len(model.sources_), "source"),
    )
    learned = f"The model learned {classes} from {sources}"
    if not model.resemblance_:
        return f"{learned}. It has not seen a target yet."
    adapts = "adapts" if model.committee_.adapts else "does not adapt"
    nearest = max(model.resemblance_, key=lambda name: model.resemblance_[name])
    return (
        f"{learned}, has seen {plural(model.n_samples_seen_, 'target row')} and {adapts} to the target. "
        f"The target resembles {name_html(nearest, 'source')} most."
    )


def _cards(model: Adapter, events: Sequence[Event]) -> str:
    """Return the key figures."""
    cards = [("Target rows seen", format_count(model.n_samples_seen_), "")]
    if len(model.history_):
        nearest, share = max(model.resemblance_.items(), key=lambda item: item[1])
        common = int(np.nanargmax(model.proportions_))  # those of new classes are not estimated
        largest = float(model.proportions_[common])
        source = short_name(nearest, "source", _MAX_CARD)
        label = short_name(model.classes_.tolist()[common], "class", _MAX_CARD)
        cards += [
            ("Reliability", format_percent(model.reliability_), "of the last batch"),
            ("Novelty", format_percent(model.novelty_), "of the last batch is novel"),
            ("Resembles most", source, f"{format_percent(share)} of the target"),
            ("Most common class", label, f"{format_percent(largest)} of the target"),
        ]
    else:
        cards += [
            ("Sources", format_count(len(model.sources_)), ""),
            ("Classes", format_count(len(model.classes_)), ""),
        ]
    cards.append(("Decision", "adapt" if model.committee_.adapts else "do not adapt", ""))
    if events:
        cards.append(("Events", format_count(len(events)), ""))
    if model.columns_:
        cards.append(("Columns with faults", format_count(len(model.columns_)), ""))
    return f'<dl class="cards">{"".join(_card(*card) for card in cards)}</dl>'


def _card(name: str, value: str, details: str) -> str:
    long = ' class="long"' if len(value) > _LONG_CARD else ""
    small = f"<small>{escape(details)}</small>" if details else ""
    return f"<div><dt>{name}</dt><dd{long}>{breakable(value)}{small}</dd></div>"


# -- sections ---------------------------------------------------------------------------------------


def _decision(model: Adapter) -> str:
    """Show what was learned, what was decided, and why."""
    committee = model.committee_
    sources, classes = _name_list(model.sources_, "source"), _name_list(model.classes_.tolist(), "class")
    decision = "adapt" if committee.adapts else "do not adapt; the classifiers on raw rows predict"
    text = (
        f"<h2>Model and decision</h2>{sources}{classes}"
        f"<p><b>Decision:</b> {decision}. <b>Why:</b> {escape(committee.reason)}.</p>"
    )
    tables = []
    if committee.adapts and len(committee.experts) > 1:
        described = describe_experts(model.knowledge_)
        body = [
            [escape(described[name]), format_percent(weight), alone.strip()]
            for name, weight, alone in expert_table(committee)
        ]
        head = ("Expert", "Weight", "Accuracy alone")
        tables.append(table_html("Experts and their weights", head, body, "tnn"))
    if committee.scores:
        body = [
            [escape(name), format_percent(before), format_percent(after)]
            for name, before, after in committee.scores
        ]
        heads = ("Kind of stream", "Not adapting", "Adapting")
        tables.append(table_html("Leave-one-source-out accuracy", heads, body, "tnn"))
    return text + (f'<div class="pair">{"".join(tables)}</div>' if tables else "")


def _name_list(names: Sequence[Any], kind: str) -> str:
    """Return the names, or their number and a collapsed list if there are many."""
    listed = ", ".join(name_html(name, kind) for name in names)
    title = "Sources" if kind == "source" else "Classes"
    if len(names) <= _PARTS:
        return f"<p><b>{title}:</b> {listed}</p>"
    return f"<p><b>{title}:</b> {format_count(len(names))}</p>{collapsed('Names', f'<p>{listed}</p>')}"


def _sources(model: Adapter, marks: Sequence[float]) -> str:
    note = (
        "Weight of each source in the reconstruction of the target. Shift and scale of the columns are "
        "not included; see “Columns”."
    )
    parts = (model.sources_, list(model.resemblance_.values()), model.history_.resemblance)
    return _shares("source", "Resemblance to the sources", note, model, parts, marks)


def _classes(model: Adapter, marks: Sequence[float]) -> str:
    known = np.flatnonzero(~np.isnan(model.proportions_))  # those of new classes are not estimated
    shares, history = model.proportions_[known], model.history_.proportions[:, known]
    parts = (model.classes_[known].tolist(), shares.tolist(), history)
    note = model.describe_proportions()
    return _unsettled(model) + _shares("class", "Class proportions", note, model, parts, marks)


def _unsettled(model: Adapter) -> str:
    """Show the explanations that compete, and what settles it; nothing if one is clear."""
    found = "".join(f"<li>{escape(one)}</li>" for one in model.describe_explanations())
    if not found:
        return ""
    return (
        f"<h2>What is not known</h2><p>{format_percent(model.ambiguity_)} of the predictions depend on "
        f"which of these explanations is right:</p><ul>{found}</ul>"
        "<p>To settle it, give a baseline (rows known to be of one class), label a few rows, or fit "
        "with the expected class proportions.</p>"
    )


def _shares(
    kind: str,
    title: str,
    note: str,
    model: Adapter,
    parts: tuple[Sequence[Any], Sequence[float], Floats],
    marks: Sequence[float],
) -> str:
    """Show all shares, now and along the stream: a few as stacked areas, many in rows of a table."""
    names, now, history = parts
    paragraph = f'<p class="note">{escape(note)}</p>' if note else ""
    order = np.argsort(-np.asarray(now), kind="stable").tolist()
    history = np.nan_to_num(history)
    largest = max(now) or 1.0
    data = ""
    if len(history):
        cells = [[format_percent(value) for value in values] for values in history]
        data = _data_table(model, [short_name(name, kind) for name in names], cells)
    if len(names) > len(AREA) and len(history):
        top, first = float(history.max()) or 1.0, "s0" if kind == "source" else "c0"
        rows = model.history_.n_rows
        body = [
            [
                name_html(names[k], kind),
                draw_trend(rows, history[:, k] / top, first),
                format_percent(now[k]),
            ]
            for k in order
        ]
        head = (kind.capitalize(), "Along the stream", "Now")
        return f"<h2>{title}</h2>{paragraph}{table_html(title, head, body, 'tbn')}{data}"
    letter = "s" if kind == "source" else "c"
    colors = {k: f"{letter}{i}" for i, k in enumerate(by_size(history) if len(history) else order)}
    chart = ""
    if len(history):
        series = [
            Series(short_name(names[k], kind), colors[k], history[:, k], format_percent(history[-1, k]))
            for k in colors
        ]
        chart = draw_areas(kind, f"{title}, along the stream", model.history_.n_rows, series, marks)
    body = [
        [
            name_html(names[k], kind),
            draw_bar(now[k] / largest, colors.get(k, "rest")),
            format_percent(now[k]),
        ]
        for k in order
    ]
    bars = table_html("Now", (kind.capitalize(), "", "Share"), body, "tbn")
    return (
        f'<h2>{title}</h2>{paragraph}<div class="pair"><div>{bars}</div><div>{chart}{data}</div></div>'
    )


def _reliability(model: Adapter, marks: Sequence[float]) -> str:
    history = model.history_
    reliability, novelty = history.reliability, history.novelty
    series = (
        Series("reliability", "c0", reliability, format_percent(reliability[-1])),
        Series("novelty", "c5", novelty, format_percent(novelty[-1])),
    )
    title = "Reliability and novelty"
    chart = draw_lines("trust", f"{title} of each batch", history.n_rows, series, SHARES, marks)
    cells = [[format_percent(a), format_percent(b)] for a, b in zip(reliability, novelty, strict=True)]
    note = (
        "Reliability is the estimated accuracy of the predictions for a batch; those for novel rows "
        "count as wrong. Novelty is the share of rows that are less like everything known than 99 % of "
        "the rows that are known."
    )
    if model.novelty_ >= _UNLIKE:
        note += f" {format_percent(model.novelty_)} of the last batch is unlike all sources."
    data = _data_table(model, ["reliability", "novelty"], cells)
    return f'<h2>{title}</h2><p class="note">{note}</p>{chart}{data}'


def _loss(model: Adapter, marks: Sequence[float]) -> str:
    """Show how well the sources reconstruct the target."""
    history = model.history_
    before, after = history.losses.T
    low, high = loss_limits(history.losses)
    logarithmic = low > 0.0
    middle = float(np.sqrt(low * high)) if logarithmic else 0.5 * (low + high)
    ticks = tuple(f"{value:.2g}".replace("e-0", "e-") for value in (high, middle, low))
    series = (
        Series("after the update", "c0", after, format_number(after[-1])),
        Series("before the update", "c5", before, format_number(before[-1])),
    )
    axis = Axis(low, high, ticks, logarithmic)
    chart = draw_lines("loss", "Reconstruction loss of the target", history.n_rows, series, axis, marks)
    note = (
        "Distance between the target and its best reconstruction from the sources, before and after "
        "each update. Lower is better."
    )
    cells = [[format_number(a), format_number(b)] for a, b in zip(after, before, strict=True)]
    data = _data_table(model, ["after the update", "before the update"], cells)
    return f'<h2>Loss</h2><p class="note">{note}</p>{chart}{data}'


def _columns(model: Adapter) -> str:
    """Show the columns that differ most from the sources, and those with faults."""
    parts = ["<h2>Columns</h2>"]
    found = model.compare_columns()
    order = found.order()
    if len(order):
        sizes = np.abs(found.differences[order])
        largest = float(np.max(sizes[np.isfinite(sizes)], initial=0.5))

        def row(j: int) -> list[str]:
            scale = float(found.source_stds[j])
            return [
                name_html(found.names[j], "column"),
                draw_deviation(float(found.differences[j]), largest),
                format_number(float(found.differences[j]), 1.0, sign=True),
                format_number(float(found.target_means[j] - found.source_means[j]), scale, sign=True),
                format_number(float(found.target_means[j]), scale),
                format_number(float(found.source_means[j]), scale),
                format_number(scale, scale),
            ]

        head = ("Column", "", "In stds", "Difference", "Target mean", "Source mean", "Source std")
        note = (
            "Means of the target and of all source rows, in the units of the rows; the difference also "
            "in standard deviations of the sources. A recalibrated sensor, another operating point and "
            "other class proportions all move a mean."
        )
        parts.append(f'<p class="note">{note}</p>')
        caption = "Largest difference first"
        if len(order) > _COLUMNS:
            caption = f"The {_COLUMNS} of {format_count(len(order))} columns that differ most"
        parts.append(table_html(caption, head, [row(j) for j in order[:_COLUMNS]], "tdnnnnn"))
        if rest := [row(j) for j in order[_COLUMNS:_MAX_COLUMNS]]:
            more = table_html("More columns", head, rest, "tdnnnnn")
            parts.append(collapsed(f"{format_count(len(rest))} more", more))
    else:
        note = "No value of the target was seen yet."
        parts.append(f'<p class="note">{note}</p>')
    if model.columns_:
        body = [[name_html(name, "column"), escape(fault)] for name, fault in model.columns_.items()]
        parts.append("<h3>Columns with faults</h3>")
        parts.append(table_html("Columns with faults", ("Column", "Fault"), body, "tt"))
    return "".join(parts)


def _class_means(model: Adapter) -> str:
    """Show the class means in the columns that differ most."""
    found = model.compare_columns()
    columns = found.order()[:_MEANS]
    if not len(columns):
        return ""
    means = class_means(model.knowledge_, model.state_)
    body = [
        [
            name_html(name, "class"),
            *(format_number(float(means[k, j]), float(found.source_stds[j])) for j in columns),
        ]
        for k, name in enumerate(model.classes_.tolist())
    ]
    head = ["Class", *(short_name(found.names[j], "column") for j in columns)]
    table = table_html("In the units of the rows", head, body, "t" + "n" * len(columns))
    return collapsed("Class means in the target", table)


def _data_table(model: Adapter, names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return the data of a chart as a collapsed table, at some points of the stream."""
    rows = model.history_.n_rows
    picked = np.unique(np.linspace(0, len(rows) - 1, min(_POINTS, len(rows))).round().astype(int))
    body = [[format_count(int(rows[i])), *cells[i]] for i in picked]
    table = table_html("Along the stream", ("Rows seen", *names), body, "t" + "n" * len(names))
    return collapsed("Data", table)


# -- events -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """An event as the page lists it."""

    row: float | None
    time: str
    kind: str
    details: str


def _read_events(events: Sequence[Mapping[str, Any]]) -> list[Event]:
    found = []
    for number, event in enumerate(events):
        if not isinstance(event, Mapping):
            raise InvalidInputError(
                f"expected events to be mappings like {{'row': 640, 'kind': 'drift'}}, got "
                f"{type(event).__name__} at position {number}"
            )
        left = {str(key): value for key, value in event.items()}
        position = next((key for key in _POSITION_KEYS if _is_number(left.get(key))), None)
        row = None if position is None else float(left.pop(position))
        kind = next((str(left.pop(key)) for key in _KIND_KEYS if key in left), "event")
        time = str(left.pop("time")) if left.get("time") is not None else ""
        details = [f"{key}: {_brief(value)}" for key, value in left.items() if value is not None]
        if set(left) == {"text"}:
            details = [str(left["text"])]
        found.append(Event(row, time, kind, "; ".join(details)[:_MAX_DETAILS]))
    return found


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (str, bool)) and math.isfinite(value)
    except TypeError:
        return False


def _brief(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _events(events: Sequence[Event] | None) -> str:
    """List the events, or state that there were none; return nothing if that is not known."""
    if events is None:
        return ""
    if not events:
        return "<h2>Events</h2><p>No drift was reported along the stream.</p>"
    note = "Dashed lines in the charts mark events whose position in the stream is known."
    return _list_events("Events", events, f'<p class="note">{note}</p>')


def _list_events(title: str, events: Sequence[Event], note: str = "") -> str:
    """Return a section with the last of some events; nothing if there are none."""
    if not events:
        return ""
    last = events[-_MAX_EVENTS:]
    timed = any(event.time for event in last)
    head = ["Event", "Target rows seen", *(["Time"] if timed else []), "Details"]
    body = [
        [
            escape(event.kind),
            "–" if event.row is None else format_count(round(event.row)),
            *([escape(event.time)] if timed else []),
            escape(event.details),
        ]
        for event in last
    ]
    caption = f"{title} along the stream"
    if len(events) > _MAX_EVENTS:
        caption += f", the last {_MAX_EVENTS} of {format_count(len(events))}"
    table = table_html(caption, head, body, "tnwt" if timed else "tnt")
    return f"<h2>{title}</h2>{note}{table}"


# -- building blocks --------------------------------------------------------------------------------


def table_html(caption: str, head: Sequence[str], body: Iterable[Sequence[str]], kinds: str) -> str:
    """Return a table that scrolls sideways on narrow screens.

    Caption and head are text; cells are HTML, the first of each row its header. `kinds` holds a letter
    for each column: t text, w text that does not wrap, n number, b bar, d bar hidden on narrow screens.
    """
    classes = {"t": "", "w": ' class="w"', "n": ' class="n"', "b": ' class="b"', "d": ' class="b d"'}
    top = "".join(
        f'<th scope="col"{classes[kind]}>{breakable(name)}</th>' if name else f"<td{classes[kind]}></td>"
        for name, kind in zip(head, kinds, strict=True)
    )
    lines = []
    for first, *others in body:
        cells = "".join(
            f"<td{classes[kind]}>{cell}</td>" for cell, kind in zip(others, kinds[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>\n<tbody>"
        + "\n".join(lines)
        + "</tbody></table></div>"
    )


def collapsed(summary: str, content: str) -> str:
    """Return content that the reader can expand."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"
