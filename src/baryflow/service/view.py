"""A machine as the live page shows it: plain values, made from what its model knows at the moment."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.runtime.session import Session
from baryflow.service.nameless import NAMELESS
from baryflow.service.projection import Plane
from baryflow.validation import Floats

#: Columns that differ most, nearest components, and columns that speak for or against: so many of each.
_COLUMNS, _NEAREST, _REASONS = 12, 6, 6
#: A component of a target that stands for fewer rows than this is a class that is only awaited.
_LEAST_ROWS = 0.75
#: Beyond this a column says no more: one broken sensor must not drown all others.
_MOST_STDS = 6.0


def picture(session: Session) -> dict[str, Any]:
    """Return all that the page draws of a machine.

    Parameters
    ----------
    followed : Followed
        Nothing of it is changed. Of its notes ``recent`` (the last diagnoses), ``likelihood`` (pairs of
        rows seen and mean log-density of a batch) and ``drifts`` are shown, if they are there.

    Returns
    -------
    dict
        Plain values, as JSON has them: ``classes``, ``sources``, ``ellipses``, ``history``, ``drifts``,
        ``proportions``, ``recent``, ``columns``.
    """
    model, metadata = session.model, session.metadata
    classes, sources = [str(name) for name in model.classes_.tolist()], [str(s) for s in model.sources_]
    plane = Plane.of(list(model.source_mixtures_.values()), len(classes))
    return {
        "classes": classes,
        "sources": sources,
        "rows_seen": model.n_samples_seen_,
        "ellipses": _ellipses(model, plane, classes),
        "history": _history(model, sources, metadata.get("likelihood", [])),
        "drifts": [dict(drift) for drift in metadata.get("drifts", [])],
        "proportions": _proportions(model, classes),
        "recent": _recent(model, plane, metadata.get("recent", [])),
        "columns": _columns(model),
    }


def explain(session: Session, position: int) -> dict[str, Any] | None:
    """Say why a row was diagnosed as it was, by the model as it is now.

    Parameters
    ----------
    followed : Followed
    position : int
        Of a row among ``notes["recent"]``.

    Returns
    -------
    dict or None
        None if the row is not among them. Otherwise its record; ``probabilities`` of the likeliest
        classes; ``components`` that are nearest, with their class, whose they are and how far they are
        in standard deviations; and ``columns`` that speak for the diagnosis or against it, compared with
        the ``rival`` class, in the units of rows.
    """
    records = session.metadata.get("recent", [])
    record = next((one for one in records if one.get("position") == position), None)
    model = session.model
    if record is None or len(_row(record)) != model.n_features_in_:
        return None
    row = np.array([_row(record)])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=NAMELESS)
        chances = model.predict_proba(row)[0]
    order = np.argsort(-chances, kind="stable")
    names = [str(name) for name in model.classes_.tolist()]
    # A row may have been called unknown; then its likeliest class is what is explained.
    said = names.index(str(record["label"])) if str(record["label"]) in names else int(order[0])
    rival = int(next((i for i in order if i != said), said))
    return {
        **_without_values(record),
        "probabilities": [{"class": names[i], "probability": _number(chances[i])} for i in order[:5]],
        "components": _nearest(model, row, names),
        "rival": names[rival],
        "columns": [] if rival == said else _reasons(model, row[0], said, rival),
    }


def _ellipses(model: OnlineDaDiL, plane: Plane, classes: list[str]) -> dict[str, Any]:
    held = model.source_mixtures_
    sources = {str(name): plane.by_class(mixture, classes) for name, mixture in held.items()}
    target = [] if not model.resemblance_ else plane.ellipses(_seen(model), classes)
    return {"target": target, "sources": sources}


def _recent(model: OnlineDaDiL, plane: Plane, records: list[Any]) -> list[dict[str, Any]]:
    """Return the last diagnoses, and where in the plane their rows lie."""
    shown = [_without_values(record) for record in records]
    rows = [_row(record) for record in records]
    if any(len(row) != model.n_features_in_ for row in rows):
        return shown
    if not rows:
        return []
    places = plane.places(_in_view(model, rows))
    return [
        record | {"x": _number(x), "y": _number(y)} for record, (x, y) in zip(shown, places, strict=True)
    ]


def _in_view(model: OnlineDaDiL, rows: Any) -> Floats:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=NAMELESS)
        return model.in_view(np.asarray(rows))


def _row(record: Mapping[str, Any]) -> Floats:
    """Return the values of a row, NaN where there was none."""
    return np.asarray(record.get("values", ()), dtype=np.float64)


def _seen(model: OnlineDaDiL) -> Mixture:
    """Return the target's own components, without those that only wait for a class."""
    mixture = model.known_target().mixture
    rows = mixture.weights * (model.target_mass + len(model.classes_))
    there = rows >= min(_LEAST_ROWS, float(rows.max()))
    weights = mixture.weights[there]
    labels = np.asarray(mixture.labels)[there]
    return Mixture(weights / weights.sum(), mixture.means[there], mixture.stds[there], labels)


