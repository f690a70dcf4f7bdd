"""From signals to features: for each target mode, an encoder trained on the five other modes alone.

Of the target mode an encoder knows its fault-free commissioning runs, which set the scale, and nothing
else: no label, no run of the stream, no future. A folder holds, for every target::

    target1.onnx   the trained encoder, with what is normal in every mode
    target1.bary   features of all runs of all modes (:class:`~baryflow.tep.Features`)
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from baryflow.datasets.tennessee_eastman import Features, read_features
from baryflow.exceptions import InvalidInputError
from baryflow.features.normal import Normal
from baryflow.features.statistics import Scale
from baryflow.tep.encoders import fcn, light
from baryflow.tep.encoders.graph import Network, import_torch
from baryflow.tep.encoders.statistics import (
    LAYOUT,
    check_commissioning,
    describe,
    scales_of,
)
from baryflow.tep.signals import iterate_signals, read_commissioning, read_manifest
from baryflow.tep.workers import in_parallel
from baryflow.validation import Integers, as_choice

MODES = (1, 2, 3, 4, 5, 6)
ENCODERS = ("fcn", "light")
DEFAULT = "fcn"

Array = NDArray[np.float32]
Progress = Callable[[int, int], None] | None


class Runs(NamedTuple):
    """All runs, in the form an encoder trains on."""

    X: Array
    y: Integers
    domain: Integers
    run: Integers

    def where(self, keep: NDArray[np.bool_]) -> Runs:
        """Return some of the runs."""
        return Runs(self.X[keep], self.y[keep], self.domain[keep], self.run[keep])


class Kind(Protocol):
    """What the two encoders have in common."""

    def prepare(self, X: Array, mode: int) -> Array:
        """Return the signals of a mode in the form that is trained on."""

    def train(self, runs: Runs, random_state: int, progress: Progress) -> Any:
        """Train on labelled runs of the sources."""

    def predict(self, model: Any, X: Array) -> Integers:
        """Return the faults that a trained model's head predicts."""

    def save(self, model: Any, path: Path, about: dict[str, Any]) -> None:
        """Write the trained model, with what is normal in every mode."""


class Convolutional:
    """The paper's network (:mod:`~baryflow.tep.encoders.fcn`)."""

    def __init__(self, commissioning: dict[int, Array]) -> None:
        self._scales = scales_of(commissioning)

    def prepare(self, X: Array, mode: int) -> Array:
        """Return scaled signals."""
        return fcn.scaled(X, self._scales[mode])

    def train(self, runs: Runs, random_state: int, progress: Progress) -> Any:
        """Train the network."""
        return fcn.train(runs.X, runs.y, random_state=random_state, progress=progress)

    def predict(self, model: Any, X: Array) -> Integers:
        """Return what the head says."""
        return _in_batches(model, X)

    def save(self, model: Any, path: Path, about: dict[str, Any]) -> None:
        """Write the ONNX file."""
        normal = {str(mode): _listed(scale) for mode, scale in self._scales.items()}
        fcn.save(model, path, about | {"normal": normal})


class Light:
    """Statistics and a small network (:mod:`~baryflow.tep.encoders.light`)."""

    def __init__(self, commissioning: dict[int, Array]) -> None:
        check_commissioning(commissioning)
        self._normal = Normal.of(commissioning, LAYOUT)

    def prepare(self, X: Array, mode: int) -> Array:
        """Return statistics as deviations from normal."""
        return self._normal.deviations(describe(X, self._normal.scale(mode)), mode)

    def train(self, runs: Runs, random_state: int, progress: Progress) -> light.Trained:
        """Choose statistics and train the network."""
        return light.train(runs.X, runs.y, runs.domain, random_state=random_state, progress=progress)

    def predict(self, model: light.Trained, X: Array) -> Integers:
        """Return what the head says."""
        return _in_batches(model.network, model.prepared(X))

    def save(self, model: light.Trained, path: Path, about: dict[str, Any]) -> None:
        """Write the ONNX file."""
        normal = {
            str(mode): _listed(self._normal.scale(mode))
            | {"centre": [float(value) for value in self._normal.centre(mode)[model.columns]]}
            for mode in self._normal.names
        }
        light.save(model, self._normal.spread, path, about | {"normal": normal})


