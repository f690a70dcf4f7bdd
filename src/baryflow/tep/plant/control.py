"""The plant's controller: Ricker's decentralised loops, as a table.

Every loop is a proportional–integral controller in velocity form. With the error e = setpoint −
measurement, once a step of length dt::

    output ← clip(output + gain · (e − e_before + dt / reset · e), low, high)

Seven flow loops move the valves. Their setpoints are a *ratio* times the production index (% of the
nominal rate), and slower loops move the ratios, the production index and the composition trims: so a
change of the production rate moves all flows together. (Ricker, Journal of Process Control 6, 1996.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

#: Length of an integration step and of a controller step, h.
STEP = 0.0005
_MINUTE = 1 / 60.0


class Loop(NamedTuple):
    """One proportional–integral loop; its output is what it moves."""

    moves: str
    measures: int  # number of the XMEAS
    gain: float  # units of the output for one unit of the error
    reset: float  # h
    low: float = 0.0
    high: float = 100.0
    output: str = "%"  # unit of the output


#: In this order the outputs stand in the controller's memory.
LOOPS = (
    # flow loops: setpoint = ratio × production index, output = valve
    Loop("D feed valve", 2, 1.6e-6, 0.001 * _MINUTE),
    Loop("E feed valve", 3, 1.8e-6, 0.001 * _MINUTE),
    Loop("A feed valve", 1, 0.01, 0.001 * _MINUTE),
    Loop("A and C feed valve", 4, 0.003, 0.001 * _MINUTE),
    Loop("purge valve", 10, 0.01, 0.001 * _MINUTE),
    Loop("separator underflow valve", 14, 4e-4, 0.001 * _MINUTE),
    Loop("stripper underflow valve", 17, 4e-4, 0.001 * _MINUTE),
    # temperatures
    Loop("reactor cooling water valve", 9, -8.0, 7.5 * _MINUTE),
    Loop("condenser cooling water valve", 11, -4.0, 15 * _MINUTE),
    # slow loops: they move the production index, a setpoint, or a ratio
    Loop("correction of the production index", 17, 3.2, 120 * _MINUTE, -30.0, 30.0, "%"),
    Loop("setpoint of the separator temperature", 8, 0.8, 60 * _MINUTE, 0.0, 120.0, "°C"),
    Loop("correction of D and E feed for %G", 40, -0.4, 100 * _MINUTE, -math.inf, math.inf, "kmol/h"),
    Loop("purge ratio", 7, -1e-4, 20 * _MINUTE, 0.0, 100.0, "kscmh/%"),
    Loop("separator underflow ratio", 12, -1e-3, 200 * _MINUTE, 0.0, 100.0, "m³/h/%"),
    Loop("stripper underflow ratio", 15, -2e-4, 200 * _MINUTE, 0.0, 100.0, "m³/h/%"),
)

#: Composition trims, at the analyser's pace. The first moves the A feed ratio and, the other way, the A
#: and C feed ratio; the second moves the A and C feed ratio alone. Unit of the output: kscmh/%.
TRIM_EVERY = 200  # steps: 0.1 h
TRIMS = (
    Loop("A feed ratio", 23, 2e-4, 60 * _MINUTE, -math.inf, math.inf, "kscmh/%"),
    Loop("A and C feed ratio", 25, 3e-4, 120 * _MINUTE, -math.inf, math.inf, "kscmh/%"),
)

#: Product flow (m³/h) at which the production index is 100 %.
NOMINAL_PRODUCTION = 22.89
#: D and E feed ratios (kg/h per %) as polynomials of the mol % of G asked for, highest power first.
D_RATIO = (1.5192e-3, 5.9446e-1, 2.7690e-1)
E_RATIO = (-1.1377e-3, -8.0893e-1, 9.1060e1)
#: Molar masses of D and E, kg/kmol: a correction takes as many moles of one as it adds of the other.
D_MOLAR_MASS, E_MOLAR_MASS = 32.0, 46.0
#: Above this opening of the condenser's cooling water valve (%) the recycle valve is closed,
#: by OVERRIDE_GAIN % for each % above it.
OVERRIDE_FROM, OVERRIDE_GAIN = 90.0, -2.0

N_LOOPS = len(LOOPS)
#: Where in the controller's memory the two ratios stand that the trims move.
A_RATIO, AC_RATIO = N_LOOPS, N_LOOPS + 1
N_MEMORY = N_LOOPS + len(TRIMS)


def memory_at_base_case(
    production: float, percent_g: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the loops' outputs at the base case: valves as published, ratios from the base flows."""
    index = production * 100 / NOMINAL_PRODUCTION
    d_ratio = (D_RATIO[0] * percent_g + D_RATIO[1]) * percent_g + D_RATIO[2]
    base_flow = {
        "A": 0.251,
        "A and C": 9.35,
        "D": 3664.0,
        "purge": 0.337,
        "separator": 25.16,
        "stripper": 22.95,
    }
    memory = {
        "D feed valve": 63.05263039,
        "E feed valve": 53.97970677,
        "A feed valve": 24.64355755,
        "A and C feed valve": 61.30192144,
        "purge valve": 40.06374673,
        "separator underflow valve": 38.1003437,
        "stripper underflow valve": 46.53415582,
        "reactor cooling water valve": 41.10581288,
        "condenser cooling water valve": 18.11349055,
        "correction of the production index": 0.0,
        "setpoint of the separator temperature": 80.1,
        "correction of D and E feed for %G": (d_ratio * index - base_flow["D"]) / D_MOLAR_MASS,
        "purge ratio": base_flow["purge"] / index,
        "separator underflow ratio": base_flow["separator"] / index,
        "stripper underflow ratio": base_flow["stripper"] / index,
        "A feed ratio": base_flow["A"] / index,
        "A and C feed ratio": base_flow["A and C"] / index,
    }
    return np.array([memory[loop.moves] for loop in LOOPS + TRIMS])
