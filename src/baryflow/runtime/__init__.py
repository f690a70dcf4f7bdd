"""A source of rows, a model, and what comes of them: predictions, events, and nothing lost.

:class:`Runner` takes batches from a source, predicts each row before it learns from it, and writes. With
a :class:`Checkpoint` every batch is on disk before anything is made of it, and a run that was killed
goes on as if it never had been. Many machines in one stream are a :class:`Fleet`, each with a copy of
one model.
"""

from baryflow.runtime.checkpoint import Checkpoint
from baryflow.runtime.events import Event
from baryflow.runtime.journal import Journal
from baryflow.runtime.partitions import PartitionRunner, SharedSource
from baryflow.runtime.runner import Outputs, Runner, Totals
from baryflow.runtime.session import Result, Rows, Session, SessionConfig
from baryflow.runtime.store import SessionStore

__all__ = [
    "Checkpoint",
    "Event",
    "Journal",
    "Outputs",
    "PartitionRunner",
    "Result",
    "Rows",
    "Runner",
    "Session",
    "SessionConfig",
    "SessionStore",
    "SharedSource",
    "Totals",
]
