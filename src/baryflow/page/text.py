"""Names and figures as they are written on the page; everything that comes from outside passes here."""

from __future__ import annotations

import html
import math
import re
from typing import Any

#: Longer names are cut in their middle.
_LONGEST = 60
#: What no document may hold.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
#: Where a long name may go on in the next line; not inside of what escaping made.
_BREAK = re.compile(r"(?<=[_./:\\|-])(?=\w)")
_NOTHING = "–"


def escape(text: Any) -> str:
    """Return any text so that a browser shows it, and does nothing else with it."""
    return html.escape(_UNPRINTABLE.sub("\ufffd", str(text)))


def plain_name(name: Any, kind: str = "", longest: int = _LONGEST) -> str:
    """Return a name of bearable length; a number gets its kind in front. Not escaped."""
    words = str(name) if isinstance(name, str) or not kind else f"{kind} {name}"
    words = " ".join(words.split()) or "(no name)"
    if len(words) <= longest:
        return words
    half = longest // 2
    return f"{words[:half].rstrip()}…{words[-half + 1 :].lstrip()}"


def show_breaking(text: Any) -> str:
    """Return text as HTML that a narrow place may break where names have their joints."""
    return _BREAK.sub("<wbr>", escape(text))


def show_report(text: str) -> str:
    """Return the words of a report, a paragraph for each line; lines of its tables are set in."""
    lines = []
    for line in text.splitlines():
        cells = " · ".join(re.split(" {2,}", line.strip()))
        inside = ' class="in"' if line.startswith("  ") else ""
        lines.append(f"<p{inside}>{escape(cells)}</p>")
    return f'<div class="words">{"".join(lines)}</div>'


def show_name(name: Any, kind: str = "") -> str:
    """Return a name as HTML; one that was cut says all of itself when pointed at."""
    short = plain_name(name, kind)
    whole = f' title="{escape(name)}"' if "…" in short else ""
    return f"<bdi{whole}>{show_breaking(short)}</bdi>"


def percent(share: float) -> str:
    """Return a share of 1 in per cent; what is small but there is not called nothing."""
    if math.isnan(share):
        return _NOTHING
    if 0.0 < share < 0.005:
        return "< 1 %"
    if 0.995 <= share < 1.0:
        return "> 99 %"
    return f"{100 * share:.0f} %"


def figure(value: float, scale: float | None = None, *, sign: bool = False) -> str:
    """Return a figure with as many digits as make sense: two of `scale`, or else four of its own."""
    if math.isnan(value):
        return _NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    told = scale is not None and 0.0 < scale < math.inf
    unit, digits = (scale, 1) if told and scale is not None else (abs(value), 3)
    plus = "+" if sign else ""
    if unit and not (1e-4 <= unit <= 1e7 and abs(value) < 1e12):
        text = f"{value:{plus}.4g}"
    else:
        decimals = max(0, digits - math.floor(math.log10(unit))) if unit else 0
        text = f"{value:{plus}.{decimals}f}"
    # A value that rounds to nothing has no sign.
    text = text.lstrip("+-") if not re.search("[1-9]", text) else text
    return text.replace("-", "−")


def count(number: int) -> str:
    """Return a whole number with thin spaces between thousands."""
    return f"{number:,}".replace(",", "\u202f")