class Encoder:
    """A trained encoder in use; needs onnxruntime, not PyTorch.

    Parameters
    ----------
    path : path of an ``.onnx`` file that ``baryflow tep encode`` wrote
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._network = Network(path)
        self.about = self._network.about
        as_choice(self.about.get("encoder"), "the encoder's kind", ENCODERS)

    def encode(self, X: Array, mode: int) -> tuple[Array, Array]:
        """Return features and the head's logits of signals of a mode.

        Parameters
        ----------
        X : float32 array of shape (n, n_times, 34)
        mode : int

        Returns
        -------
        features, logits : float32 arrays of n rows

        Raises
        ------
        InvalidInputError
            If the encoder does not know the mode.
        """
        normal = self.about["normal"].get(str(mode))
        if normal is None:
            raise InvalidInputError(
                f"this encoder knows modes {', '.join(self.about['normal'])}, got {mode}"
            )
        scale = Scale(np.array(normal["median"]), np.array(normal["spread"]))
        if self.about["encoder"] == "fcn":
            return self._network(X, *scale)
        return self._network(describe(X, scale), np.array(normal["centre"]))


def encode(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    encoder: str = DEFAULT,
    targets: Sequence[int] = MODES,
    runs: int | None = None,
    random_state: int = 0,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Train an encoder for every target, and write encoders and features.

    Files that exist are kept. Targets are trained in parallel, each on one thread, so that the
    result does not depend on the number of cores.

    Parameters
    ----------
    folder : path
        Folder that ``baryflow tep simulate`` has filled.
    out : path
        Folder for the files; created if it does not exist.
    encoder : {"fcn", "light"}, default="fcn"
    targets : sequence of int, default=(1, 2, 3, 4, 5, 6)
        Modes that are targets; the encoder of each is trained on the other modes.
    runs : int, optional
        Runs of each mode to use; all by default.
    random_state : int, default=0
    jobs : int, optional
        Number of processes.
    progress : callable, optional
        Called with the number of finished files and their total.

    Returns
    -------
    list of Path
        The files of features, one for each target.

    Raises
    ------
    InvalidInputError
        If the encoder or a target is unknown.
    """
    as_choice(encoder, "encoder", ENCODERS)
    if not set(targets) <= set(MODES):
        raise InvalidInputError(f"targets must be modes 1 to 6, got {tuple(targets)}")
    held = _complete(folder, runs)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    wanted = {"encoder": encoder, "random_state": random_state} | held
    paths = [out / f"target{target}.bary" for target in targets]
    missing = [
        target for target, path in zip(targets, paths, strict=True) if not _is_there(path, wanted)
    ]
    tell = progress or (lambda _done, _total: None)
    tell(len(paths) - len(missing), len(paths))
    if missing:
        import_torch()  # says what is missing before anything is begun
        work = partial(_encode_one, folder=Path(folder), out=out, wanted=wanted)
        with closing(in_parallel(work, missing, jobs=jobs)) as results:
            for number, _ in enumerate(results, 1):
                tell(len(paths) - len(missing) + number, len(paths))
    return paths


