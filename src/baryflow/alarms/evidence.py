"""What a row has in common with what is known: nearest components, distinguishing columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.estimators._predict import class_means, in_view, source_mixtures
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.validation import Floats

#: Columns for or against a class, and nearest cases, to return.
_REASONS, _CASES = 6, 3
#: Deviations of a column are clipped here, so that one broken sensor does not hide all others.
_MAX_STDS = 6.0


def find_evidence(
    model: OnlineDaDiL, row: Floats, code: int | None, probabilities: Floats, normal: Sequence[str]
) -> dict[str, Any]:
    """Return the evidence for an alarm, as plain values.

    Parameters
    ----------
    model : OnlineDaDiL
    row : array of shape (d,)
    code : int or None
        Number of the class; None if the row is unknown.
    probabilities : array of shape (n_classes,)
        Of the row.
    normal : sequence of str
        Classes of normal operation.

    Returns
    -------
    dict
        ``cases``: the nearest components of the sources, each with class, source and distance in
        standard deviations. ``compared_with``: the likeliest class of normal operation, or without one
        the likeliest other class. ``columns``: those that differ most from it, with the value of the
        row, the usual value of the class (None if the row is unknown) and that of the other class, in
        the units of rows, and the share of each column in the difference.
    """
    names = [str(name) for name in model.classes_.tolist()]
    order = np.argsort(-probabilities, kind="stable").tolist()
    others = [i for i in order if names[i] in normal] or [i for i in order if i != code]
    mixtures = source_mixtures(model.knowledge_, model.sources_).items()
    columns = [] if not others else find_reasons(model, row, code, others[0])
    return {
        "cases": find_nearest(model, row, mixtures, names)[:_CASES],
        "compared_with": names[others[0]] if others else None,
        "columns": [
            {name: one[name] for name in ("name", "value", "usual", "rival", "share")}
            for one in columns
            if one["speaks"] == "for"
        ],
    }


def find_nearest(
    model: OnlineDaDiL, row: Floats, mixtures: Iterable[tuple[str, Mixture]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return class, source and distance of all components of named mixtures, the nearest first."""
    z = in_view(model.knowledge_, model.state_, row[None])[0]
    found = []
    for name, mixture in mixtures:
        distances = np.sqrt(np.square((z - mixture.means) / mixture.stds).mean(axis=1))
        codes = np.asarray(mixture.labels).argmax(axis=1)
        found += [
            {"class": names[code], "source": name or None, "distance": to_number(distance)}
            for code, distance in zip(codes, distances, strict=True)
        ]
    return sorted(found, key=lambda one: one["distance"] or 0.0)


def find_reasons(
    model: OnlineDaDiL, row: Floats, predicted: int | None, rival: int
) -> list[dict[str, Any]]:
    """Return the columns in which a row is much nearer to one of two classes than to the other.

    Without the first class, return those in which it is far from the second.
    """
    found = model.compare_columns()
    means = class_means(model.knowledge_, model.state_)
    stds = np.where(found.source_stds > 0.0, found.factors * found.source_stds, np.nan)
    usual = row if predicted is None else means[predicted]
    deviations = np.clip((row - np.array([usual, means[rival]])) / stds, -_MAX_STDS, _MAX_STDS)
    gain = np.nan_to_num(np.square(deviations[1]) - np.square(deviations[0]))
    order = np.argsort(-gain, kind="stable")
    chosen = [*order[:_REASONS], *order[::-1][: _REASONS // 2]]
    total = float(np.abs(gain).sum()) or 1.0
    return [
        {
            "name": name_column(found.names[i]),
            "value": to_number(row[i]),
            "usual": None if predicted is None else to_number(means[predicted, i]),
            "rival": to_number(means[rival, i]),
            "speaks": "for" if gain[i] > 0.0 else "against",
            "share": to_number(gain[i] / total),
        }
        for i in dict.fromkeys(chosen)
        if abs(gain[i]) > 1e-3 * total
    ]


def name_column(name: Any) -> str:
    """Return the name of a column as text; without a name it has a number."""
    return f"column {name}" if isinstance(name, int) else str(name)


def to_number(value: Any) -> float | None:
    """Return a number with five digits, enough to show it; None if it is not finite."""
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None
