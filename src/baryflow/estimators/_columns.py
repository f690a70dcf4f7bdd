"""How the columns of a target differ from those of the sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators._state import TargetState
from baryflow.validation import Floats, Integers


@dataclass(frozen=True, eq=False)
class ColumnComparison:
    """Every column of the target and of the pooled sources, in the units of rows.

    Attributes
    ----------
    names : list
        Of the columns; their numbers if they have no names.
    source_means, source_stds : array of shape (n_features,)
        Of the rows of all sources together. The std is 0 where they do not vary.
    target_means, target_stds : array of shape (n_features,)
        Of the target's rows, glitches left out; NaN for a column of which no value was seen.
    offsets, factors : array of shape (n_features,)
        Of columns that are in other units than in the sources: a value of the target counts as
        (value − offset) / factor. 0 and 1 for the others.
    """

    names: list[Any]
    source_means: Floats
    source_stds: Floats
    target_means: Floats
    target_stds: Floats
    offsets: Floats
    factors: Floats

    @property
    def differences(self) -> Floats:
        """How far the target's means are above the sources', in standard deviations of the sources.

        Infinite for a column that does not vary in the sources and is elsewhere in the target.
        """
        gaps = self.target_means - self.source_means
        same = (gaps == 0.0) & (self.source_stds == 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(same, 0.0, gaps / self.source_stds)

    def order(self) -> Integers:
        """Return the numbers of the columns that can be compared, those that differ most first.

        Returns
        -------
        array of int
        """
        size = np.abs(self.differences)
        order = np.argsort(-size, kind="stable")
        return order[~np.isnan(size[order])]


def compare(sources: SourceKnowledge, state: TargetState, names: Any) -> ColumnComparison:
    """Compare what was seen of a target with its sources; without names columns are numbered from 0."""
    model, limits = sources.model, sources.limits
    unseen = (state.tally.values == 0.0) | (state.mass <= 0.0)
    stds = np.where(np.isfinite(limits.high), model.scale, 0.0)
    mean, variance = state.rows.moments() if state.mass > 0.0 else (model.centre, model.scale)
    return ColumnComparison(
        names=list(range(len(unseen))) if names is None else names.tolist(),
        source_means=model.centre,
        source_stds=stds,
        target_means=np.where(unseen, np.nan, state.units.revert(mean)),
        target_stds=np.where(unseen, np.nan, state.units.factors * np.sqrt(variance)),
        offsets=state.units.offsets,
        factors=state.units.factors,
    )
