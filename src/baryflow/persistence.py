"""Read back whatever was saved: one front door for every kind of ``.bary`` file."""

from __future__ import annotations

import os
from typing import Any

from baryflow import container
from baryflow.core import mixture
from baryflow.estimators import online_dadil, online_mixture
from baryflow.exceptions import FileFormatError

_READERS: dict[str, Any] = {
    mixture.KIND: mixture.Mixture.from_state,
    online_dadil.KIND: online_dadil.OnlineDaDiL.from_state,
    online_mixture.KIND: online_mixture.OnlineGaussianMixture.from_state,
}


def load(path: str | os.PathLike[str]) -> Any:
    """Return the object saved in a ``.bary`` file, equal to the one that was saved.

    Nothing in the file is ever executed.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FileFormatError
        If the file is foreign, truncated, damaged, or written by a newer release.

    Examples
    --------
    >>> import baryflow, pathlib, tempfile
    >>> one = baryflow.Mixture([1.0], [[0.0, 1.0]], [[1.0, 1.0]], mass=20)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "one.bary"
    >>> one.save(path)
    >>> baryflow.load(path) == one
    True
    """
    kind, values, arrays = container.read(path)
    if kind not in _READERS:
        raise FileFormatError(
            f"{os.fspath(path)} holds a {kind!r}, which this release does not know; it reads "
            f"{', '.join(sorted(_READERS))}"
        )
    return _READERS[kind](values, arrays)
