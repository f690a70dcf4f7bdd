"""Follow targets durably: a source of rows, a model, predictions and events; no row lost or used twice.

:class:`Runner` reads batches from a source, predicts each row before it learns from it, and writes the
results. With a :class:`Checkpoint` every batch is on disk before it is processed, and a killed run
resumes as if it had never been interrupted (:class:`DurableLoop`). Each target of a stream has a
:class:`Session` of its own; a :class:`SessionStore` keeps them.
"""

from baryflow.runtime.checkpoint import Checkpoint, Snapshot
from baryflow.runtime.durable import DurableLoop
from baryflow.runtime.events import Event
from baryflow.runtime.journal import Journal
from baryflow.runtime.partitions import PartitionRunner
from baryflow.runtime.runner import Outputs, Runner, Totals
from baryflow.runtime.session import Result, Rows, Session, SessionConfig
from baryflow.runtime.store import SessionStore
from baryflow.streams import Label

__all__ = [
    "Checkpoint",
    "DurableLoop",
    "Event",
    "Journal",
    "Label",
    "Outputs",
    "PartitionRunner",
    "Result",
    "Rows",
    "Runner",
    "Session",
    "SessionConfig",
    "SessionStore",
    "Snapshot",
    "Totals",
]
