"""What is normal in a domain: the scale of its signals, and where its statistics lie.

A stream cannot be scaled by what it will show later. Before a machine is watched for faults it runs
without any (commissioning): from that its scale is taken, the same way for every domain.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import InvalidInputError
from baryflow.features.statistics import Layout, Scale, column_means, describe
from baryflow.validation import Floats, Integers

#: A channel that hardly moves in a domain takes this share of its largest spread over the domains.
FLOOR = 0.25
#: float32 signals: what moves by less than their rounding does not move.
_ROUNDING = 1e-6
_SMALLEST = 0.02  # spread of a statistic over normal windows
_ALL = "all"  # the one domain if nobody names any
#: Stands for all domains if nobody says which windows are normal.
UNTOLD = "all windows"
#: Windows from which something is learned: more would tell hardly more, but fill the memory.
_MOST = 10_000


def measure(windows: Any) -> tuple[Scale, Floats]:
    """Return the raw scale of windows (n, length, n_channels), and the largest magnitudes."""
    values = np.asarray(windows, dtype=np.float64)
    missing = np.isnan(values)
    if not missing.any():
        spread = np.median(values.std(axis=1), axis=0)
        return Scale(np.median(values, axis=(0, 1)), spread), np.abs(values).max(axis=(0, 1))
    gone = np.asarray(
        missing.all(axis=1)
    )  # of a channel without any value nothing is known: 0, and no spread
    empty = gone.all(axis=0)
    filled = np.where(gone[:, None], 0.0, values)
    stds = np.where(gone, np.nan, np.nanstd(filled, axis=1))
    median = np.nanmedian(np.where(empty, 0.0, values), axis=(0, 1))
    spread = np.nanmedian(np.where(empty, 0.0, stds), axis=0)
    return Scale(median, spread), np.nanmax(np.abs(np.where(empty, 0.0, values)), axis=(0, 1))


def scales_of(normal: Mapping[Any, Any]) -> dict[Hashable, Scale]:
    """Return the scale of every domain from its windows of normal operation.

    A valve that is saturated in one domain and moves in others would be blown up there by a division by
    next to nothing: it takes a share of its largest spread over the domains. One that never moves takes
    1.
    """
    raw = {name: measure(windows) for name, windows in normal.items()}
    largest = np.max([scale.spread for scale, _ in raw.values()], axis=0)
    reach = np.max([magnitude for _, magnitude in raw.values()], axis=0)
    still = largest <= _ROUNDING * reach
    return {name: floored(scale, largest, still) for name, (scale, _) in raw.items()}


def floored(scale: Scale, largest: Floats, still: Any) -> Scale:
    """Return a scale that can be divided by."""
    return Scale(scale.median, np.where(still, 1.0, np.maximum(scale.spread, FLOOR * largest)))


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
        within = (
            column_means(np.array([_variance(v) for v in several]))
            if several
            else np.zeros(n_statistics)
        )
        spread = np.maximum(np.sqrt(within), _SMALLEST)
        chance = spread**2 / min(len(values) for values in found.values())
        centres = np.array([column_means(values) for values in found.values()])
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
        centre = _draw(column_means(values), self.common, self.between, self.spread**2 / len(values))
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


def _variance(values: Floats) -> Floats:
    """Return the variances of what is there in every column; 0 of a single value."""
    away = np.nan_to_num(values - column_means(values))
    there = (~np.isnan(values)).sum(axis=0)
    return np.asarray((away**2).sum(axis=0) / np.maximum(there - 1, 1))


# -- domains of windows -------------------------------------------------------------------------------


def as_domains(sample_domain: Any, n: int) -> NDArray[Any]:
    """Return the domain of every window; one for all if nothing is said."""
    if sample_domain is None:
        return np.full(n, _ALL)
    found = np.asarray(sample_domain)
    if found.shape != (n,):
        raise InvalidInputError(f"expected sample_domain to have shape (n={n},), got {found.shape}")
    return found


def is_source(domain: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which windows are of sources: those whose domain is not a negative number."""
    source = domain >= 0 if domain.dtype.kind in "if" else np.ones(len(domain), dtype=bool)
    if not source.any():
        raise InvalidInputError("all windows are of a target (negative sample_domain): add sources")
    return source


def a_few(wanted: NDArray[np.bool_], domain: NDArray[Any], labels: Any = None) -> Integers:
    """Return positions of windows that are wanted: all, or some of each class in each domain."""
    rows = np.flatnonzero(wanted)
    if len(rows) <= _MOST:
        return rows
    columns = [
        np.unique(part[rows], return_inverse=True)[1] for part in (domain, labels) if part is not None
    ]
    _, cells = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    share = max(1, _MOST // (cells.max() + 1))
    kept = []
    for cell in range(cells.max() + 1):
        held = rows[cells == cell]
        kept.append(held[np.linspace(0, len(held) - 1, min(share, len(held))).astype(np.intp)])
    return np.sort(np.concatenate(kept))


def learn_normal(
    held: Any, domain: NDArray[Any], source: NDArray[np.bool_], normal: Any, layout: Layout
) -> Normal:
    """Learn it from the windows that are said to be normal, or from all of the sources together."""
    if normal is None:
        return Normal.of({UNTOLD: held[a_few(source, domain)]}, layout)
    mask = np.asarray(normal)
    if mask.shape != (len(held),) or mask.dtype != bool:
        raise InvalidInputError(
            f"expected normal to be an array of bool of shape (n={len(held)},), got {mask.dtype} of "
            f"shape {mask.shape}"
        )
    names = np.unique(domain).tolist()  # also the target's
    without = [name for name in names if not mask[domain == name].any()]
    if without:
        raise InvalidInputError(
            f"domain {without[0]!r} has no normal window; mark some, or leave `normal` out for all"
        )
    return Normal.of({name: held[a_few((domain == name) & mask, domain)] for name in names}, layout)
