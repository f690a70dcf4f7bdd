"""How far rows are from everything known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from baryflow.core.points import Points
from baryflow.estimators.adaptation import Adaptation, measure_remoteness
from baryflow.estimators.decision import Decision
from baryflow.estimators.source_model import SourceModel
from baryflow.estimators.source_table import spread
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats

#: Quantiles of the sources' own remoteness against which novelty is measured.
_QUANTILES = 1001


@dataclass(frozen=True, eq=False)
class Novelty:
    """What remoteness is usual of rows that are not novel."""

    quantiles: Floats  # in units of what is typical of a target
    typical: float  # of the sources' rows, for the time before anything is known of a target

    @classmethod
    def none(cls) -> Novelty:
        """Return what is usual where there are no rows to learn it from."""
        return cls(np.zeros(0), 1.0)

    @classmethod
    def learn(cls, model: SourceModel, rows: list[Floats], decision: Decision) -> Novelty:
        """Take the quantiles of sources left out, where there are such; or else of the sources."""
        remote = _source_remoteness(model, np.concatenate(rows), model.centre, model.scale)
        typical = max(float(np.median(remote)), 1e-12)
        if decision.remoteness:
            return cls(np.array(decision.remoteness), typical)
        found = []
        for X in rows:
            far = _source_remoteness(model, X, X.mean(axis=0), spread(X, model.scale))
            found.append(far / max(float(np.median(far)), 1e-12))
        return cls(np.quantile(np.concatenate(found), np.linspace(0.0, 1.0, _QUANTILES)), typical)

    def rank(self, model: SourceModel, adaptation: Adaptation | None, rows: Floats) -> Floats:
        """Return the share of rows that are not novel and yet nearer than these."""
        if adaptation is None:
            far = _source_remoteness(model, rows, model.centre, model.scale) / self.typical
        else:
            far = adaptation.remoteness(rows)
        return self.rank_remoteness(far)

    def rank_remoteness(self, far: Floats) -> Floats:
        """Return the same for rows of which the remoteness is known, in units of what is typical."""
        if not len(self.quantiles):
            raise InvalidInputError("novelty needs rows of sources: this model was made from mixtures")
        return np.asarray(np.searchsorted(self.quantiles, far, side="left") / len(self.quantiles))


def _source_remoteness(model: SourceModel, rows: Floats, centre: Floats, scale: Floats) -> Floats:
    """Return how remote rows are from all sources."""
    occurring = [domain.points[domain.weights > 0.0] for domain in model.domains]
    points = Points(np.concatenate(occurring), model.n_dimensions)
    return measure_remoteness(model.project(rows, centre, scale), points.means, points.stds)
