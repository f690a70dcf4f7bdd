"""Readers for the published data: the large HDF5 files, and the arrays cut out of them.

*The extended dataset* (Reinartz, Kulahci and Ravn, Computers & Chemical Engineering 149, 2021) is one
file ``TEP_Mode1.h5`` … ``TEP_Mode6.h5`` for each mode. A run is the dataset ::

    Mode1/SingleFault/SimulationCompleted/IDV1/Mode1_IDVInfo_1_100/Run1/processdata

with a row every 3 minutes and 54 columns: the time in hours, XMEAS 1 to 41, XMV 1 to 12. The number
after the fault's is its magnitude in %; the fault begins at 30 h. Names of columns are not unique, so
columns are taken by their place.

*The benchmark for domain adaptation* cut from it (Montesuma et al.) is, for each mode, a dictionary
with ``Signals`` (n, 600, 34), ``Labels`` (n,) and ``Folds``. It is published as pickles, which run code
when they are opened and are therefore not read here; an ``.npz`` or HDF5 file with the same three names
is.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.tep.signals import Signals
from baryflow.tep.tables import FAULTS, VARIABLES
from baryflow.validation import Integers, as_count

#: Column of the time, then where XMEAS 1 to 22 and XMV 1 to 12 stand.
_TIME, _COLUMNS = 0, np.r_[1:23, 42:54]
_N_COLUMNS = 54
_ONSET = 30.0  # h
#: Magnitudes in the order in which they are looked for.
_MAGNITUDES = (100, 75, 50, 25)
_PICKLES = {".pickle", ".pkl", ".p"}


def read_original(
    path: str | os.PathLike[str],
    *,
    faults: Sequence[int] | None = None,
    runs: int = 100,
    n_times: int = 600,
) -> Signals:
    """Read one mode of the extended dataset.

    A fault's signals are the `n_times` rows from its onset on, at the largest magnitude for which the
    plant survived. Class 0 are the `n_times` rows before the onset in as many runs, taken from all
    faults in turn, so that no fault's runs stand for normal operation alone.

    Parameters
    ----------
    path : path of a ``TEP_Mode*.h5``
    faults : sequence of int, optional
        Classes to read; all 29 without it.
    runs : int
        Runs of each class, at most.
    n_times : int
        Rows of a signal; 600 are 30 h.

    Raises
    ------
    FileFormatError
        If the file is not laid out as described above.
    InvalidInputError
        If a fault has no complete run, or runs are too short.
    """
    h5py = _h5py()
    as_count(runs, "runs")
    wanted = tuple(range(len(FAULTS))) if faults is None else tuple(faults)
    if not wanted or not set(wanted) <= set(range(len(FAULTS))):
        raise InvalidInputError(f"faults must be numbers from 0 to {len(FAULTS) - 1}, got {wanted}")
    with _open(h5py, path) as file:
        mode = _mode_of(file, path)
        completed = _group(file, f"Mode{mode}/SingleFault/SimulationCompleted", path)
        numbers = [fault for fault in range(1, len(FAULTS)) if fault in wanted or 0 in wanted]
        found = {fault: _runs_of(completed, mode, fault, runs) for fault in numbers}
        X, y, run = [], [], []
        for fault in sorted(wanted):
            sources = _in_turn(found, runs) if fault == 0 else found[fault]
            if not sources:
                raise InvalidInputError(
                    f"{path} has no completed run of fault {fault} in mode {mode}: leave it out"
                )
            for number, group in sources:
                X.append(_cut(group, n_times, before=fault == 0))
                y.append(fault)
                run.append(number)
    labels = np.array(y, dtype=np.intp)
    return Signals(
        np.stack(X), labels, np.full(len(labels), mode, dtype=np.intp), np.array(run, dtype=np.intp)
    )


def read_arrays(path: str | os.PathLike[str], mode: int) -> tuple[Signals, dict[str, Integers]]:
    """Read ``Signals``, ``Labels`` and, where they are, ``Folds`` of one mode from ``.npz`` or HDF5.

    Folds are a group (HDF5) or arrays named ``Folds/<name>`` (``.npz``); each lists rows of the signals.

    Parameters
    ----------
    path : path
    mode : int
        The mode of all signals in the file.

    Returns
    -------
    Signals
    dict of str → array
        Rows of each fold; empty if the file has none.

    Raises
    ------
    FileFormatError
        If the file is a pickle, or lacks an array.
    """
    path = Path(path)
    if path.suffix.lower() in _PICKLES:
        raise FileFormatError(
            f"{path} is a pickle, which could run any code when opened, and is not read. If you "
            "trust it, convert it once: d = pickle.load(open(path, 'rb')); "
            "numpy.savez(new, Signals=d['Signals'], Labels=d['Labels'], "
            "**{'Folds/' + name: rows for name, rows in d['Folds'].items()})"
        )
    arrays = _read_npz(path) if path.suffix.lower() == ".npz" else _read_h5(path)
    missing = {"Signals", "Labels"} - set(arrays)
    if missing:
        raise FileFormatError(
            f"{path} has no array {' and no array '.join(sorted(missing))}; it has {sorted(arrays)}"
        )
    X, labels = arrays.pop("Signals"), arrays.pop("Labels")
    if X.ndim != 3 or X.shape[2] != len(VARIABLES) or labels.shape != (len(X),):
        raise FileFormatError(
            f"expected Signals of shape (n, n_times, {len(VARIABLES)}) and Labels of shape (n,) "
            f"in {path}, got {X.shape} and {labels.shape}"
        )
    folds = {
        name.removeprefix("Folds/"): rows.astype(np.intp)
        for name, rows in arrays.items()
        if name.startswith("Folds/")
    }
    for name, rows in folds.items():
        if rows.ndim != 1 or (len(rows) and not 0 <= rows.min() <= rows.max() < len(X)):
            raise FileFormatError(f"{name} of {path} does not list rows of its {len(X)} signals")
    labels = labels.astype(np.intp)
    run = np.zeros_like(labels)
    for label in np.unique(labels):
        run[labels == label] = np.arange(np.count_nonzero(labels == label))
    signals = Signals(X.astype(np.float32), labels, np.full(len(labels), mode, dtype=np.intp), run)
    return signals, folds


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ModuleNotFoundError("HDF5 files need h5py: pip install h5py", name="h5py") from error
    return h5py


def _open(h5py: Any, path: str | os.PathLike[str]) -> Any:
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {os.fspath(path)}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise FileFormatError(f"{os.fspath(path)} is not a readable HDF5 file: {error}") from error


def _mode_of(file: Any, path: Any) -> int:
    modes = [int(match[1]) for name in file if (match := re.fullmatch(r"Mode([1-6])", name))]
    if len(modes) != 1:
        raise FileFormatError(
            f"expected one group Mode1 ... Mode6 in {os.fspath(path)}, got {sorted(file)}"
        )
    return modes[0]


def _group(file: Any, name: str, path: Any) -> Any:
    if name not in file:
        raise FileFormatError(f"{os.fspath(path)} has no group {name}")
    return file[name]


def _runs_of(completed: Any, mode: int, fault: int, runs: int) -> list[tuple[int, Any]]:
    """Return the first runs of a fault, at the largest magnitude that has any."""
    for magnitude in _MAGNITUDES:
        name = f"IDV{fault}/Mode{mode}_IDVInfo_{fault}_{magnitude}"
        if name in completed:
            group = completed[name]
            numbers = sorted(int(match[1]) for key in group if (match := re.fullmatch(r"Run(\d+)", key)))
            if numbers:
                return [(number, group[f"Run{number}"]) for number in numbers[:runs]]
    return []


def _in_turn(found: dict[int, list[tuple[int, Any]]], runs: int) -> list[tuple[int, Any]]:
    """Return runs of all faults in turn: the first of each, then the second of each, ..."""
    longest = max((len(group) for group in found.values()), default=0)
    mixed = [group[place] for place in range(longest) for group in found.values() if place < len(group)]
    return [(number, group) for number, (_, group) in enumerate(mixed[:runs])]


def _cut(run: Any, n_times: int, *, before: bool) -> NDArray[np.float32]:
    """Return the rows before or after the fault's onset."""
    data = run.get("processdata")
    if data is None or data.ndim != 2 or data.shape[1] != _N_COLUMNS:
        shape = "none" if data is None else data.shape
        raise FileFormatError(
            f"expected {run.name}/processdata of shape (n_times, {_N_COLUMNS}), got {shape}"
        )
    onset = int(np.searchsorted(data[:, _TIME], _ONSET - 1e-6))
    rows = slice(onset - n_times, onset) if before else slice(onset, onset + n_times)
    if rows.start < 0 or rows.stop > len(data):
        raise InvalidInputError(
            f"{run.name} has {onset} rows before the fault and {len(data) - onset} from it on, "
            f"{n_times} are asked for: choose a smaller n_times"
        )
    return np.asarray(data[rows], dtype=np.float32)[:, _COLUMNS]


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with zipfile.ZipFile(path):  # what is no archive would be taken for a single array
            pass
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise FileFormatError(f"{path} is not a readable .npz file of plain arrays: {error}") from error


def _read_h5(path: Path) -> dict[str, NDArray[Any]]:
    h5py = _h5py()
    with _open(h5py, path) as file:
        arrays: dict[str, NDArray[Any]] = {}
        for name, item in file.items():
            if isinstance(item, h5py.Group):
                arrays |= {f"{name}/{key}": np.asarray(item[key]) for key in item}
            else:
                arrays[name] = np.asarray(item)
        return arrays
