"""Tables and rows from files and standard input, and records to files and standard output.

:func:`read_table` reads labelled rows at once, for learning; :func:`open_source` reads rows as they
come, in bounded memory, and hands over what cannot be used with its position and the reason;
:func:`open_sink` writes.
"""

from baryflow.streams.base import Batch, Rejected, Sink, Source
from baryflow.streams.registry import open_sink, open_source
from baryflow.streams.tables import Table, read_table
from baryflow.streams.urls import Credentials, read_credentials

__all__ = [
    "Batch",
    "Credentials",
    "Rejected",
    "Sink",
    "Source",
    "Table",
    "open_sink",
    "open_source",
    "read_credentials",
    "read_table",
]
