"""Statistics as deviations from what is normal in their domain."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import InvalidInputError
from baryflow.features.layout import Layout
from baryflow.features.scale import Scale, floored, measure, scales_of
from baryflow.features.statistics import describe
from baryflow.validation import Floats

_SMALLEST = 0.02  # spread of a statistic over normal windows


@dataclass(frozen=True, eq=False)
class Normal:
    """The statistics of normal operation: where they lie in each domain, how far they spread.

    Attributes
    ----------
    names : list
        The domains that are known; the arrays have a row for each.
    medians, scales : array of shape (n_domains, n_channels)
        Of the signals.
    centres : array of shape (n_domains, n_statistics)
    spread : array of shape (n_statistics,)
        Of the statistics over normal windows of one domain.
    common, between : array of shape (n_statistics,)
        Mean of the domains' centres, and their variance beyond chance.
    """

    names: list[Any]
    medians: Floats
    scales: Floats
    centres: Floats
    spread: Floats
    common: Floats
    between: Floats

    @classmethod
    def of(cls, normal: Mapping[Any, Any], layout: Layout) -> Normal:
        """Learn it from the normal windows of every domain.

        A few windows tell a domain's centre only roughly: it is drawn towards the mean of all domains,
        the more so the less the domains differ beyond chance.
        """
        scales = scales_of(normal)
        found = {
            name: describe(windows, scales[name], layout).astype(np.float64)
            for name, windows in normal.items()
        }
        several = [values for values in found.values() if len(values) > 1]
        n_statistics = next(iter(found.values())).shape[1]
        within = _mean(np.array([_variance(v) for v in several])) if several else np.zeros(n_statistics)
        spread = np.maximum(np.sqrt(within), _SMALLEST)
        chance = spread**2 / min(len(values) for values in found.values())
        centres = np.array([_mean(values) for values in found.values()])
        common = centres.mean(axis=0)
        if len(centres) > 1:
            between = np.maximum(centres.var(axis=0, ddof=1) - chance, 0.0)
        else:  # nothing to be drawn to
            between = np.full(n_statistics, np.inf)
        drawn = [
            _draw(centre, common, between, spread**2 / len(values))
            for centre, values in zip(centres, found.values(), strict=True)
        ]
        medians, sizes = (np.array(part) for part in zip(*scales.values(), strict=True))
        return cls(list(found), medians, sizes, np.array(drawn), spread, common, between)

    def scale(self, name: Any = None) -> Scale:
        """Return the scale of a domain; without a name that of all of them together."""
        if name is None:
            return Scale(np.median(self.medians, axis=0), np.median(self.scales, axis=0))
        row = self._row(name)
        return Scale(self.medians[row], self.scales[row])

    def centre(self, name: Any = None) -> Floats:
        """Return the centre of a domain's statistics; without a name the common one."""
        return self.common if name is None else self.centres[self._row(name)]

    def deviations(
        self, values: NDArray[np.float32], name: Any = None, columns: Any = slice(None)
    ) -> NDArray[np.float32]:
        """Return statistics, or some columns of them, as deviations from normal, large ones damped."""
        away = (values[:, columns] - self.centre(name)[columns]) / self.spread[columns]
        return np.asarray(np.arcsinh(away), dtype=np.float32)

    def extended(self, windows: Any, name: Any, layout: Layout) -> Normal:
        """Return it with a further domain, or with a known one learned again."""
        largest = self.scales.max(axis=0)
        scale = floored(measure(windows)[0], largest, still=False)
        values = describe(windows, scale, layout).astype(np.float64)
        centre = _draw(_mean(values), self.common, self.between, self.spread**2 / len(values))
        keep = [row for row, known in enumerate(self.names) if known != name]
        return replace(
            self,
            names=[*(self.names[row] for row in keep), name],
            medians=np.vstack([self.medians[keep], scale.median]),
            scales=np.vstack([self.scales[keep], scale.spread]),
            centres=np.vstack([self.centres[keep], centre]),
        )

    def check(self, n_channels: int, n_statistics: int) -> None:
        """Refuse what does not fit together, such as from a damaged file."""
        n = len(self.names)
        if (
            not n
            or self.medians.shape != (n, n_channels)
            or self.scales.shape != (n, n_channels)
            or self.centres.shape != (n, n_statistics)
            or any(a.shape != (n_statistics,) for a in (self.spread, self.common, self.between))
        ):
            raise InvalidInputError("what is normal does not fit the channels or the statistics")

    def _row(self, name: Any) -> int:
        if name not in self.names:
            raise InvalidInputError(
                f"nothing is known of normal operation of domain {name!r}, only of "
                f"{', '.join(map(repr, self.names))}: call learn_normal with windows of it"
            )
        return self.names.index(name)


def _draw(centre: Floats, common: Floats, between: Floats, chance: Floats) -> Floats:
    """Draw a centre towards the common one as far as chance goes."""
    alone = np.isinf(between)
    share = np.where(
        alone, 1.0, np.where(alone, 0.0, between) / (np.where(alone, 0.0, between) + chance)
    )
    return np.asarray(common + share * (centre - common))


def _mean(values: Floats) -> Floats:
    """Return the means of what is there; 0 where nothing is."""
    if not np.isnan(values).any():
        return np.asarray(values.mean(axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of columns without any value
        return np.asarray(np.nan_to_num(np.nanmean(values, axis=0)))


def _variance(values: Floats) -> Floats:
    if not np.isnan(values).any():
        return np.asarray(values.var(axis=0, ddof=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nan_to_num(np.nanvar(values, axis=0, ddof=1)))
