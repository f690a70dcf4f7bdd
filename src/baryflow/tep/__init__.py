"""The Tennessee Eastman plant: simulate it, read what was published of it, encode its signals.

Features that were made this way come with the package: :func:`baryflow.datasets.load_tep`.
"""

from typing import TYPE_CHECKING, Any

from baryflow.datasets.tennessee_eastman import Features, read_features
from baryflow.tep.original import read_arrays, read_original
from baryflow.tep.plant.simulation import Plan, simulate
from baryflow.tep.signals import (
    Signals,
    iterate_signals,
    read_commissioning,
    read_manifest,
    read_signals,
)
from baryflow.tep.tables import FAULTS, MODES, VARIABLES

if TYPE_CHECKING:
    from baryflow.tep.encoders.encoding import Encoder, encode

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
    "read_arrays",
    "read_commissioning",
    "read_features",
    "read_manifest",
    "read_original",
    "read_signals",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Import the encoders when they are first used: the plant runs without scikit-learn."""
    if name not in ("Encoder", "encode"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from baryflow.tep.encoders import encoding

    return getattr(encoding, name)
