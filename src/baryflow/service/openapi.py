"""The description of the service's interface."""

from __future__ import annotations

from typing import Any

from baryflow.service.limits import Limits


def description(n_columns: int, columns: list[str] | None, limits: Limits) -> dict[str, Any]:
    """Return an OpenAPI description that is true for one model and its limits.

    Parameters
    ----------
    n_columns : int
    columns : list of str or None
    limits : Limits

    Returns
    -------
    dict
    """
    return {"openapi": "3.1.0", "info": {"title": "baryflow", "version": "1"}, "paths": {}}
