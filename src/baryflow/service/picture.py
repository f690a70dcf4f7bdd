"""What the page draws of a target, and why a row was called what it was."""

from __future__ import annotations

from typing import Any

from baryflow.runtime import Followed


def picture(followed: Followed) -> dict[str, Any]:
    """Return what is drawn of a target.

    Parameters
    ----------
    followed : Followed

    Returns
    -------
    dict
        Fit for JSON.
    """
    return {"classes": [str(label) for label in followed.model.classes_.tolist()]}


def explain(followed: Followed, position: int) -> dict[str, Any] | None:
    """Return why one of the recent rows was called what it was.

    Parameters
    ----------
    followed : Followed
    position : int

    Returns
    -------
    dict or None
        None if the row is not known any more.
    """
    for row in followed.notes.get("recent", []):
        if row["position"] == position:
            return {name: row[name] for name in row if name != "values"}
    return None
