"""Follow targets durably: a source of rows, a model, predictions and events; no row lost or used twice.

:class:`Runner` reads batches from a source, predicts each row before it learns from it, and writes the
results. With a :class:`Store` every batch is on disk before it is processed, and a killed run
resumes as if it had never been interrupted (:class:`Loop`). Each target of a stream has a
:class:`Session` of its own; :class:`Sessions` keeps them.
"""

from baryflow.runtime.loop import Loop, Sessions
from baryflow.runtime.partitions import PartitionRunner
from baryflow.runtime.runner import Outputs, Runner, Totals
from baryflow.runtime.session import Event, Result, Rows, Session, SessionConfig
from baryflow.runtime.store import Store
from baryflow.streams import Label

__all__ = [
    "Event",
    "Label",
    "Loop",
    "Outputs",
    "PartitionRunner",
    "Result",
    "Rows",
    "Runner",
    "Session",
    "SessionConfig",
    "Sessions",
    "Store",
    "Totals",
]
