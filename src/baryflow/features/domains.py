"""Which domain a window is of, and which windows tell what is normal there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import InvalidInputError
from baryflow.features.layout import Layout
from baryflow.features.normal import Normal
from baryflow.validation import Integers

_ALL = "all"  # the one domain if nobody names any
#: Stands for all domains if nobody says which windows are normal.
UNTOLD = "all windows"
#: Windows from which something is learned: more would tell hardly more, but fill the memory.
_MOST = 10_000


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