def _history(model: OnlineDaDiL, sources: list[str], likelihood: list[Any]) -> dict[str, Any]:
    history = model.history_
    rows = history.n_rows.tolist()
    told = {int(n): value for n, value in likelihood}
    return {
        "rows": rows,
        "resemblance": {
            name: [_number(value) for value in column]
            for name, column in zip(sources, history.resemblance.T, strict=True)
        },
        "reliability": [_number(value) for value in history.reliability],
        "novelty": [_number(value) for value in history.novelty],
        "loss": [_number(value) for value in history.losses[:, 1]],
        "likelihood": [_number(told.get(n)) for n in rows],
    }


def _proportions(model: OnlineDaDiL, classes: list[str]) -> dict[str, float | None]:
    shares = getattr(model, "proportions_", None)
    if shares is None:
        return {}
    return {name: _number(share) for name, share in zip(classes, shares, strict=True)}


def _columns(model: OnlineDaDiL) -> list[dict[str, Any]]:
    if not model.n_samples_seen_:
        return []
    found = model.compare_columns()
    differences = found.differences
    return [
        {
            "name": _column_name(found.names[i]),
            "target": _number(found.target_means[i]),
            "sources": _number(found.source_means[i]),
            "difference": _number(differences[i]),
        }
        for i in found.order()[:_COLUMNS]
    ]


def _nearest(model: OnlineDaDiL, row: Floats, names: list[str]) -> list[dict[str, Any]]:
    """Return the components nearest to a row, of the sources and of the target itself."""
    Z = _in_view(model, row)[0]
    whose = [(str(name), mixture) for name, mixture in model.source_mixtures_.items()]
    if model.resemblance_:
        whose.append(("", _seen(model)))
    found = []
    for name, mixture in whose:
        distances = np.sqrt(np.square((Z - mixture.means) / mixture.stds).mean(axis=1))
        codes = np.asarray(mixture.labels).argmax(axis=1)
        found += [
            {"class": names[code], "source": name or None, "distance": _number(distance)}
            for code, distance in zip(codes, distances, strict=True)
        ]
    return sorted(found, key=lambda one: one["distance"] or 0.0)[:_NEAREST]


def _reasons(model: OnlineDaDiL, row: Floats, said: int, rival: int) -> list[dict[str, Any]]:
    """Return the columns in which a row is nearer to one class than to another, or the other way."""
    found = model.compare_columns()
    means = model.class_means_
    stds = np.where(found.source_stds > 0.0, found.source_stds, np.nan)
    away = np.clip((row - means[[said, rival]]) / stds, -_MOST_STDS, _MOST_STDS)
    gain = np.nan_to_num(np.square(away[1]) - np.square(away[0]))
    order = np.argsort(-gain, kind="stable")
    chosen = [*order[:_REASONS], *order[::-1][: _REASONS // 2]]
    total = float(np.abs(gain).sum()) or 1.0
    return [
        {
            "name": _column_name(found.names[i]),
            "value": _number(row[i]),
            "usual": _number(means[said, i]),
            "rival": _number(means[rival, i]),
            "speaks": "for" if gain[i] > 0.0 else "against",
            "share": _number(gain[i] / total),
        }
        for i in dict.fromkeys(chosen)
        if abs(gain[i]) > 1e-3 * total
    ]


def _column_name(name: Any) -> str:
    return f"column {name}" if isinstance(name, int) else str(name)


def _without_values(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "values"}


def _number(value: Any) -> float | None:
    """Return a number with the digits that can be seen; JSON has no word for what is not finite."""
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None
