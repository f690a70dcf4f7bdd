"""The Tennessee Eastman plant: simulate it, read what was published of it, encode its signals."""

from baryflow.datasets.tep.encode import Encoder, encode
from baryflow.datasets.tep.features import Features, load_tep, read_features
from baryflow.datasets.tep.original import read_arrays, read_original
from baryflow.datasets.tep.signals import Signals, iterate_signals, read_commissioning, read_signals
from baryflow.datasets.tep.simulate import Plan, simulate
from baryflow.datasets.tep.tables import FAULTS, MODES, VARIABLES

__all__ = [
    "FAULTS",
    "MODES",
    "VARIABLES",
    "Encoder",
    "Features",
    "Plan",
    "Signals",
    "encode",
    "iterate_signals",
    "load_tep",
    "read_arrays",
    "read_commissioning",
    "read_features",
    "read_original",
    "read_signals",
    "simulate",
]
