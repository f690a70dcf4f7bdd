"""Predictions where the rows are: a block of answers for every block of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.delayed import delayed

from baryflow.distributed.models import pack, require_columns, require_fitted, unpack
from baryflow.estimators._unknown import list_answers
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError

#: Name of the column of classes in a frame.
LABEL = "label"


def predict(model: OnlineDaDiL, X: Any) -> Any:
    """Return the most probable class of every row, as a Dask collection: nothing is computed yet.

    Parameters
    ----------
    model : OnlineDaDiL
        Fitted, and adapted or not.
    X : dask.array.Array or dask.dataframe.DataFrame
        Other columns of a frame than the model's are left alone.

    Returns
    -------
    dask.array.Array or dask.dataframe.Series
        In the same partitions.

    Raises
    ------
    InvalidInputError
        If it is neither, or the columns are not those of the model.
    NotFittedError
        If the model was not fitted.
    """
    require_fitted(model)
    return _map(model, X, _Question("predict", LABEL, list_answers(model)[:0]))


def predict_proba(model: OnlineDaDiL, X: Any) -> Any:
    """Return the probability of every class for every row, as a Dask collection.

    Parameters
    ----------
    model : OnlineDaDiL
    X : dask.array.Array or dask.dataframe.DataFrame

    Returns
    -------
    dask.array.Array or dask.dataframe.DataFrame
        With a column for every class.

    Raises
    ------
    InvalidInputError
        As :func:`predict`.
    """
    require_fitted(model)
    nothing = np.empty((0, len(model.classes_)))
    return _map(model, X, _Question("predict_proba", model.classes_.tolist(), nothing))


def novelty(model: OnlineDaDiL, X: Any) -> Any:
    """Return how unlike everything known the rows are, 0 to 1, as a Dask collection.

    Parameters
    ----------
    model : OnlineDaDiL
    X : dask.array.Array or dask.dataframe.DataFrame

    Returns
    -------
    dask.array.Array or dask.dataframe.Series

    Raises
    ------
    InvalidInputError
        As :func:`predict`.
    """
    return _map(model, X, _Question("novelty", "novelty", np.empty(0)))


@dataclass(frozen=True, eq=False)
class _Question:
    """What is asked of a model: a method, what its answers are called, and an answer about no row."""

    method: str
    names: Any
    nothing: Any

    def __call__(self, rows: Any, packed: bytes) -> Any:
        """Ask; this is what workers do."""
        if not len(rows):
            return self.nothing
        model = unpack(packed)
        names = getattr(model, "feature_names_in_", None)
        if names is not None and isinstance(rows, np.ndarray):  # in the order of the model's columns
            import pandas as pd

            rows = pd.DataFrame(rows, columns=names)
        return getattr(model, self.method)(rows)

    def of_frame(self, frame: Any, packed: bytes) -> Any:
        """Ask about the rows of a frame."""
        return self.label(self(frame, packed), frame.index)

    def label(self, answers: Any, index: Any = None) -> Any:
        """Return answers as a column of a frame, or several."""
        import pandas as pd

        if answers.ndim == 1:
            return pd.Series(answers, index=index, name=self.names)
        return pd.DataFrame(answers, index=index, columns=self.names)


def _map(model: OnlineDaDiL, X: Any, question: _Question) -> Any:
    """Ask about every block of rows; what comes is in the same blocks."""
    packed, nothing = delayed(pack(model)), question.nothing
    if hasattr(X, "map_partitions"):
        names = require_columns(model, X.columns, len(X.columns))
        mine = X if names is None else X[names]  # other columns are not even read
        meta = question.label(nothing)
        return mine.map_partitions(question.of_frame, packed, meta=meta, enforce_metadata=False)
    if not hasattr(X, "map_blocks") or X.ndim != 2:
        raise InvalidInputError(
            f"expected a Dask array of rows and columns, or a Dask frame, got a {type(X).__name__}"
        )
    require_columns(model, None, X.shape[1])
    blocks = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    shape = {"drop_axis": 1} if nothing.ndim == 1 else {"chunks": (blocks.chunks[0], nothing.shape[1:])}
    return blocks.map_blocks(question, packed, dtype=nothing.dtype, **shape)
