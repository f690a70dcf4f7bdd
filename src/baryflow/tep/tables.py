"""The Tennessee Eastman plant in tables: what is measured and moved, what can go wrong, where it runs.

Variables and faults 1 to 20 are those of Downs and Vogel (Computers & Chemical Engineering 17, 1993),
faults 21 to 28 those of Bathelt, Ricker and Jelali (IFAC-PapersOnLine 48, 2015). The modes are the six
optimal steady states of Ricker (Computers & Chemical Engineering 19, 1995).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Variable(NamedTuple):
    """One column of a signal."""

    tag: str
    name: str
    unit: str

    @property
    def label(self) -> str:
        """Name and unit, as a column of a table has them."""
        return f"{self.name} ({self.unit})"


#: The continuous measurements, in the order of their numbers XMEAS 1 to 22.
MEASUREMENTS = (
    Variable("XMEAS1", "A feed", "kscmh"),
    Variable("XMEAS2", "D feed", "kg/h"),
    Variable("XMEAS3", "E feed", "kg/h"),
    Variable("XMEAS4", "A and C feed", "kscmh"),
    Variable("XMEAS5", "recycle flow", "kscmh"),
    Variable("XMEAS6", "reactor feed", "kscmh"),
    Variable("XMEAS7", "reactor pressure", "kPa gauge"),
    Variable("XMEAS8", "reactor level", "%"),
    Variable("XMEAS9", "reactor temperature", "°C"),
    Variable("XMEAS10", "purge", "kscmh"),
    Variable("XMEAS11", "separator temperature", "°C"),
    Variable("XMEAS12", "separator level", "%"),
    Variable("XMEAS13", "separator pressure", "kPa gauge"),
    Variable("XMEAS14", "separator underflow", "m³/h"),
    Variable("XMEAS15", "stripper level", "%"),
    Variable("XMEAS16", "stripper pressure", "kPa gauge"),
    Variable("XMEAS17", "stripper underflow", "m³/h"),
    Variable("XMEAS18", "stripper temperature", "°C"),
    Variable("XMEAS19", "stripper steam", "kg/h"),
    Variable("XMEAS20", "compressor work", "kW"),
    Variable("XMEAS21", "reactor cooling water outlet", "°C"),
    Variable("XMEAS22", "condenser cooling water outlet", "°C"),
)

#: The manipulated variables XMV 1 to 12.
VALVES = (
    Variable("XMV1", "D feed valve", "%"),
    Variable("XMV2", "E feed valve", "%"),
    Variable("XMV3", "A feed valve", "%"),
    Variable("XMV4", "A and C feed valve", "%"),
    Variable("XMV5", "compressor recycle valve", "%"),
    Variable("XMV6", "purge valve", "%"),
    Variable("XMV7", "separator underflow valve", "%"),
    Variable("XMV8", "stripper underflow valve", "%"),
    Variable("XMV9", "stripper steam valve", "%"),
    Variable("XMV10", "reactor cooling water valve", "%"),
    Variable("XMV11", "condenser cooling water valve", "%"),
    Variable("XMV12", "agitator speed", "%"),
)

#: The columns of every signal.
VARIABLES = MEASUREMENTS + VALVES

#: What each class is; 0 is normal operation, 1 to 28 are the disturbances IDV 1 to 28.
FAULTS = (
    "normal operation",
    "A/C ratio of the A and C feed: step",
    "B in the A and C feed: step",
    "D feed temperature: step",
    "reactor cooling water inlet temperature: step",
    "condenser cooling water inlet temperature: step",
    "A feed lost",
    "pressure loss in the C header",
    "composition of the A and C feed: random",
    "D feed temperature: random",
    "C feed temperature: random",
    "reactor cooling water inlet temperature: random",
    "condenser cooling water inlet temperature: random",
    "reaction kinetics: slow drift",
    "reactor cooling water valve sticks",
    "condenser cooling water valve sticks",
    "heat transfer in the stripper: random",
    "heat transfer in the reactor: random",
    "heat transfer in the condenser: random",
    "recycle, underflow and steam valves stick",
    "unknown: random",
    "A feed temperature: random",
    "E feed temperature: random",
    "A feed pressure: random",
    "D feed pressure: random",
    "E feed pressure: random",
    "A and C feed pressure: random",
    "reactor cooling water pressure: random",
    "condenser cooling water pressure: random",
)


@dataclass(frozen=True)
class Setpoints:
    """What the operator asks of the plant."""

    production: float  # m³/h of product, the stripper's underflow
    stripper_level: float  # %
    separator_level: float  # %
    reactor_level: float  # %
    reactor_pressure: float  # kPa gauge
    percent_g: float  # mol % of G in the product
    feed_a_share: float  # A among A and C in the reactor feed, %
    feed_ac: float  # A and C in the reactor feed, mol %
    reactor_temperature: float  # °C
    recycle_valve: float  # %
    steam_valve: float  # %
    agitator: float  # %


_A, _C = 32.19, 26.38  # mol % in the reactor feed at the base case
_AC = _A + _C
_STEAM = 47.44573456  # %, the steam valve there
#: 0 is the base case of Downs and Vogel, from which the modes are reached; 1 to 6 are the modes.
MODES = {
    0: Setpoints(22.95, 50, 50, 75, 2705, 53.72, 100 * _A / _AC, _AC, 120.4, 22.21, _STEAM, 50),
    1: Setpoints(22.89, 50, 50, 65, 2800, 53.80, 63.137, 51.00, 122.9, 1, 1, 100),
    2: Setpoints(22.73, 50, 50, 65, 2800, 11.66, 64.184, 54.25, 124.2, 1, 1, 100),
    3: Setpoints(18.04, 50, 50, 65, 2800, 90.09, 62.113, 47.43, 121.9, 77.621, 1, 100),
    4: Setpoints(36.04, 50, 50, 65, 2800, 53.35, 61.947, 58.76, 128.2, 1, 1, 100),
    5: Setpoints(23.55, 50, 50, 65, 2800, 11.65, 64.028, 54.32, 124.6, 1, 1, 100),
    6: Setpoints(20.20, 50, 50, 65, 2800, 90.07, 61.468, 48.79, 123.0, 71.166, 1, 100),
}  # fmt: skip

#: From which settled mode each one is approached; a straight ramp from the base case to 3 or 6 trips.
REACHED_FROM = {1: 0, 2: 0, 4: 0, 5: 0, 3: 1, 6: 3}

#: Share of its full size at which a fault is let in, by (mode, fault); 1 where nothing is said. At full
#: size these shut the plant down; the published data lower them in the same way.
MAGNITUDES = {
    (1, 6): 0.75,
    (2, 6): 0.75,
    (3, 6): 0.75,
    (4, 1): 0.75,
    (4, 6): 0.50,
    (4, 7): 0.25,
    (5, 6): 0.75,
    (6, 6): 0.75,
}
