"""Read rows from files, pipes, brokers and servers, and write records to them.

:func:`read_table` loads labelled rows for training. :func:`open_source` reads a stream in batches and
bounded memory; rows it cannot use are returned with their position and the reason. :func:`open_sink`
writes records. :func:`register_transport` adds a URL scheme.
"""

from baryflow.streams.backoff import RetryPolicy
from baryflow.streams.base import Batch, Label, Rejected, Sink, Source
from baryflow.streams.registry import (
    SourceOptions,
    Transport,
    open_sink,
    open_source,
    register_transport,
)
from baryflow.streams.tables import Table, read_table
from baryflow.streams.urls import Credentials, Endpoint, read_credentials

__all__ = [
    "Batch",
    "Credentials",
    "Endpoint",
    "Label",
    "Rejected",
    "RetryPolicy",
    "Sink",
    "Source",
    "SourceOptions",
    "Table",
    "Transport",
    "open_sink",
    "open_source",
    "read_credentials",
    "read_table",
    "register_transport",
]
