"""The Tennessee Eastman plant, simulated step by step, with faults and operating modes on demand."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from importlib.resources import as_file, files

import numpy as np

from baryflow.features import FeatureStream, SignalModel
from baryflow.persistence import load
from baryflow.tep.plant.settling import RAMP, load_settled
from baryflow.tep.plant.simulation import noise_seed
from baryflow.tep.tables import FAULTS, MAGNITUDES, MODES, Setpoints
from baryflow.validation import Floats

#: Hours between two rows of signals.
INTERVAL = 0.05
#: Rows simulated at a time: an operator's action takes effect after this many at the latest.
CHUNK = 5
_SEED = 29


def load_plant_model() -> SignalModel:
    """Return the embedded model of modes 2 to 6, with its feature extraction."""
    with as_file(files("baryflow.datasets") / "data" / "tep_plant.bary") as path:
        model: SignalModel = load(path)
    return model


def class_name(fault: int) -> str:
    """Return the class name of a fault; fault 0 is normal operation."""
    return "normal" if fault == 0 else f"F{fault:02d} · {FAULTS[fault]}"


def clock(hours: float) -> str:
    """Return simulated hours as day and time of day."""
    minutes = round(60 * hours)
    return f"day {1 + minutes // 1440}, {minutes // 60 % 24:02d}:{minutes % 60:02d}"


@dataclass(frozen=True)
class Window:
    """A complete window: its features, the hour at its end, and the fault at that time."""

    features: Floats
    hour: float
    fault: int


class RunningPlant:
    """The plant with its controller and an operator who sets faults and modes. Not thread-safe.

    ``hours`` is the simulated time, ``fault_since`` the hour at which the fault last changed, and
    ``n_trips`` the number of shutdowns.
    """

    def __init__(self, model: SignalModel, mode: int = 1) -> None:
        from baryflow.tep.plant.model import Plant

        self._model, self._plant, self._settled = model, Plant(), load_settled()
        self.mode, self.fault, self.hours, self.fault_since, self.n_trips = mode, 0, 0.0, 0.0, 0
        self._stream: FeatureStream
        self._restart()

    def set_fault(self, fault: int) -> None:
        """Replace the current fault; 0 removes it."""
        self.fault, self.fault_since = fault, self.hours

    def set_mode(self, mode: int) -> None:
        """Start to ramp the setpoints to those of another mode."""
        self._ramp_from, self._ramp_start, self.mode = self._setpoints(), self.hours, mode
        # Features are relative to normal operation: from here on, to that of the new mode.
        self._stream = self._new_stream(self._stream)

    def advance(self) -> tuple[list[Window], str | None]:
        """Simulate a few rows; return the windows they complete and the reason of a shutdown, if any.

        After a shutdown the plant restarts in its settled state, without a fault.
        """
        magnitude = MAGNITUDES.get((self.mode, self.fault), 1.0)
        course = self._plant.go_on(CHUNK, self._setpoints(), fault=self.fault, magnitude=magnitude)
        windows = []
        for row in course.signal:
            self.hours += INTERVAL
            features = self._stream.push(row)
            if features is not None:
                windows.append(Window(features, self.hours, self.fault))
        if course.trip is None:
            return windows, None
        self.n_trips += 1
        self._restart()
        return windows, course.trip.reason

    def _restart(self) -> None:
        seed = noise_seed(_SEED, self.mode, 0, self.n_trips)
        self._plant.begin(self._settled[self.mode], seed)
        self.set_fault(0)
        self._ramp_from, self._ramp_start = MODES[self.mode], -np.inf
        self._stream = self._new_stream(None)

    def _new_stream(self, before: FeatureStream | None) -> FeatureStream:
        stream = self._model.stream(domain=f"mode {self.mode}")
        if before is not None:
            stream.resume(before.position)
        return stream

    def _setpoints(self) -> Setpoints:
        done = float(np.clip((self.hours - self._ramp_start) / RAMP, 0.0, 1.0))
        start, end = dataclasses.astuple(self._ramp_from), dataclasses.astuple(MODES[self.mode])
        return Setpoints(*(a + done * (b - a) for a, b in zip(start, end, strict=True)))
