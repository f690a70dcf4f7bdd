"""A class that was named on one target, as a summary that other targets and models can learn it from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from baryflow import codec, container
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.validation import Floats

#: Directions in which rows of the class vary most that are kept.
_DIRECTIONS = 3
#: Rows drawn from a summary to learn the class from, and rows that the usual spread is worth.
_DRAWN, _USUAL_ROWS = 10, 4.0


@dataclass(frozen=True, eq=False)
class ClassSummary:
    """Mean and spread of a class, in columns standardised with the moments of the target it was seen on.

    It holds no rows. :meth:`~baryflow.OnlineDaDiL.export_class` makes it.

    Attributes
    ----------
    name : str or int
    n_rows : int
        Labelled rows that it is made of.
    columns : list of str or None
        Names of the columns, if they have any.
    mean, stds : array of shape (n_features,)
        Standard deviations are those around the directions.
    directions : array of shape (n_directions, n_features)
        In which rows vary most, each as long as the standard deviation along it.
    """

    kind: ClassVar[str] = "class_summary"

    name: Any
    n_rows: int
    columns: list[str] | None
    mean: Floats
    stds: Floats
    directions: Floats

    def __post_init__(self) -> None:
        d = len(self.mean)
        tables = (self.mean, self.stds, self.directions)
        fits = self.stds.shape == (d,) and self.directions.shape[1:] == (d,)
        fits = fits and (self.columns is None or len(self.columns) == d)
        if not fits or not all(np.isfinite(table).all() for table in tables) or (self.stds < 0.0).any():
            raise InvalidInputError("the parts of a class summary do not fit together")

    @classmethod
    def of(cls, name: Any, rows: Floats, usual: Floats, columns: list[str] | None) -> Self:
        """Summarise standardised rows; `usual` is the usual std within a class of each column."""
        mean = rows.mean(axis=0)
        away = rows - mean
        n = len(rows)
        _, lengths, directions = np.linalg.svd(away / np.sqrt(max(n - 1, 1)), full_matrices=False)
        kept = directions[:_DIRECTIONS] * lengths[:_DIRECTIONS, None]
        left = np.maximum(away.T.var(axis=1, ddof=min(n - 1, 1)) - np.square(kept).sum(axis=0), 0.0)
        # Few rows say little of the spread.
        variance = ((n - 1) * left + _USUAL_ROWS * np.square(usual)) / (n - 1 + _USUAL_ROWS)
        return cls(name, n, columns, mean, np.sqrt(variance), kept)

    def draw(self) -> Floats:
        """Return some standardised rows as the class has them, always the same."""
        rng = np.random.default_rng(0)
        along = rng.standard_normal((_DRAWN, len(self.directions)))
        around = rng.standard_normal((_DRAWN, len(self.mean)))
        return np.asarray(self.mean + along @ self.directions + around * self.stds)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a ``.bary`` file; :func:`baryflow.load` reads it.

        Parameters
        ----------
        path : path

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        container.write(path, self.kind, *codec.encode(self))

    @classmethod
    def from_content(cls, content: container.Content) -> Self:
        """Return what the content of a file holds, checking all of it.

        Parameters
        ----------
        content : Content

        Returns
        -------
        ClassSummary

        Raises
        ------
        FileFormatError
            If something is missing or damaged, or the file holds something else.
        """
        try:
            found: Self = codec.open_content(cls, content, cls.kind)
        except (*codec.DAMAGE, InvalidInputError) as error:
            raise FileFormatError(f"{content.name}: a saved {cls.kind} is damaged: {error!r}") from error
        return found
