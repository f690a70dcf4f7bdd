"""Predictions where the rows are: a block of answers for every block of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.delayed import delayed

from baryflow.distributed.models import pack, unpack
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.estimators.unknown import list_answers
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
    """
    packed, kind = delayed(pack(model)), list_answers(model).dtype
    if hasattr(X, "map_partitions"):
        meta = _series(np.empty(0, kind))
        return _columns(X, model).map_partitions(
            _predict_frame, packed, meta=meta, enforce_metadata=False
        )
    blocks = _array(X, model)
    return blocks.map_blocks(_predict, packed, dtype=kind, drop_axis=1)


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
    packed = delayed(pack(model))
    if hasattr(X, "map_partitions"):
        meta = _table(np.empty((0, len(model.classes_))), model.classes_.tolist())
        mine = _columns(X, model)
        return mine.map_partitions(_proba_frame, packed, meta=meta, enforce_metadata=False)
    blocks = _array(X, model)
    chunks = (blocks.chunks[0], (len(model.classes_),))
    return blocks.map_blocks(_proba, packed, dtype=np.float64, chunks=chunks)


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
    packed = delayed(pack(model))
    if hasattr(X, "map_partitions"):
        meta = _series(np.empty(0), name="novelty")
        return _columns(X, model).map_partitions(
            _novelty_frame, packed, meta=meta, enforce_metadata=False
        )
    return _array(X, model).map_blocks(_novelty, packed, dtype=np.float64, drop_axis=1)


def _columns(X: Any, model: OnlineDaDiL) -> Any:
    """Return the columns of a frame that the model wants: others are not even read."""
    names = getattr(model, "feature_names_in_", None)
    missing = [] if names is None else [name for name in names.tolist() if name not in X.columns]
    if missing:
        known = ", ".join(map(str, X.columns))
        raise InvalidInputError(
            f"the model needs a column {missing[0]!r}, which is not there; columns are: {known}"
        )
    if names is None and len(X.columns) != model.n_features_in_:
        raise InvalidInputError(
            f"the model has {model.n_features_in_} columns without names, the frame has "
            f"{len(X.columns)}: select those of the model"
        )
    return X if names is None else X[names.tolist()]


def _array(X: Any, model: OnlineDaDiL) -> Any:
    if not hasattr(X, "map_blocks") or X.ndim != 2:
        raise InvalidInputError(
            f"expected a Dask array of rows and columns, or a Dask frame, got a {type(X).__name__}"
        )
    if X.shape[1] != model.n_features_in_:
        raise InvalidInputError(
            f"the model has {model.n_features_in_} columns, the array has {X.shape[1]}"
        )
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


# -- what workers do -------------------------------------------------------------------------------


def _predict(X: Any, packed: bytes) -> Any:
    return unpack(packed).predict(X) if len(X) else list_answers(unpack(packed))[:0]


def _proba(X: Any, packed: bytes) -> Any:
    model = unpack(packed)
    return model.predict_proba(X) if len(X) else np.empty((0, len(model.classes_)))


def _novelty(X: Any, packed: bytes) -> Any:
    return unpack(packed).novelty(X) if len(X) else np.empty(0)


def _predict_frame(frame: Any, packed: bytes) -> Any:
    return _series(_predict(frame, packed), frame.index)


def _proba_frame(frame: Any, packed: bytes) -> Any:
    return _table(_proba(frame, packed), unpack(packed).classes_.tolist(), frame.index)


def _novelty_frame(frame: Any, packed: bytes) -> Any:
    return _series(_novelty(frame, packed), frame.index, "novelty")


def _series(values: Any, index: Any = None, name: str = LABEL) -> Any:
    import pandas as pd

    return pd.Series(values, index=index, name=name)


def _table(values: Any, columns: list[Any], index: Any = None) -> Any:
    import pandas as pd

    return pd.DataFrame(values, index=index, columns=columns)
