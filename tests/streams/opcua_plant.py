"""A small plant with an OPC UA server, in a thread of this process."""

from __future__ import annotations

import contextlib
import functools
import pickle
import socket
from datetime import UTC, datetime, timedelta

from asyncua import Server, ua
from asyncua.server.address_space import AddressSpace, NodeManagementService
from asyncua.server.history import HistoryDict
from asyncua.server.internal_server import InternalServer
from asyncua.server.standard_address_space import standard_address_space

from baryflow.streams.opcua.connection import EventLoopThread, silence_logging

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def free_port():
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@functools.cache
def _pickled_nodes():
    space = AddressSpace()
    standard_address_space.fill_address_space(NodeManagementService(space))
    return {nodeid: pickle.dumps(node, pickle.HIGHEST_PROTOCOL) for nodeid, node in space._nodes.items()}


class _Nodes(dict):
    """Nodes of a server; the standard ones are there from the beginning, each unpickled on first use."""

    def __init__(self):
        super().__init__()
        self._pickled = dict(_pickled_nodes())

    def __missing__(self, nodeid):
        node = self[nodeid] = pickle.loads(self._pickled.pop(nodeid))  # noqa: S301 - our own
        return node

    def __contains__(self, nodeid):
        return super().__contains__(nodeid) or nodeid in self._pickled

    def __delitem__(self, nodeid):
        if self._pickled.pop(nodeid, None) is None:
            super().__delitem__(nodeid)

    def get(self, nodeid, default=None):
        try:
            return self[nodeid]
        except KeyError:
            return default

    def keys(self):
        return [*super().keys(), *self._pickled]


async def _load_standard_nodes(server, _=None):
    server.aspace._nodes = _Nodes()


# Every server of this process makes thousands of standard nodes, which takes half a second.
InternalServer.load_standard_address_space = _load_standard_nodes


class Plant:
    """Variables under ``ns=2;s=Plant``; `history` keeps written values over restarts."""

    def __init__(self, names, *, history=True, port=None, prepare=None, targets=()):
        silence_logging()
        self.names, self.port = list(names), port or free_port()
        self.history = HistoryDict() if history else None
        self.prepare, self.targets = prepare, targets
        self.loop = EventLoopThread("plant")
        self.start()

    @property
    def url(self):
        return f"opc.tcp://127.0.0.1:{self.port}/plant"

    def start(self):
        self.loop.call(self._start())

    async def _start(self):
        self.server = Server()
        await self.server.init()
        self.server.set_endpoint(self.url)
        self.server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
        # Real servers can send anything; this one checks the type of a variable by default.
        self.server.iserver.aspace._is_expected_variant_type = lambda *_: True
        if self.prepare is not None:
            await self.prepare(self.server)
        if self.history is not None:
            self.server.iserver.history_manager.set_storage(self.history)
        assert await self.server.register_namespace("urn:plant") == 2
        folder = await self.server.nodes.objects.add_folder(ua.NodeId("Plant", 2), "2:Plant")
        self.nodes = {}
        if not self.targets:
            await self._fill(folder, "")
        for name in self.targets:
            await self._fill(await folder.add_object(ua.NodeId(name, 2), f"2:{name}"), f"{name}.")
        await self.server.start()

    async def _fill(self, folder, prefix):
        nothing = ua.DataValue(StatusCode=ua.StatusCode(ua.StatusCodes.BadWaitingForInitialData))
        for name in self.names:
            node = await folder.add_variable(
                ua.NodeId(prefix + name, 2), f"2:{name}", 0.0, ua.VariantType.Double
            )
            self.nodes[prefix + name] = node
            await self._put(node, nothing)
            if self.history is not None:
                for level in (ua.AttributeIds.AccessLevel, ua.AttributeIds.UserAccessLevel):
                    await node.set_attr_bit(level, ua.AccessLevel.HistoryRead)
                with contextlib.suppress(ua.UaError):  # known from before
                    await self.history.new_historized_node(node.nodeid, None, 0)

    def stop(self):
        self.loop.call(self.server.stop())

    def close(self):
        with contextlib.suppress(Exception):
            self.stop()
        self.loop.close()

    def write(self, *values):
        """Write (name, value, seconds[, status]); a value may be a ``DataValue``."""
        self.loop.call(self._write(values))

    async def _put(self, node, value):
        # Straight into the address space, as a driver does.
        space = self.server.iserver.aspace
        await space.write_attribute_value(node.nodeid, ua.AttributeIds.Value, value)

    async def _write(self, values):
        for name, value, seconds, *status in values:
            found = value
            if not isinstance(value, ua.DataValue):
                found = ua.DataValue(
                    ua.Variant(value, ua.VariantType.Double if isinstance(value, float) else None),
                    *(ua.StatusCode(one) for one in status),
                    SourceTimestamp=EPOCH + timedelta(microseconds=round(seconds * 1e6)),
                )
            await self._put(self.nodes[name], found)
            if self.history is not None and found.SourceTimestamp is not None:
                await self.history.save_node_value(self.nodes[name].nodeid, found)
