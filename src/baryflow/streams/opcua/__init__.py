"""The OPC UA transport: rows from the variables of a server, and predictions as variables.

``opc.tcp://host:4840/path?node=ns=2;s=Plant`` samples rows from the variables under a node, whose names
are the columns. With a tag list, the variables can be anywhere. URL options: ``security``, ``mode``,
``uncertain``, ``clock``, ``since``. As a sink, ``opc.tcp://127.0.0.1:4841/baryflow?serve`` starts a
server, and ``?node=`` writes to variables of an existing one.
"""

from baryflow.streams.opcua.sink import open_sink
from baryflow.streams.opcua.source import open_source

__all__ = ["open_sink", "open_source"]
