"""Predict where the rows are: a block of predictions for every block of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from dask.delayed import delayed

from baryflow import container
from baryflow.estimators._unknown import list_answers
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.persistence import open_content

#: Name of the column of predicted classes in a data frame.
LABEL = "label"
#: Models that a process keeps in memory.
_MODELS = 4


def predict(model: OnlineDaDiL, X: Any) -> Any:
    """Predict the class of every row, lazily.

    Parameters
    ----------
    model : OnlineDaDiL
        Fitted, adapted to a target or not.
    X : dask.array.Array or dask.dataframe.DataFrame
        Rows. Columns of a data frame that the model does not know are ignored.

    Returns
    -------
    dask.array.Array or dask.dataframe.Series
        Predicted classes, in the partitions of `X`.

    Raises
    ------
    InvalidInputError
        If `X` is not a Dask collection, or lacks columns of the model.
    NotFittedError
        If the model is not fitted.
    """
    require_fitted(model)
    return _map(model, X, _Method("predict", LABEL, list_answers(model)[:0]))


def predict_proba(model: OnlineDaDiL, X: Any) -> Any:
    """Predict the probability of every class for every row, lazily.

    Parameters
    ----------
    model : OnlineDaDiL
        Fitted, adapted to a target or not.
    X : dask.array.Array or dask.dataframe.DataFrame
        Rows. Columns of a data frame that the model does not know are ignored.

    Returns
    -------
    dask.array.Array or dask.dataframe.DataFrame
        A column for every class, in the partitions of `X`.

    Raises
    ------
    InvalidInputError
        If `X` is not a Dask collection, or lacks columns of the model.
    """
    require_fitted(model)
    empty = np.empty((0, len(model.classes_)))
    return _map(model, X, _Method("predict_proba", model.classes_.tolist(), empty))


def novelty(model: OnlineDaDiL, X: Any) -> Any:
    """Compute the novelty of every row, lazily: 0 for familiar rows, up to 1.

    Parameters
    ----------
    model : OnlineDaDiL
        Fitted, adapted to a target or not.
    X : dask.array.Array or dask.dataframe.DataFrame
        Rows. Columns of a data frame that the model does not know are ignored.

    Returns
    -------
    dask.array.Array or dask.dataframe.Series
        Novelty, in the partitions of `X`.

    Raises
    ------
    InvalidInputError
        If `X` is not a Dask collection, or lacks columns of the model.
    """
    require_fitted(model)
    return _map(model, X, _Method("novelty", "novelty", np.empty(0)))


@dataclass(frozen=True, eq=False)
class _Method:
    """A method of the model, the column names of its results, and its result for no rows."""

    name: str
    columns: Any
    empty: Any

    def __call__(self, rows: Any, packed: bytes) -> Any:
        """Call the method on some rows; runs on a worker."""
        if not len(rows):
            return self.empty
        model = unpack(packed)
        names = getattr(model, "feature_names_in_", None)
        if names is not None and isinstance(rows, np.ndarray):  # array columns are in the model's order
            rows = pd.DataFrame(rows, columns=names)
        return getattr(model, self.name)(rows)

    def on_frame(self, frame: Any, packed: bytes) -> Any:
        """Call the method on the rows of a data frame."""
        return self.as_frame(self(frame, packed), frame.index)

    def as_frame(self, results: Any, index: Any = None) -> Any:
        """Return results as a series or a data frame."""
        if results.ndim == 1:
            return pd.Series(results, index=index, name=self.columns)
        return pd.DataFrame(results, index=index, columns=self.columns)


def _map(model: OnlineDaDiL, X: Any, method: _Method) -> Any:
    packed, empty = delayed(model.to_bytes()), method.empty
    if hasattr(X, "map_partitions"):
        names = require_columns(model, X.columns, len(X.columns))
        selected = X if names is None else X[names]  # other columns are not even read
        meta = method.as_frame(empty)
        return selected.map_partitions(method.on_frame, packed, meta=meta, enforce_metadata=False)
    if not hasattr(X, "map_blocks") or X.ndim != 2:
        raise InvalidInputError(
            f"expected a two-dimensional Dask array or a Dask data frame, got {type(X).__name__}"
        )
    require_columns(model, None, X.shape[1])
    blocks = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    shape = {"drop_axis": 1} if empty.ndim == 1 else {"chunks": (blocks.chunks[0], empty.shape[1:])}
    return blocks.map_blocks(method, packed, dtype=empty.dtype, **shape)


# -- models on workers -----------------------------------------------------------------------------


def require_fitted(model: Any) -> None:
    """Raise an error unless the model is a fitted OnlineDaDiL."""
    if not isinstance(model, OnlineDaDiL):
        raise InvalidInputError(f"expected an OnlineDaDiL, got {type(model).__name__}")
    _ = model.n_samples_seen_  # raises NotFittedError


def require_columns(model: OnlineDaDiL, names: Sequence[Any] | None, width: int) -> list[Any] | None:
    """Return the model's columns by name, or None if columns are matched by position."""
    known = getattr(model, "feature_names_in_", None)
    if known is None or names is None:
        if width != model.n_features_in_:
            unnamed = "" if known is not None else " unnamed"
            raise InvalidInputError(
                f"the model was fitted on {model.n_features_in_}{unnamed} columns, got {width}: select "
                "the columns of the model"
            )
        return None
    missing = [name for name in known.tolist() if name not in names]
    if missing:
        raise InvalidInputError(
            f"column {missing[0]!r} of the model is missing; columns: {', '.join(map(str, names))}"
        )
    return known.tolist()  # type: ignore[no-any-return]


@lru_cache(maxsize=_MODELS)
def unpack(packed: bytes) -> Any:
    """Return a model from its bytes. All tasks of the process share it, so they must not change it."""
    return open_content(container.from_bytes(packed))
