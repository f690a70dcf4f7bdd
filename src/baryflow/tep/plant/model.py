"""The running plant: the compiled model of Bathelt, Ricker and Jelali under the controller's loops.

The model comes from the package tep-studio and the loop around it is compiled by Numba: plant and
controller exchange 70,000 times in 35 h, and half a second passes. This is the one
module that imports either of them.
"""

from __future__ import annotations

import ctypes
import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from baryflow.exceptions import BaryflowError
from baryflow.tep.plant.control import (
    A_RATIO,
    AC_RATIO,
    D_MOLAR_MASS,
    D_RATIO,
    E_MOLAR_MASS,
    E_RATIO,
    LOOPS,
    N_LOOPS,
    N_MEMORY,
    NOMINAL_PRODUCTION,
    OVERRIDE_FROM,
    OVERRIDE_GAIN,
    STEP,
    TRIM_EVERY,
    TRIMS,
    memory_at_base_case,
)
from baryflow.tep.tables import MEASUREMENTS, MODES, VALVES, VARIABLES, Setpoints
from baryflow.validation import Floats

try:
    import numba
    from tep_studio.simulation._tep_native import ffi, lib
    from tep_studio.simulation.native import NativeTEPKernel
except ImportError as error:
    raise ModuleNotFoundError(
        f"the plant simulator needs the extra 'tep' ({error}): pip install 'baryflow[tep]'",
        name=error.name,
    ) from error

#: Options of the model: exact times of recalculation, two noise generators (bits 5 and 6), faults of any
#: size (bit 7; without it fractions of a fault are silently rounded).
MODEL_FLAG = 0xE0
N_STATES, N_XMEAS, N_IDV = 50, 41, 28

_pointer, _real, _integer = ctypes.c_void_p, ctypes.c_double, ctypes.c_int


