"""Models on their way to workers: as bytes, read once in each process."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any

from baryflow import container
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.persistence import open_content

#: What a process has read, the last of it last; no more than it is likely to be asked for at a time.
_KEPT: dict[Hashable, Any] = {}
_MOST = 4
#: Held while a model is read, so that one thread reads it if several ask for it. Reading silences
#: warnings, which Python does for all threads of a process together.
_READING = Lock()


def pack(model: Any) -> bytes:
    """Return a fitted model as bytes, which are the same for the same model.

    Parameters
    ----------
    model : OnlineDaDiL

    Returns
    -------
    bytes

    Raises
    ------
    InvalidInputError
        If it is something else.
    NotFittedError
        If it was not fitted.
    """
    require_fitted(model)
    return model.to_bytes()  # type: ignore[no-any-return]


def require_fitted(model: Any) -> None:
    """Refuse what cannot predict.

    Parameters
    ----------
    model : object

    Raises
    ------
    InvalidInputError
        If it is no OnlineDaDiL.
    NotFittedError
        If it was not fitted.
    """
    if not isinstance(model, OnlineDaDiL):
        raise InvalidInputError(f"expected an OnlineDaDiL, got a {type(model).__name__}")
    _ = model.tracker  # which there is once it was fitted


def unpack(packed: bytes) -> Any:
    """Return the model; it is shared by all tasks of the process, so nobody may change it.

    Parameters
    ----------
    packed : bytes

    Returns
    -------
    OnlineDaDiL
    """
    return remember(packed, lambda: open_content(container.from_bytes(packed)))


def remember(mark: Hashable, read: Callable[[], Any]) -> Any:
    """Return what this process has read under a mark before, or read it now.

    Parameters
    ----------
    mark : hashable
    read : callable

    Returns
    -------
    object
    """
    with _READING:
        found = _KEPT.pop(mark, None)
        if found is None:
            found = read()
        while len(_KEPT) >= _MOST:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[mark] = found
        return found


def require_columns(model: OnlineDaDiL, names: Sequence[Any] | None, width: int) -> list[Any] | None:
    """Return the columns that a model wants by name; None: all of them, as they are.

    Parameters
    ----------
    model : OnlineDaDiL
    names : sequence or None
        Columns that are there, if they have names.
    width : int
        How many there are.

    Returns
    -------
    list or None

    Raises
    ------
    InvalidInputError
        If one is not there, or it is not known which are meant.
    """
    known = getattr(model, "feature_names_in_", None)
    if known is None or names is None:
        if width != model.n_features_in_:
            named = "" if known is not None else " without names"
            raise InvalidInputError(
                f"the model has {model.n_features_in_} columns{named}, but there are {width}: select "
                "those of the model"
            )
        return None
    missing = [name for name in known.tolist() if name not in names]
    if missing:
        there = ", ".join(map(str, names))
        raise InvalidInputError(
            f"the model needs a column {missing[0]!r}, which is not there; columns are: {there}"
        )
    return known.tolist()  # type: ignore[no-any-return]