def leave_one_out(
    folder: str | os.PathLike[str],
    *,
    encoder: str = DEFAULT,
    runs: int | None = None,
    random_state: int = 0,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> Iterator[tuple[int, int, float]]:
    """Yield (target, source left out, accuracy there) of encoders trained on the four modes that remain.

    This is how encoders are compared: for every target on its sources alone. One encoder, trained on
    four modes, serves as two: either of the modes left out can be the target. `pairs` of modes to leave
    out are all fifteen without it.
    """
    as_choice(encoder, "encoder", ENCODERS)
    _complete(folder, runs)
    _one_thread()
    kind, data = _load(Path(folder), encoder, runs)
    for pair in itertools.combinations(MODES, 2) if pairs is None else pairs:
        model = kind.train(data.where(~np.isin(data.domain, pair)), random_state, None)
        for left_out, target in (pair, pair[::-1]):
            there = data.where(data.domain == left_out)
            yield target, left_out, float((kind.predict(model, there.X) == there.y).mean())


def _encode_one(target: int, *, folder: Path, out: Path, wanted: dict[str, Any]) -> None:
    _one_thread()
    kind, data = _load(folder, wanted["encoder"], wanted["runs"])
    model = kind.train(data.where(data.domain != target), wanted["random_state"], None)
    sources = [mode for mode in MODES if mode != target]
    about = wanted | {
        "target": target,
        "sources": sources,
        "scale": "fault-free commissioning runs of each mode",
    }
    path = out / f"target{target}.onnx"
    kind.save(model, path, about)
    apply_encoder(path, folder, runs=wanted["runs"]).save(path.with_suffix(".bary"))


def apply_encoder(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    modes: Sequence[int] = MODES,
    runs: int | None = None,
) -> Features:
    """Return the features of simulated signals by a trained encoder; no PyTorch needed."""
    trained = Encoder(path)
    parts = []
    for signals in iterate_signals(folder, modes, runs):
        X, logits = trained.encode(signals.X, int(signals.domain[0]))
        parts.append((X, signals.y, signals.domain, signals.run, logits.argmax(axis=1)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    about = {name: value for name, value in trained.about.items() if name != "normal"}
    about["encoded"] = _complete(folder, runs, modes)
    return Features(int(about["target"]), about, *columns)


def _load(folder: Path, encoder: str, runs: int | None) -> tuple[Kind, Runs]:
    commissioning = {mode: read_commissioning(folder, mode) for mode in MODES}
    kind: Kind = Convolutional(commissioning) if encoder == "fcn" else Light(commissioning)
    parts = [
        Runs(kind.prepare(part.X, int(part.domain[0])), part.y, part.domain, part.run)
        for part in iterate_signals(folder, MODES, runs)
    ]
    return kind, Runs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _in_batches(network: Any, X: Array) -> Integers:
    torch = import_torch()
    with torch.no_grad():
        parts = [
            network(torch.from_numpy(X[i : i + 256])).argmax(dim=1).numpy()
            for i in range(0, len(X), 256)
        ]
    return np.concatenate(parts).astype(np.intp)


def _listed(scale: Scale) -> dict[str, list[float]]:
    return {name: [float(value) for value in part] for name, part in scale._asdict().items()}


def _one_thread() -> None:
    """Keep PyTorch to one thread: sums over several differ in their last bits."""
    import_torch().set_num_threads(1)


def _complete(
    folder: str | os.PathLike[str], runs: int | None, modes: Sequence[int] = MODES
) -> dict[str, Any]:
    """Return the simulation's plan and the number of runs in use, or say that it has to be continued."""
    manifest = read_manifest(folder)
    held = [manifest.get("runs", {}).get(f"mode{mode}", 0) for mode in modes]
    wanted = min(held) if runs is None else runs
    if (
        not manifest.get("complete")
        or min(held) < max(1, wanted)
        or (runs is None and len(set(held)) > 1)
    ):
        raise InvalidInputError(
            f"{os.fspath(folder)} is not complete: it has {held} runs of modes {list(modes)}; continue "
            "'baryflow tep simulate', or ask for fewer runs"
        )
    return {"simulation": manifest["plan"], "runs": wanted}


def _is_there(path: Path, wanted: dict[str, Any]) -> bool:
    """Tell whether the file is there, and refuse to mix it with features of another kind."""
    if not path.is_file():
        return False
    about = read_features(path).about
    differ = {name: about.get(name) for name, value in wanted.items() if about.get(name) != value}
    if differ:
        asked = {name: wanted[name] for name in differ}
        raise InvalidInputError(
            f"{path} was made with {differ}, asked for is {asked}: choose another folder"
        )
    return True
