"""Encoded signals of the Tennessee Eastman plant: 128 numbers a run, small enough to come along."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow import container
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.validation import Integers, as_count

KIND = "tep-features"
#: The modes whose features, made by an encoder that never saw them, are inside the package.
EMBEDDED = (1,)


@dataclass(frozen=True)
class Features:
    """Runs of all six modes, encoded for one target mode.

    Attributes
    ----------
    target : int
        The mode that the encoder has not seen.
    about : dict
        The encoder, and where the signals come from.
    X : float32 array of shape (n_runs, 128)
    y : array of shape (n_runs,)
        The fault; 0 is normal operation.
    domain : array of shape (n_runs,)
        The mode.
    run : array of shape (n_runs,)
        Number of the run within its mode and fault.
    head : array of shape (n_runs,)
        The fault that the encoder's own head predicts.
    """

    target: int
    about: dict[str, Any]
    X: NDArray[np.float32]
    y: Integers
    domain: Integers
    run: Integers
    head: Integers

    def __len__(self) -> int:
        return len(self.y)

    @property
    def is_target(self) -> NDArray[np.bool_]:
        """Which runs are of the target mode."""
        return np.asarray(self.domain == self.target)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file; features are kept in half precision.

        Parameters
        ----------
        path : path

        Raises
        ------
        InvalidInputError
            If a feature is too large for half precision.
        """
        arrays: dict[str, NDArray[Any]] = {"X": self.X.astype(np.float16)}
        if not np.isfinite(arrays["X"]).all():
            raise InvalidInputError(
                "features too large for half precision: scale them before they are saved"
            )
        arrays |= {name: getattr(self, name).astype(np.int16) for name in ("y", "domain", "run", "head")}
        container.write(path, KIND, {"target": self.target, "about": self.about}, arrays)


def read_features(path: str | os.PathLike[str]) -> Features:
    """Read what :meth:`Features.save` wrote.

    Parameters
    ----------
    path : path

    Returns
    -------
    Features

    Raises
    ------
    FileFormatError
        If the file does not hold encoded signals, or is damaged.
    """
    held = container.read(path)
    values, arrays = held.values, held.arrays
    names = ("y", "domain", "run", "head")
    if held.kind != KIND or not {"X", *names} <= set(arrays) or not {"target", "about"} <= set(values):
        raise FileFormatError(f"{os.fspath(path)} does not hold encoded signals")
    X = arrays["X"]
    if X.ndim != 2 or any(arrays[name].shape != X.shape[:1] for name in names):
        raise FileFormatError(f"the arrays of {os.fspath(path)} do not fit together")
    numbers = [arrays[name].astype(np.intp) for name in names]
    return Features(int(values["target"]), dict(values["about"]), X.astype(np.float32), *numbers)


def load_tep(
    target: int = 1, *, runs: int | None = None, faults: Sequence[int] | None = None
) -> Features:
    """Return the encoded Tennessee Eastman signals that come with the package.

    Parameters
    ----------
    target : int
        The mode that plays the unlabelled stream; only mode 1 is embedded.
    runs : int, optional
        Runs of every mode and fault, at most.
    faults : sequence of int, optional
        Only these classes.

    Returns
    -------
    Features

    Raises
    ------
    InvalidInputError
        If another target is asked for, or none of the faults is there.
    """
    if target not in EMBEDDED:
        raise InvalidInputError(
            f"only target mode {EMBEDDED[0]} is embedded, got {target}: "
            "make others with 'baryflow tep encode'"
        )
    with as_file(files("baryflow.datasets") / "data" / f"tep_target{target}.bary") as path:
        whole = read_features(path)
    if runs is not None:
        as_count(runs, "runs")
    if faults is not None and not set(faults) & set(whole.y.tolist()):
        raise InvalidInputError(f"faults must be among 0 to {whole.y.max()}, got {list(faults)}")
    keep = np.ones(len(whole), dtype=bool)
    if runs is not None:
        keep &= whole.run < runs
    if faults is not None:
        keep &= np.isin(whole.y, list(faults))
    parts = [getattr(whole, name)[keep] for name in ("X", "y", "domain", "run", "head")]
    return Features(target, whole.about, *parts)
