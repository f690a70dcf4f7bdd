"""Names and numbers as the page shows them."""

from __future__ import annotations

import math
import re
from typing import Any

from markupsafe import Markup, escape

#: Longer names are shortened in the middle.
_MAX_NAME = 60
#: Positions at which a long name may wrap; never inside an HTML entity.
_BREAK = re.compile(r"(?<=[_./:\\|-])(?=\w)")
_MISSING = "–"


def short_name(name: Any, kind: str = "", longest: int = _MAX_NAME) -> str:
    """Return a name of limited length; a number gets its kind as a prefix."""
    text = str(name) if isinstance(name, str) or not kind else f"{kind} {name}"
    text = " ".join(text.split()) or "(no name)"
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half].rstrip()}…{text[-half + 1 :].lstrip()}"


def breakable(text: Any) -> Markup:
    """Return escaped text that may wrap after the separators of a name."""
    return Markup(_BREAK.sub("<wbr>", str(escape(text))))  # noqa: S704 - escaped


def format_percent(share: float) -> str:
    """Return a fraction as a percentage; never round to 0 % or 100 % what is neither."""
    if math.isnan(share):
        return _MISSING
    if 0.0 < share < 0.005:
        return "< 1 %"
    if 0.995 <= share < 1.0:
        return "> 99 %"
    return f"{100 * share:.0f} %"


def format_number(value: float, scale: float | None = None, *, sign: bool = False) -> str:
    """Return a number rounded to two digits of `scale`, or to four significant digits without one."""
    if math.isnan(value):
        return _MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    unit, digits = abs(value), 3
    if scale is not None and 0.0 < scale < math.inf:
        unit, digits = scale, 1
    plus = "+" if sign else ""
    if unit and not (1e-4 <= unit <= 1e7 and abs(value) < 1e12):
        text = f"{value:{plus}.4g}"
    else:
        decimals = max(0, digits - math.floor(math.log10(unit))) if unit else 0
        text = f"{value:{plus}.{decimals}f}"
    # A value that rounds to zero has no sign.
    text = text.lstrip("+-") if not re.search("[1-9]", text) else text
    return text.replace("-", "−")
