"""The data of the live page: a target's mixture in a plane, its history, reasons for predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from baryflow.alarms import AlarmConfig
from baryflow.alarms.evidence import find_nearest, find_reasons, name_column, to_number
from baryflow.core.mixture import Mixture
from baryflow.estimators._input import InOrder
from baryflow.estimators._predict import in_view, source_mixtures
from baryflow.estimators._watching import known_target
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.runtime.session import Rows, Session
from baryflow.service.worker_targets import certify, describe_proportions
from baryflow.validation import Floats

#: The most deviating columns and nearest components to return.
_COLUMNS, _NEAREST = 12, 6
#: Components of the target with fewer rows than this only hold the place of a class not yet seen.
_LEAST_ROWS = 0.75


def picture(session: Session) -> dict[str, Any]:
    """Return everything that the page draws of a target, ready for JSON.

    The metadata of the session may hold ``recent`` (the last predictions), ``likelihood`` (pairs of rows
    seen and mean log-density of a batch), ``drifts``, ``bands`` (diagnoses) and ``changes`` (of alarms).
    The session is not changed.
    """
    model, metadata = session.model, session.metadata
    classes, sources = [str(name) for name in model.classes_.tolist()], [str(s) for s in model.sources_]
    projection = Projection.fit(list(source_mixtures(model.knowledge_, sources).values()), len(classes))
    return {
        "classes": classes,
        "normal": [] if session.alarms is None else list(session.alarms.config.normal),
        "sources": sources,
        "rows_seen": model.n_samples_seen_,
        "ellipses": _ellipses(model, projection, classes),
        "history": _history(model, sources, metadata.get("likelihood", [])),
        "drifts": [dict(drift) for drift in metadata.get("drifts", [])],
        "bands": [dict(band) | {"label": str(band["label"])} for band in metadata.get("bands", [])],
        "changes": [dict(change) for change in metadata.get("changes", [])],
        "explanations": model.describe_proportions() if model.resemblance_ else None,
        "competing": model.describe_explanations(),
        "ambiguity": to_number(model.ambiguity_) if model.resemblance_ else None,
        "novel": to_number(model.novelty_) if model.resemblance_ else None,
        "baseline_class": _baseline_class(session),
        "baselines": [
            {"class": classes[one.code], "rows": int(one.n_rows)} for one in model.state_.baselines
        ],
        "proportions": describe_proportions(session),
        "new_classes": classes[session.config.n_classes :],
        "certificate": certify(session),
        "recent": _recent(session, projection),
        "columns": _columns(model),
    }


def explain(session: Session, position: int) -> dict[str, Any] | None:
    """Explain the prediction for a recent row with the model in its present state.

    Return None if the row is not remembered, otherwise its record (made again if it is not among
    ``metadata["recent"]``) with the ``probabilities`` of the likeliest classes; the nearest
    ``components``, with their class, source and distance in standard deviations; and the ``columns``
    that are evidence for the prediction or against it compared with the ``rival``, the likeliest other
    class, in the units of the rows.
    """
    model, record = session.model, _find(session, position)
    if record is None or len(_values(record)) != model.n_features_in_:
        return None
    row = _values(record)
    probabilities = model.predict_proba(InOrder(row[None]))[0]
    order = np.argsort(-probabilities, kind="stable")
    names = [str(name) for name in model.classes_.tolist()]
    # The label may be "unknown": then explain the likeliest class.
    label = str(record["label"])
    predicted = names.index(label) if label in names else int(order[0])
    rival = int(next((i for i in order if i != predicted), predicted))
    return {
        **_without_values(record),
        "probabilities": [
            {"class": names[i], "probability": to_number(probabilities[i])} for i in order[:5]
        ],
        "components": _nearest(model, row, names),
        "rival": names[rival],
        "columns": [] if rival == predicted else find_reasons(model, row, predicted, rival),
    }


def _find(session: Session, position: int) -> dict[str, Any] | None:
    """Return the record of a row, as predicted now if only the model remembers it."""
    for record in session.metadata.get("recent", []):
        if record.get("position") == position:
            return dict(record)
    rows, _ = session.model.state_.recent.at(np.array([position]))
    if not len(rows):
        return None
    now = _predict(session, rows)[0]
    fields = ("label", "probability", "novelty")
    return {"position": position, "time": "", "values": rows[0]} | {key: now[key] for key in fields}


def _predict(session: Session, values: Floats) -> list[dict[str, Any]]:
    """Return records of what is predicted for rows at present."""
    n = len(values)
    return session.predict(Rows(values, np.arange(n), [""] * n, [""] * n))


@dataclass(frozen=True, eq=False)
class Projection:
    """A plane in which the classes of the sources are separated, found from the sources alone.

    So nothing but the target moves while rows arrive. Distances shrink far from the centre (by the
    inverse hyperbolic sine of each coordinate): otherwise one class that is far away would leave the
    others no room. ``axes`` has shape (n_dimensions, 2) and orthonormal columns; the second is zero if
    there is only one dimension. Up to about ``scale`` distances are preserved.
    """

    centre: Floats
    axes: Floats
    scale: Floats

    @classmethod
    def fit(cls, sources: Sequence[Mixture], n_classes: int) -> Self:
        """Find the plane for labelled mixtures.

        Each pair of classes contributes its direction only, not its distance: otherwise the plane would
        show how one distant class differs from the others, and nothing else.
        """
        means = _class_means(sources, n_classes)
        first, second = np.triu_indices(len(means), k=1)
        gaps = means[first] - means[second]
        lengths = np.linalg.norm(gaps, axis=1, keepdims=True)
        directions = gaps[lengths[:, 0] > 0.0] / lengths[lengths[:, 0] > 0.0]
        _, vectors = np.linalg.eigh(directions.T @ directions)
        axes = np.zeros((means.shape[1], 2))
        found = vectors[:, ::-1][:, :2]
        # The sign of an eigenvector is arbitrary: make its largest entry positive.
        signs = np.sign(found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])])
        axes[:, : found.shape[1]] = found * np.where(signs == 0.0, 1.0, signs)
        centre = np.median(means, axis=0)
        scale = np.median(np.abs((means - centre) @ axes), axis=0)
        return cls(centre, axes, np.where(scale > 0.0, scale, 1.0))

    def transform(self, Z: Floats) -> Floats:
        """Return the coordinates in the plane of rows of shape (n, n_dimensions)."""
        return np.asarray(self.scale * np.arcsinh((Z - self.centre) @ self.axes / self.scale))

    def ellipses(self, mixture: Mixture, classes: Sequence[str]) -> list[dict[str, Any]]:
        """Return each component of a labelled mixture as an ellipse of one standard deviation.

        An ellipse has x, y, rx, ry, angle (degrees from x towards y), class and weight.
        """
        labels = np.asarray(mixture.labels)
        return [
            self._ellipse(mean, np.diag(np.square(std)), weight, classes[code])
            for mean, std, weight, code in zip(
                mixture.means, mixture.stds, mixture.weights, labels.argmax(axis=1), strict=True
            )
        ]

    def class_ellipses(self, mixture: Mixture, classes: Sequence[str]) -> list[dict[str, Any]]:
        """Return one ellipse for each class of a labelled mixture, as :meth:`ellipses` does."""
        codes, found = np.asarray(mixture.labels).argmax(axis=1), []
        for code in np.unique(codes):
            which = codes == code
            weight = float(mixture.weights[which].sum())
            shares = mixture.weights[which] / weight
            mean = shares @ mixture.means[which]
            gaps = mixture.means[which] - mean
            covariance = np.diag(shares @ np.square(mixture.stds[which]))
            covariance += (shares[:, None] * gaps).T @ gaps
            found.append(self._ellipse(mean, covariance, weight, classes[code]))
        return found

    def _ellipse(self, mean: Floats, covariance: Floats, weight: float, name: str) -> dict[str, Any]:
        x, y = self.transform(mean)
        # The derivative of the transform at the mean.
        axes = self.axes / np.hypot(1.0, (mean - self.centre) @ self.axes / self.scale)
        variances, vectors = np.linalg.eigh(axes.T @ covariance @ axes)
        small, large = np.sqrt(np.maximum(variances, 0.0))
        angle = math.degrees(math.atan2(vectors[1, 1], vectors[0, 1]))
        angle = (angle + 90.0) % 180.0 - 90.0  # an ellipse is the same after half a turn
        numbers = {"x": x, "y": y, "rx": large, "ry": small, "angle": angle, "weight": weight}
        return {key: round(float(value), 4) for key, value in numbers.items()} | {"class": name}


def _class_means(sources: Sequence[Mixture], n_classes: int) -> Floats:
    """Return the mean of every class that occurs, with equal weight for each source."""
    found = []
    for code in range(n_classes):
        parts = []
        for mixture in sources:
            which = np.asarray(mixture.labels).argmax(axis=1) == code
            if which.any():
                parts.append(np.average(mixture.means[which], axis=0, weights=mixture.weights[which]))
        if parts:
            found.append(np.mean(parts, axis=0))
    return np.array(found)


def _ellipses(model: OnlineDaDiL, projection: Projection, classes: list[str]) -> dict[str, Any]:
    sources = {
        name: projection.class_ellipses(mixture, classes)
        for name, mixture in source_mixtures(model.knowledge_, model.sources_).items()
    }
    target = projection.ellipses(_target_mixture(model), classes) if model.resemblance_ else []
    return {"target": target, "sources": sources}


def _recent(session: Session, projection: Projection) -> list[dict[str, Any]]:
    """Return the last predictions with the positions of their rows in the plane.

    ``now`` and ``now_probability`` are what is predicted for a row at present, ``given`` is its label,
    if it has one.
    """
    model, records = session.model, session.metadata.get("recent", [])
    shown = [_without_values(record) for record in records]
    rows = [_values(record) for record in records]
    if not rows or any(len(row) != model.n_features_in_ for row in rows):
        return shown
    values = np.array(rows)
    points = projection.transform(in_view(model.knowledge_, model.state_, values))
    for record, (x, y), now in zip(shown, points, _predict(session, values), strict=True):
        record |= {"x": to_number(x), "y": to_number(y)}
        record |= {"now": now["label"], "now_probability": now["probability"]}
    return shown


def _values(record: Mapping[str, Any]) -> Floats:
    """Return the values of a row, NaN where one is missing."""
    return np.asarray(record.get("values", ()), dtype=np.float64)


def _target_mixture(model: OnlineDaDiL) -> Mixture:
    """Return the target's components, without those that only hold the place of a class."""
    mixture = known_target(model.knowledge_, model.state_).mixture
    rows = mixture.weights * (model.state_.mass + np.asarray(mixture.labels).shape[1])
    seen = rows >= min(_LEAST_ROWS, float(rows.max()))
    weights = mixture.weights[seen]
    labels = np.asarray(mixture.labels)[seen]
    return Mixture(weights / weights.sum(), mixture.means[seen], mixture.stds[seen], labels)


