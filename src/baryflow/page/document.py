"""The report of a model as one HTML document.

``report.html`` is the document, with a section for everything it shows; here is what needs computing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from baryflow.estimators._adapter import Adapter
from baryflow.estimators._experts import describe_experts
from baryflow.estimators._plots import AREA, loss_limits
from baryflow.estimators._predict import class_means
from baryflow.estimators._report import expert_table
from baryflow.exceptions import InvalidInputError
from baryflow.page.charts import Chart
from baryflow.page.text import breakable, format_number, format_percent, short_name
from baryflow.validation import Floats, count_of

#: Columns of the table of class means.
_MEANS = 12
#: Characters that an HTML document must not contain.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


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
        Events along the stream, for example drift, as ``baryflow run --events`` writes them, in the
        order in which to list them. Pass an empty sequence if nothing happened: the page then states
        that no drift was reported. ``event`` is the kind of an event, ``message`` its text, and
        ``position`` the number of target rows seen by then, at which the charts mark the event; it
        may also have a ``time``. Those of the kinds ``alarm`` and ``label`` are listed by themselves,
        and not marked.
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
    listed = _group_events(events or ())
    page = (
        _environment()
        .get_template("report.html")
        .render(
            model=model,
            title="Model report" if title is None else title,
            about=about,
            version=version("baryflow"),
            report=report,
            events=listed,
            is_drift_known=events is not None,
            marks=[event.get("position") for event in listed["Events"]],
            described=describe_experts(model.knowledge_),
            experts=expert_table(model.committee_),
            **_compare_columns(model),
            history=_draw_history(model) if len(model.history_) else None,
            parts=_list_shares(model) if model.resemblance_ else (),
        )
    )
    return _UNPRINTABLE.sub("\ufffd", page).lstrip()


def _compare_columns(model: Adapter) -> dict[str, Any]:
    """Return how columns and class means of the target differ from the sources'."""
    found = model.compare_columns()
    sizes = np.abs(found.differences[found.order()])
    return {
        "comparison": found,
        "largest_difference": float(np.max(sizes[np.isfinite(sizes)], initial=0.5)),
        "class_means": class_means(model.knowledge_, model.state_),
        "mean_columns": [short_name(found.names[j], "column") for j in found.order()[:_MEANS]],
    }


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("baryflow", "page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    found.filters |= {
        "breakable": breakable,
        "grouped": "{:,}".format,
        "number": format_number,
        "percent": format_percent,
        "plural": count_of,
        "short": short_name,
    }
    return found


def _group_events(events: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the events by the section that lists them."""
    found: dict[str, list[Mapping[str, Any]]] = {"Events": [], "Alarms": [], "Labels": []}
    for number, event in enumerate(events):
        if not isinstance(event, Mapping):
            raise InvalidInputError(
                "expected events to be mappings like {'event': 'drift', 'position': 640, 'message': "
                f"'...'}}, got {type(event).__name__} at position {number}"
            )
        title = {"alarm": "Alarms", "label": "Labels"}.get(event.get("event", ""), "Events")
        found[title].append(event)
    return found


@dataclass(frozen=True, eq=False)
class Shares:
    """Shares of the sources or classes in the target, the largest first: now and along the stream."""

    kind: str
    title: str
    note: str
    names: list[Any]
    now: Floats
    chart: Chart | None

    @property
    def is_short(self) -> bool:
        """Whether a few areas can show them all."""
        return len(self.names) <= len(AREA)

    @property
    def colors(self) -> list[str]:
        """The CSS class of each part."""
        known = [f"{self.kind[0]}{k}" for k in range(len(AREA))]
        return known + ["rest"] * (len(self.names) - len(AREA))


def _list_shares(model: Adapter) -> list[Shares]:
    history = model.history_
    known = np.flatnonzero(~np.isnan(model.proportions_))  # those of new classes are not estimated
    classes = model.classes_[known].tolist(), model.proportions_[known], history.proportions[:, known]
    sources = model.sources_, np.array([*model.resemblance_.values()]), history.resemblance
    note = (
        "Weight of each source in the reconstruction of the target. Shift and scale of the columns are "
        "not included; see “Columns”."
    )
    found = []
    for kind, title, text, (names, now, along) in (
        ("source", "Resemblance to the sources", note, sources),
        ("class", "Class proportions", model.describe_proportions(), classes),
    ):
        order, chart = np.argsort(-now, kind="stable"), None
        ordered = [names[k] for k in order]
        if len(history):
            shown = [short_name(name, kind) for name in ordered]
            values = np.nan_to_num(along[:, order])
            chart = Chart(kind, f"{title}, along the stream", history.n_rows, shown, values)
        found.append(Shares(kind, title, text, ordered, now[order], chart))
    return found


def _draw_history(model: Adapter) -> dict[str, Chart]:
    """Return the charts of reliability and of the loss."""
    history = model.history_
    trust = np.column_stack([history.reliability, history.novelty])
    before, after = history.losses.T
    limits = loss_limits(history.losses)
    return {
        "trust": Chart(
            "trust",
            "Reliability and novelty of each batch",
            history.n_rows,
            ("reliability", "novelty"),
            trust,
        ),
        "loss": Chart(
            "loss",
            "Reconstruction loss of the target",
            history.n_rows,
            ("after the update", "before the update"),
            np.column_stack([after, before]),
            format_number,
            limits,
            is_logarithmic=limits[0] > 0.0,
        ),
    }
