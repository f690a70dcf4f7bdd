"""Has the target changed? Detectors on what a model says of rows before it learns from them."""

from baryflow.drift.betting import BettingDetector
from baryflow.drift.monitor import DriftMonitor, DriftReport, MonitorState
from baryflow.drift.ranks import Ranks

__all__ = [
    "BettingDetector",
    "DriftMonitor",
    "DriftReport",
    "MonitorState",
    "Ranks",
]
