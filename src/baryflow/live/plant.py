"""The Tennessee Eastman plant, running for as long as somebody looks: faults and modes by the button."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np

from baryflow.features import FeatureStream, SignalModel
from baryflow.persistence import load
from baryflow.tep.plant.settling import RAMP, read_settled
from baryflow.tep.plant.simulation import noise_seed
from baryflow.tep.tables import FAULTS, MAGNITUDES, MODES, Setpoints
from baryflow.validation import Floats

if TYPE_CHECKING:
    from baryflow.tep.plant.model import Snapshot

#: Hours from one row of signals to the next.
INTERVAL = 0.05
#: Rows that are simulated at a time: what an operator does is felt after so many at the latest.
CHUNK = 5
_SEED = 29


def embedded_pair() -> SignalModel:
    """Return the model of modes 2 to 6 that comes along, with what makes features of signals.

    Returns
    -------
    SignalModel
    """
    with as_file(files("baryflow.datasets") / "data" / "tep_plant.bary") as path:
        pair: SignalModel = load(path)
    return pair


def embedded_settled() -> dict[int, Snapshot]:
    """Return the plant at rest in every mode.

    Returns
    -------
    dict of int → Snapshot
    """
    with as_file(files("baryflow.datasets") / "data" / "tep_settled.bary") as path:
        return read_settled(path)


@dataclass(frozen=True)
class Window:
    """A window that is full.

    Attributes
    ----------
    features : array of shape (n_features,)
    hour : float
        Of simulated time, at its end.
    fault : int
        What was wrong with the plant by then.
    """

    features: Floats
    hour: float
    fault: int


class RunningPlant:
    """The plant under its controller, its operator, and whatever goes wrong. For one thread.

    Parameters
    ----------
    pair : SignalModel
        What makes features of its signals.
    mode : int
        In which it starts.

    Attributes
    ----------
    mode, fault : int
        As they are now.
    hours : float
        Simulated ones.
    fault_since : float
        The hour at which the fault was let in, or taken away.
    """

    def __init__(self, pair: SignalModel, mode: int = 1) -> None:
        from baryflow.tep.plant.model import Plant

        self._pair, self._plant, self._settled = pair, Plant(), embedded_settled()
        self.mode, self.fault, self.hours, self.fault_since, self.n_trips = mode, 0, 0.0, 0.0, 0
        self._stream: FeatureStream
        self._restart()

    def set_fault(self, fault: int) -> None:
        """Let a fault in, in place of the one there is; 0 takes it away.

        Parameters
        ----------
        fault : int
        """
        self.fault, self.fault_since = fault, self.hours

    def set_mode(self, mode: int) -> None:
        """Lead the plant to another mode, as an operator would: slowly.

        Parameters
        ----------
        mode : int
        """
        self._from, self._ramp_begun, self.mode = self._setpoints(), self.hours, mode
        # From here on the operator compares with what is normal in the new mode.
        self._stream = self._new_stream(self._stream)

    def go_on(self) -> tuple[list[Window], str | None]:
        """Simulate a few rows.

        Returns
        -------
        windows : list of Window
            Those that are full now.
        trip : str or None
            Why the plant has shut itself down, if it has; it starts again at rest, without a fault.
        """
        magnitude = MAGNITUDES.get((self.mode, self.fault), 1.0)
        course = self._plant.go_on(CHUNK, self._setpoints(), fault=self.fault, magnitude=magnitude)
        found = []
        for row in course.signal:
            self.hours += INTERVAL
            features = self._stream.push(row)
            if features is not None:
                found.append(Window(features, self.hours, self.fault))
        if course.trip is None:
            return found, None
        self.n_trips += 1
        self._restart()
        return found, course.trip.reason

    def _restart(self) -> None:
        seed = noise_seed(_SEED, self.mode, 0, self.n_trips)
        self._plant.begin(self._settled[self.mode], seed)
        self.set_fault(0)
        self._from, self._ramp_begun = MODES[self.mode], -np.inf
        self._stream = self._new_stream(None)

    def _new_stream(self, before: FeatureStream | None) -> FeatureStream:
        stream = self._pair.stream(domain=f"mode {self.mode}")
        if before is not None:
            stream.resume(before.position)
        return stream

    def _setpoints(self) -> Setpoints:
        done = float(np.clip((self.hours - self._ramp_begun) / RAMP, 0.0, 1.0))
        start, end = dataclasses.astuple(self._from), dataclasses.astuple(MODES[self.mode])
        return Setpoints(*(a + done * (b - a) for a, b in zip(start, end, strict=True)))


def check_fault(fault: Any) -> str | None:
    """Return what is wrong with what should be the number of a fault, or None."""
    fine = isinstance(fault, int) and not isinstance(fault, bool) and 0 <= fault < len(FAULTS)
    return None if fine else f"expected a fault from 0 to {len(FAULTS) - 1}, got {fault!r}"


def check_mode(mode: Any) -> str | None:
    """Return what is wrong with what should be the number of a mode, or None."""
    fine = isinstance(mode, int) and not isinstance(mode, bool) and 1 <= mode <= max(MODES)
    return None if fine else f"expected a mode from 1 to {max(MODES)}, got {mode!r}"
