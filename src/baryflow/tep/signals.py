"""Signals of the plant in memory: from a simulated folder, or from the published files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow import container
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.tep.tables import VARIABLES
from baryflow.validation import Integers

#: Kind of the files that hold simulated signals.
KIND = "tep-signals"
#: What a folder says of itself, beside its signals.
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Signals:
    """Labelled runs of one or several modes.

    Attributes
    ----------
    X : float32 array of shape (n_runs, n_times, 34)
        XMEAS 1 to 22, then XMV 1 to 12, in engineering units (``baryflow.tep.VARIABLES``).
    y : array of shape (n_runs,)
        The fault; 0 is normal operation.
    domain : array of shape (n_runs,)
        The mode.
    run : array of shape (n_runs,)
        Number of the run within its mode and fault.
    """

    X: NDArray[np.float32]
    y: Integers
    domain: Integers
    run: Integers

    def __len__(self) -> int:
        return len(self.y)


def read_signals(
    folder: str | os.PathLike[str], modes: Sequence[int] | None = None, runs: int | None = None
) -> Signals:
    """Read simulated signals.

    Parameters
    ----------
    folder : path
        Folder that ``baryflow tep simulate`` has filled.
    modes : sequence of int, optional
        Modes to read; all by default.
    runs : int, optional
        Runs of each mode to read; all by default.

    Returns
    -------
    Signals

    Raises
    ------
    FileNotFoundError
        If the folder has no signals.
    InvalidInputError
        If a mode has fewer runs.
    """
    parts = list(iterate_signals(folder, modes, runs))
    return Signals(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("X", "y", "domain", "run")
        )
    )


def iterate_signals(
    folder: str | os.PathLike[str], modes: Sequence[int] | None = None, runs: int | None = None
) -> Iterator[Signals]:
    """Read simulated signals file by file: all faults of one run of one mode at a time.

    Parameters
    ----------
    folder : path
        Folder that ``baryflow tep simulate`` has filled.
    modes : sequence of int, optional
        Modes to read; all by default.
    runs : int, optional
        Runs of each mode to read; all by default.

    Yields
    ------
    Signals

    Raises
    ------
    FileNotFoundError
        If the folder has no signals.
    InvalidInputError
        If a mode has fewer runs.
    """
    folder = Path(folder)
    held = sorted(int(path.name[4:]) for path in folder.glob("mode[1-6]"))
    if not held:
        raise FileNotFoundError(
            f"no simulated signals in {folder}: make them with baryflow tep simulate"
        )
    for mode in held if modes is None else modes:
        files = sorted((folder / f"mode{mode}").glob("run*.bary"))
        if len(files) < (runs or 1):
            raise InvalidInputError(
                f"expected {runs or 'some'} runs of mode {mode} in {folder}, found {len(files)}: "
                "continue the simulation"
            )
        for file in files[:runs]:
            X, cases = read_shard(file)
            fault, run = np.array(cases, dtype=np.intp).T
            yield Signals(X, fault, np.full(len(fault), mode, dtype=np.intp), run)


def read_commissioning(folder: str | os.PathLike[str], mode: int) -> NDArray[np.float32]:
    """Read the fault-free runs with which a mode was commissioned.

    Parameters
    ----------
    folder : path
        Folder that ``baryflow tep simulate`` has filled.
    mode : int

    Returns
    -------
    float32 array of shape (n_runs, n_times, 34)
    """
    return read_shard(Path(folder) / f"mode{mode}" / "commissioning.bary")[0]


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the manifest of a simulation.

    Parameters
    ----------
    folder : path
        Folder that ``baryflow tep simulate`` has filled.

    Returns
    -------
    dict
        Every parameter, versions, and the runs that were drawn again, as in the JSON file.

    Raises
    ------
    FileNotFoundError
        If the folder has no manifest.
    FileFormatError
        If the file is not a manifest.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"no simulation in {Path(folder)}: there is no {MANIFEST}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        manifest["plan"]["faults"]
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(f"{path} is not the manifest of a simulation: {error!r}") from error
    return dict(manifest)


def read_shard(path: Path) -> tuple[NDArray[np.float32], list[list[int]]]:
    """Read one file: signals of shape (n_runs, n_times, 34), and the fault and number of each run."""
    held = container.read(path)
    X: NDArray[Any] | None = held.arrays.get("signals")
    cases = held.values.get("cases")
    if (
        held.kind != KIND
        or X is None
        or not isinstance(cases, list)
        or X.shape[::2] != (len(cases), len(VARIABLES))
    ):
        raise FileFormatError(f"{path} does not hold simulated signals")
    return X, cases
