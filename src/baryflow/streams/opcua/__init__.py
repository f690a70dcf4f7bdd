"""OPC UA: rows from the variables of a server, and predictions as variables.

``opc.tcp://host:4840/path?node=ns=2;s=Plant`` makes rows of the variables under a node, whose names are
the columns; with a list of tags, any variables are. Options: ``security``, ``mode``, ``uncertain``,
``clock``, ``since``. As a sink, ``opc.tcp://127.0.0.1:4841/baryflow?serve`` is a server of our own, and
``?node=`` writes into variables of one that is there.
"""

from baryflow.streams.opcua.sink import open_sink
from baryflow.streams.opcua.source import open_source

__all__ = ["open_sink", "open_source"]
