"""What faults of the plant are called on the page."""

from __future__ import annotations

from baryflow.tep.tables import FAULTS


def class_name(fault: int) -> str:
    """Return what a fault is called: a short name, a dot, and what it is.

    Parameters
    ----------
    fault : int
        0 is normal operation.

    Returns
    -------
    str
    """
    return "normal" if fault == 0 else f"F{fault:02d} · {FAULTS[fault]}"


def clock(hours: float) -> str:
    """Return a time of the simulated plant as people say it.

    Parameters
    ----------
    hours : float

    Returns
    -------
    str
    """
    minutes = round(60 * hours)
    return f"day {1 + minutes // 1440}, {minutes // 60 % 24:02d}:{minutes % 60:02d}"
