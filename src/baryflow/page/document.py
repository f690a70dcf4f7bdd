"""The page itself: one section after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from baryflow.estimators._adapter import Adapter
from baryflow.estimators._report import look_back
from baryflow.exceptions import InvalidInputError
from baryflow.page.events import Event, read_events, show_events
from baryflow.page.sections import (
    show_classes,
    show_columns,
    show_decision,
    show_loss,
    show_means,
    show_reliability,
    show_sources,
)
from baryflow.page.style import STYLE
from baryflow.page.tables import fold
from baryflow.page.text import count, escape, percent, plain_name, show_breaking, show_name, show_report

#: The page may show itself, and ask nobody for anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
#: A card shows so many letters of a name at most, and more than so many smaller.
_LONGEST_IN_CARD, _LONG_IN_CARD = 36, 14


def html_report(
    model: Any,
    *,
    title: str | None = None,
    events: Sequence[Mapping[str, Any]] | None = None,
    about: str = "",
) -> str:
    """Return one self-contained HTML page that shows what a model learned, decided and saw.

    It holds what the sources taught, what was decided and why, which source the target resembles, the
    proportions of its classes, how reliable predictions and how novel rows were along the stream, the
    loss, events, and which columns differ most from the sources, in the units of rows. It needs no
    script and asks for nothing on the network; it can be read on a phone, at night, on paper, and by a
    screen reader. The same model gives the same page.

    Parameters
    ----------
    model : OnlineDaDiL or DaDiL
        Fitted; it need not have seen a target yet.
    title : str, optional
        Of the page; a machine's name, say.
    events : sequence of mappings, optional
        What happened along the stream, such as drift, in the order in which it is to be listed; if
        nothing did, an empty one, and the page says that no drift was seen. Of each
        mapping ``row`` (or ``n_rows``, ``position``, ``offset``: target rows seen by then) says where it
        is marked in the pictures, ``time`` when it was, and ``kind`` (or ``event``, ``type``) what it
        was; all else is shown as it is.
    about : str, default=""
        A sentence at the top; where the rows come from, say.

    Returns
    -------
    str
        Write it with ``Path("report.html").write_text(page, encoding="utf-8")``.

    Raises
    ------
    InvalidInputError
        If the model is not one of these, or an event is no mapping.
    NotFittedError
        If it was not fitted.

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
            f"html_report shows models that adapt, OnlineDaDiL or DaDiL; got {type(model).__name__}"
        )
    words = model.report()  # or a complaint that the model was not fitted
    found = read_events(events or ())
    name = "What the model learned and saw" if title is None else title
    marks = [event.row for event in found if event.row is not None]
    sections = [show_decision(model)]
    if model.resemblance_:
        sections += [show_sources(model, marks), show_classes(model, marks)]
    else:
        sections.append("<h2>The target</h2><p>No row of a target was seen yet.</p>")
    if len(model.history_):
        sections.append(show_reliability(model, marks))
    sections.append(show_events(None if events is None else found))
    if model.resemblance_:
        sections += [show_columns(model), show_means(model)]
    if len(model.history_):
        sections.append(show_loss(model, marks))
    sections.append(fold("All that the model says of itself", show_report(words)))
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
<p class="lede">{_lede(model)}</p>
{f'<p class="note">{escape(about)}</p>' if about else ""}{_cards(model, found)}</header>
<main>
{body}
</main>
<footer>{escape(type(model).__name__)}, made with baryflow {escape(version("baryflow"))}. This page is a
picture of one moment: it does not change when the model goes on.</footer>
</body>
</html>
"""


def _lede(model: Adapter) -> str:
    """Return the whole page in two sentences."""
    known = f"{count(len(model.sources_))} source{'s' if len(model.sources_) > 1 else ''}"
    learned = f"It learned {count(len(model.classes_))} classes from {known}"
    if not model.resemblance_:
        return f"{learned}. No row of a target was seen yet."
    does = "and adapts to" if model.committee_.adapts else "and does not adapt to"
    rows = f"{learned} {does} a target of which it saw {count(model.n_samples_seen_)} rows."
    nearest = max(model.resemblance_, key=lambda name: model.resemblance_[name])
    return f"{rows} What the target resembles most is {show_name(nearest, 'source')}."


def _cards(model: Adapter, events: Sequence[Event]) -> str:
    """Return the figures that people ask for first."""
    cards = [("Target rows seen", count(model.n_samples_seen_), "")]
    if len(model.history_):
        nearest = max(model.resemblance_.items(), key=lambda item: item[1])
        common = int(model.proportions_.argmax())
        last, largest = look_back(model.history_), float(model.proportions_[common])
        source = plain_name(nearest[0], "source", _LONGEST_IN_CARD)
        found = plain_name(model.classes_.tolist()[common], "class", _LONGEST_IN_CARD)
        cards += [
            ("Reliability", percent(last.reliability), f"of {last.words}"),
            ("Novelty", percent(last.novelty), f"of {last.words} are novel"),
            ("Resembles most", source, f"{percent(nearest[1])} of the target"),
            ("Most common class", found, f"{percent(largest)} of the target"),
        ]
    else:
        cards += [
            ("Sources", count(len(model.sources_)), ""),
            ("Classes", count(len(model.classes_)), ""),
        ]
    cards.append(("Decision", "adapt" if model.committee_.adapts else "do not adapt", ""))
    if events:
        cards.append(("Events", count(len(events)), ""))
    if model.columns_:
        cards.append(("Columns with faults", count(len(model.columns_)), ""))
    return f'<dl class="cards">{"".join(_card(*card) for card in cards)}</dl>'


def _card(name: str, value: str, more: str) -> str:
    long = ' class="long"' if len(value) > _LONG_IN_CARD else ""
    small = f"<small>{escape(more)}</small>" if more else ""
    return f"<div><dt>{name}</dt><dd{long}>{show_breaking(value)}{small}</dd></div>"