def _history(model: OnlineDaDiL, sources: list[str], likelihood: list[Any]) -> dict[str, Any]:
    history = model.history_
    rows = history.n_rows.tolist()
    likelihood_at = {int(n): value for n, value in likelihood}
    return {
        "rows": rows,
        "resemblance": {
            name: [to_number(value) for value in column]
            for name, column in zip(sources, history.resemblance.T, strict=True)
        },
        "reliability": [to_number(value) for value in history.reliability],
        "coverage": [to_number(value) for value in history.coverage],
        "novelty": [to_number(value) for value in history.novelty],
        "loss": [to_number(value) for value in history.losses[:, 1]],
        "likelihood": [to_number(likelihood_at.get(n)) for n in rows],
    }


def _baseline_class(session: Session) -> str:
    """Return the class that a baseline probably has: the normal one if it is known, else the first."""
    remembered = getattr(session.model, "normal_class_", None)
    if remembered is not None:
        return str(remembered)
    known = [str(name) for name in session.model.classes_.tolist()]
    alarms = AlarmConfig() if session.alarms is None else session.alarms.config
    return next((name for name in alarms.normal if name in known), known[0])


def _columns(model: OnlineDaDiL) -> list[dict[str, Any]]:
    """Return the columns in which the target deviates most from the sources."""
    if not model.n_samples_seen_:
        return []
    found = model.compare_columns()
    differences = found.differences
    return [
        {
            "name": name_column(found.names[i]),
            "target": to_number(found.target_means[i]),
            "sources": to_number(found.source_means[i]),
            "difference": to_number(differences[i]),
        }
        for i in found.order()[:_COLUMNS]
    ]


def _nearest(model: OnlineDaDiL, row: Floats, names: list[str]) -> list[dict[str, Any]]:
    """Return the components of the sources and of the target that are nearest to a row."""
    mixtures = list(source_mixtures(model.knowledge_, model.sources_).items())
    if model.resemblance_:
        mixtures.append(("", _target_mixture(model)))
    return find_nearest(model, row, mixtures, names)[:_NEAREST]


def _without_values(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "values"}