def _kernel(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of the model as a plain C pointer, which compiled code can call."""
    address = int(ffi.cast("uintptr_t", ffi.addressof(lib, name)))
    return ctypes.CFUNCTYPE(result, *arguments)(address)


_set_inputs = _kernel("tep_set_inputs", None, _pointer, _pointer, _pointer)
_outputs = _kernel("tep_outputs", _integer, _pointer, _real, *[_pointer] * 6)
_derivatives = _kernel("tep_derivatives", _integer, _pointer, _real, _pointer, _pointer)
_shutdown = _kernel("tep_shutdown_code", _real, _pointer)

# The table of loops by column, as compiled code wants it.
_MEASURED = np.array([loop.measures - 1 for loop in LOOPS])
_GAIN = np.array([loop.gain for loop in LOOPS])
_INTEGRAL = np.array([STEP / loop.reset for loop in LOOPS])  # what a step adds of the error
_LOW = np.array([loop.low for loop in LOOPS])
_HIGH = np.array([loop.high for loop in LOOPS])
_TRIM_A, _TRIM_AC = TRIMS
_TRIM_TIME = 0.1  # h between two trims

# Which loop does what, by its place in the table.
_PLACE = {loop.moves: place for place, loop in enumerate(LOOPS)}
_CONDENSER = _PLACE["condenser cooling water valve"]
_INDEX = _PLACE["correction of the production index"]
_SEPARATOR_T = _PLACE["setpoint of the separator temperature"]
_PERCENT_G = _PLACE["correction of D and E feed for %G"]
_PURGE, _SEPARATOR, _STRIPPER = (
    _PLACE[f"{name} ratio"] for name in ("purge", "separator underflow", "stripper underflow")
)
# The valves that are outputs of loops; the others are set by the operator.
_LOOP_OF_VALVE = np.array([_PLACE.get(valve.name, -1) for valve in VALVES])


# Compiled functions: arrays they change come last.


@numba.njit
def _open_valves(setpoint, memory, valves):  # type: ignore[no-untyped-def]
    """Set the valves: outputs of loops from the controller's memory, the others as the operator asks."""
    for valve in range(valves.size):
        if _LOOP_OF_VALVE[valve] >= 0:
            valves[valve] = memory[_LOOP_OF_VALVE[valve]]
    recycle, steam, agitator = setpoint[9:]
    override = min(0.0, OVERRIDE_GAIN * (memory[_CONDENSER] - OVERRIDE_FROM))
    valves[4] = min(100.0, max(0.0, recycle + override))
    valves[8] = steam
    valves[11] = agitator


@numba.njit
def _trim(setpoint, measured, memory, errors):  # type: ignore[no-untyped-def]
    """Move the feed ratios of A and of A and C by what the analyser of the reactor feed shows."""
    a, c = measured[_TRIM_A.measures - 1], measured[_TRIM_AC.measures - 1]
    error = setpoint[6] - 100.0 * a / (a + c)
    trim_a = _TRIM_A.gain * (error - errors[A_RATIO] + _TRIM_TIME / _TRIM_A.reset * error)
    errors[A_RATIO] = error
    error = setpoint[7] - (a + c)
    trim_ac = _TRIM_AC.gain * (error - errors[AC_RATIO] + _TRIM_TIME / _TRIM_AC.reset * error)
    errors[AC_RATIO] = error
    memory[A_RATIO] += trim_a
    memory[AC_RATIO] += trim_ac - trim_a


@numba.njit
def _polynomial(coefficients, x):  # type: ignore[no-untyped-def]
    """Return the value of a polynomial of degree 2."""
    return (coefficients[0] * x + coefficients[1]) * x + coefficients[2]


@numba.njit
def _move_loops(setpoint, measured, target, memory, errors):  # type: ignore[no-untyped-def]
    """Find the setpoints of all loops from the memory as it is, then move all loops by one step."""
    production, stripper_level, separator_level, reactor_level, pressure, percent_g = setpoint[:6]
    index = production * 100.0 / NOMINAL_PRODUCTION + memory[_INDEX]
    moles = memory[_PERCENT_G]
    target[0] = (_polynomial(D_RATIO, percent_g) - D_MOLAR_MASS * moles / index) * index
    target[1] = (_polynomial(E_RATIO, percent_g) + E_MOLAR_MASS * moles / index) * index
    target[2] = memory[A_RATIO] * index
    target[3] = memory[AC_RATIO] * index
    target[4] = memory[_PURGE] * index
    target[5] = memory[_SEPARATOR] * index
    target[6] = memory[_STRIPPER] * index
    target[7] = setpoint[8]  # reactor temperature
    target[8] = memory[_SEPARATOR_T]
    target[9] = production
    target[10] = reactor_level
    target[11] = percent_g
    target[12] = pressure
    target[13] = separator_level
    target[14] = stripper_level
    for i in range(N_LOOPS):
        error = target[i] - measured[_MEASURED[i]]
        moved = memory[i] + _GAIN[i] * (error - errors[i] + _INTEGRAL[i] * error)
        memory[i] = min(_HIGH[i], max(_LOW[i], moved))
        errors[i] = error


@numba.njit
def _run(handle, start, end, ramp, fault, onset, steps, recorded, state, memory, errors, record):  # type: ignore[no-untyped-def]
    """Advance plant and controller from step to step; return (rows recorded, time of a trip or −1).

    The setpoints go linearly from `start` to `end` in `ramp` hours. `recorded` are the first step to
    record and the steps from one to the next. What the controller decides acts from the next step on.
    """
    measured, valves, target = np.zeros(N_XMEAS), np.zeros(len(VALVES)), np.zeros(N_LOOPS)
    slope, no_fault, setpoint = np.zeros(N_STATES), np.zeros(N_IDV), start.copy()
    # Further outputs of the model, which nobody reads here.
    more, disturbances, monitors, compositions = np.zeros(32), np.zeros(21), np.zeros(62), np.zeros(96)
    first, every = recorded
    rows = 0
    for step in range(steps[0], steps[1]):
        time = step * STEP
        _outputs(
            handle, time, state.ctypes.data, measured.ctypes.data, more.ctypes.data,
            disturbances.ctypes.data, monitors.ctypes.data, compositions.ctypes.data,
        )  # fmt: skip
        if _shutdown(handle) != 0.0:
            return rows, time
        if ramp > 0.0:
            done = min(1.0, time / ramp)
            for i in range(setpoint.size):
                setpoint[i] = start[i] + done * (end[i] - start[i])
        _open_valves(setpoint, memory, valves)
        if step >= first and (step - first) % every == 0:
            record[rows, : len(MEASUREMENTS)] = measured[: len(MEASUREMENTS)]
            record[rows, len(MEASUREMENTS) :] = valves
            rows += 1
        if step % TRIM_EVERY == 0:
            _trim(setpoint, measured, memory, errors)
        _move_loops(setpoint, measured, target, memory, errors)
        disturbed = fault if time >= onset else no_fault
        _set_inputs(handle, valves.ctypes.data, disturbed.ctypes.data)
        # At the time of the last outputs the model returns the slope it kept: a cheap call.
        _derivatives(handle, time, state.ctypes.data, slope.ctypes.data)
        for i in range(N_STATES):
            state[i] += STEP * slope[i]
    return rows, -1.0


class Snapshot(NamedTuple):
    """Everything needed to continue from here: the states of the plant and of the controller."""

    state: Floats  # (50,)
    memory: Floats  # (17,), the loops' outputs
    errors: Floats  # (17,), the loops' last errors


@dataclass(frozen=True)
class Trip:
    """The plant shut itself down."""

    time: float  # h since the start of the run
    reason: str


@dataclass(frozen=True)
class Course:
    """What a run gave: the recorded signal, where it ended, and why it ended early if it did."""

    signal: Floats  # (n_times, 34)
    end: Snapshot
    trip: Trip | None


class Plant:
    """One instance of the model. Not to be shared between threads."""

    def __init__(self) -> None:
        self._handle = lib.tep_create()
        if self._handle == ffi.NULL:
            raise MemoryError("the plant model could not allocate its state")

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None and lib is not None:
            lib.tep_destroy(handle)

    def run(
        self,
        begin: Snapshot,
        setpoints: Setpoints,
        *,
        hours: float,
        seed: float,
        ramp_from: Setpoints | None = None,
        ramp: float = 0.0,
        fault: int = 0,
        magnitude: float = 1.0,
        onset: float = 0.0,
        record_from: float = 0.0,
        interval: float = 0.05,
    ) -> Course:
        """Run the closed loop for `hours`; record a row every `interval` hours from `record_from` on."""
        parts = self._reset(begin, seed)
        n_steps, first, every = (round(time / STEP) for time in (hours, record_from, interval))
        record = np.empty((-(-(n_steps - first) // every), len(VARIABLES)))
        end = _as_array(setpoints)
        start = end if ramp_from is None else _as_array(ramp_from)
        address = int(ffi.cast("uintptr_t", self._handle))
        rows, stopped = _run(
            address, start, end, ramp, _disturb(fault, magnitude), onset, (0, n_steps), (first, every),
            *parts, record,
        )  # fmt: skip
        return self._course(record[:rows], parts, stopped)

    def begin(self, begin: Snapshot, seed: float) -> None:
        """Begin a run that :meth:`go_on` leads on, for as long as one likes."""
        self._parts, self._step = self._reset(begin, seed), 0

    def go_on(
        self,
        rows: int,
        setpoints: Setpoints,
        *,
        fault: int = 0,
        magnitude: float = 1.0,
        every: int = 100,
    ) -> Course:
        """Continue the run until this many more rows are recorded, one every `every` steps.

        Setpoints and fault may change with each call; the random course of a fault continues.
        """
        record, end = np.empty((rows, len(VARIABLES))), _as_array(setpoints)
        steps = (self._step, self._step + rows * every)
        address = int(ffi.cast("uintptr_t", self._handle))
        found, stopped = _run(
            address, end, end, 0.0, _disturb(fault, magnitude), 0.0, steps, (self._step, every),
            *self._parts, record,
        )  # fmt: skip
        self._step = steps[1]
        return self._course(record[:found], self._parts, stopped)

    def _reset(self, begin: Snapshot, seed: float) -> Snapshot:
        parts = Snapshot(*(np.array(part, dtype=np.float64) for part in begin))
        pointer = ffi.cast("double *", parts.state.ctypes.data)
        if lib.tep_reset(self._handle, pointer, 1, float(seed), 1, float(MODEL_FLAG)) != 0:
            raise BaryflowError("the plant model refused to be reset")
        return parts

    def _course(self, signal: Floats, parts: Snapshot, stopped: float) -> Course:
        trip = None if stopped < 0 else Trip(float(stopped), self._reason())
        return Course(signal, parts, trip)

    def _reason(self) -> str:
        text = ffi.new("char[]", 512)
        lib.tep_shutdown_message(self._handle, text, 512)
        return str(ffi.string(text).decode("latin-1")).strip()


def _as_array(setpoints: Setpoints) -> Floats:
    return np.array(dataclasses.astuple(setpoints), dtype=np.float64)


def _disturb(fault: int, magnitude: float) -> Floats:
    disturbance = np.zeros(N_IDV)
    if fault:
        disturbance[fault - 1] = magnitude
    return disturbance


def base_case() -> Snapshot:
    """Return the model's own start and a controller that suits it; it still has to settle."""
    setpoints = MODES[0]
    memory = memory_at_base_case(setpoints.production, setpoints.percent_g)
    return Snapshot(NativeTEPKernel().reset(), memory, np.zeros(N_MEMORY))
