"""What a model looked like along its stream, in constant memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers

#: Points that are kept at most.
LONGEST = 512


@dataclass(frozen=True, eq=False)
class History:
    """Figures of a model after each of its updates; of a long stream, after some of them.

    Updates are numbered from 0. Kept are the newest, and those whose number is a multiple of `stride`,
    the smallest power of two with which there are at most 512 points. Which ones are kept therefore
    depends on how many there were, and on nothing else.

    Attributes
    ----------
    update : array of shape (n_points,)
        Number of the update.
    n_rows : array of shape (n_points,)
        Target rows seen by then.
    resemblance : array of shape (n_points, n_sources)
    proportions : array of shape (n_points, n_classes)
    reliability, coverage, novelty : array of shape (n_points,)
        Estimated accuracy, share of the classes seen so far, and share of novel rows of the batch.
    losses : array of shape (n_points, 2)
        Of the target, before and after the steps of the update.

    Examples
    --------
    >>> from baryflow.estimators._history import History
    >>> history = History.empty(n_sources=2, n_classes=3)
    >>> for batch in range(1000):
    ...     history = history.record(
    ...         n_rows=32 * (batch + 1), resemblance=[0.5, 0.5], proportions=[0.2, 0.3, 0.5],
    ...         reliability=0.9, coverage=1.0, novelty=0.0, losses=(2.0, 1.0),
    ...     )
    >>> len(history), history.stride, history.n_rows[:3].tolist(), int(history.n_rows[-1])
    (501, 2, [32, 96, 160], 32000)
    """

    update: Integers
    n_rows: Integers
    resemblance: Floats
    proportions: Floats
    reliability: Floats
    coverage: Floats
    novelty: Floats
    losses: Floats

    def __post_init__(self) -> None:
        n = len(self.update)
        shapes: dict[str, tuple[int, ...]] = {
            "update": (n,),
            "n_rows": (n,),
            "resemblance": (n, self.resemblance.shape[-1]),
            "proportions": (n, self.proportions.shape[-1]),
            "reliability": (n,),
            "coverage": (n,),
            "novelty": (n,),
            "losses": (n, 2),
        }
        for name, shape in shapes.items():
            if (found := getattr(self, name).shape) != shape:
                raise InvalidInputError(f"expected {name} to have shape {shape}, got {found}")
        if n > LONGEST:
            raise InvalidInputError(f"a history has at most {LONGEST} points, got {n}")
        if not np.array_equal(self.update, _kept(int(self.update[-1]) + 1) if n else ()):
            raise InvalidInputError("the updates of a history are not those that would have been kept")

    @classmethod
    def empty(cls, n_sources: int, n_classes: int) -> Self:
        """Return a history without any point."""
        none = np.zeros(0, dtype=np.intp)
        return cls(
            update=none,
            n_rows=none,
            resemblance=np.zeros((0, n_sources)),
            proportions=np.zeros((0, n_classes)),
            reliability=np.zeros(0),
            coverage=np.zeros(0),
            novelty=np.zeros(0),
            losses=np.zeros((0, 2)),
        )

    def __len__(self) -> int:
        return len(self.update)

    @property
    def n_updates(self) -> int:
        """Updates that there were, kept or not."""
        return int(self.update[-1]) + 1 if len(self) else 0

    @property
    def stride(self) -> int:
        """Updates from one point to the next, except to the newest."""
        return _stride(self.n_updates)

    def record(
        self,
        *,
        n_rows: int,
        resemblance: Sequence[float] | Floats,
        proportions: Sequence[float] | Floats,
        reliability: float,
        coverage: float,
        novelty: float,
        losses: tuple[float, float],
    ) -> History:
        """Return another history with one more update; `losses` are those before and after the steps."""
        point: Mapping[str, Any] = {
            "update": self.n_updates,
            "n_rows": n_rows,
            "resemblance": np.asarray(resemblance, dtype=np.float64),
            "proportions": np.asarray(proportions, dtype=np.float64),
            "reliability": reliability,
            "coverage": coverage,
            "novelty": novelty,
            "losses": np.asarray(losses, dtype=np.float64),
        }
        for name in ("resemblance", "proportions", "losses"):
            wanted = getattr(self, name).shape[1:]
            if point[name].shape != wanted:
                raise InvalidInputError(
                    f"expected {name} to have shape {wanted}, got {point[name].shape}"
                )
        keep = np.isin(self.update, _kept(self.n_updates + 1))
        return History(
            **{
                name: np.concatenate(
                    [table[keep], np.asarray(point[name], dtype=table.dtype)[None]], dtype=table.dtype
                )
                for name, table in self._tables().items()
            }
        )

    def amend(self, *, reliability: float, novelty: float) -> History:
        """Return it with other figures of the last rows, after their labels were learned."""
        tables = self._tables()
        for name, value in (("reliability", reliability), ("novelty", novelty)):
            tables[name] = np.append(tables[name][:-1], value)
        return History(**tables)

    def rearrange(self, sources: Sequence[int], classes: Sequence[int]) -> History:
        """Return the history with other columns, after a source was added.

        `sources` and `classes` hold the number of each in this history, or -1 if it is new; its figures
        are NaN then.
        """
        tables = self._tables()
        for name, columns in (("resemblance", sources), ("proportions", classes)):
            old = np.asarray(columns, dtype=np.intp)
            padded = np.column_stack([tables[name], np.full(len(self), np.nan)])
            tables[name] = padded[:, np.where(old < 0, padded.shape[1] - 1, old)]
        return History(**tables)

    def _tables(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _stride(n_updates: int) -> int:
    """Return the smallest power of two that leaves at most LONGEST points, the newest among them."""
    stride = 1
    while len(range(0, n_updates, stride)) + bool((n_updates - 1) % stride) > LONGEST:
        stride *= 2
    return stride


def _kept(n_updates: int) -> Integers:
    """Return the numbers of the updates that are kept after this many."""
    numbers = np.arange(0, n_updates, _stride(n_updates))
    if len(numbers) and numbers[-1] != n_updates - 1:
        numbers = np.append(numbers, n_updates - 1)
    return numbers
