"""What is said of a target in a line of a list, and at length."""

from __future__ import annotations

from typing import Any

from baryflow.runtime import Session
from baryflow.service.target_record import rows_of


def summarize(session: Session) -> dict[str, Any]:
    """Return what a list of targets says of one.

    Parameters
    ----------
    followed : Followed

    Returns
    -------
    dict
        Small, and fit for JSON.
    """
    model, notes = session.model, session.notes
    resemblance = model.resemblance_
    recent = notes.get("recent") or [{}]
    return {
        "rows_seen": rows_of(session),
        "rows_learned": int(model.n_samples_seen_),
        "reliability": _rounded(model.reliability_),
        "nearest": str(max(resemblance, key=lambda name: resemblance[name])) if resemblance else None,
        "last_label": recent[-1].get("label"),
        "last_time": recent[-1].get("time"),
        "drifts": int(notes.get("n_drifts", 0)),
    }


def detail(session: Session) -> dict[str, Any]:
    """Return what is said of one target beside its summary.

    Parameters
    ----------
    followed : Followed

    Returns
    -------
    dict
        Fit for JSON.
    """
    model = session.model
    names = getattr(session.config.base, "feature_names_in_", None)
    proportions = getattr(model, "proportions_", None)
    classes = [str(label) for label in model.classes_.tolist()]
    return {
        "resemblance": {str(name): _rounded(share) for name, share in model.resemblance_.items()},
        "proportions": {}
        if proportions is None
        else {name: _rounded(share) for name, share in zip(classes, proportions, strict=True)},
        "classes": classes,
        "sources": [str(name) for name in model.sources_],
        "columns": None if names is None else [str(name) for name in names],
    }


def _rounded(value: Any) -> float:
    return round(float(value), 6)
