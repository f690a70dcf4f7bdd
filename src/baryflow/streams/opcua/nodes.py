"""Find the nodes of tags on an OPC UA server, and convert values and times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.opcua.connection import ua
from baryflow.streams.sampling.clock import SECOND
from baryflow.streams.sampling.tags import Tag

_T = TypeVar("_T")
_NODE_ID = re.compile(r"(ns=\d+;)?[isgb]=.+")
#: Bit of the access level that is set if the history can be read.
_HISTORY = 1 << 2
#: Nodes per request; servers refuse more than some hundreds.
_NODES = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Bits of a status that mark an overflow of the server's queue before this value.
_OVERFLOW = 0x480


def split_requests(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Split items into groups that fit in one request."""
    for begin in range(0, len(items), _NODES):
        yield items[begin : begin + _NODES]


async def find_node(client: Any, text: str) -> Any:
    """Return a node by its id, ``ns=2;s=Plant``, or by its path under Objects, ``2:Plant/2:Flow``."""
    if _NODE_ID.fullmatch(text):
        try:
            return client.get_node(ua.NodeId.from_string(text))
        except (ua.UaError, ValueError):
            raise InvalidInputError(f"expected a node id like ns=2;s=Flow, got {text!r}") from None
    names = [
        name for name in text.strip("/").split("/") if name and name not in ("Objects", "0:Objects")
    ]
    try:
        return await client.nodes.objects.get_child(names)
    except (ua.UaError, ValueError):
        raise UnreachableError(
            f"the server has no node {text!r}; expected an id like ns=2;s=Flow, or a path like "
            "2:Plant/2:Flow"
        ) from None


async def find_children(node: Any, kind: Any) -> dict[str, Any]:
    """Return the nodes of a class directly under a node, by name."""
    found = await node.get_children(nodeclassmask=kind)
    return {(await one.read_browse_name()).Name: one for one in found}


async def find_tags(client: Any, text: str, columns: Sequence[str] | None, by_target: bool) -> list[Tag]:
    """Return the variables under a node as tags, with their names as columns.

    With `by_target`, each object under the node is a target, and its variables are the columns.
    """
    node = await find_node(client, text)
    try:
        targets = {"": node}
        if by_target:
            targets = await find_children(node, ua.NodeClass.Object)
        tags = []
        for key, target in targets.items():
            named = await find_children(target, ua.NodeClass.Variable)
            chosen = list(named) if columns is None else columns
            missing = [name for name in chosen if name not in named]
            if missing or not chosen:
                raise UnreachableError(
                    f"the node {text!r}{f', {key!r},' * bool(key)} has no variable "
                    f"{', '.join(missing)}; it has {', '.join(named) or 'none'}"
                )
            tags += [Tag(named[name].nodeid.to_string(), name, key=key) for name in chosen]
    except ua.UaStatusCodeError as error:
        raise UnreachableError(f"the server has no node {text!r} ({type(error).__name__})") from None
    if not tags:
        raise UnreachableError(f"there are no objects under the node {text!r}")
    return tags


async def check_nodes(client: Any, nodes: dict[str, Any]) -> set[str]:
    """Return which nodes have a history, or raise if one is not a readable variable."""
    ids = [node.nodeid for node in nodes.values()]
    classes, levels = [], []
    session = client.uaclient.session
    for some in split_requests(ids):
        classes += await session.read_attributes(some, ua.AttributeIds.NodeClass)
        levels += await session.read_attributes(some, ua.AttributeIds.UserAccessLevel)
    found = set()
    for text, kind, level in zip(nodes, classes, levels, strict=True):
        if not kind.StatusCode.is_good():
            raise UnreachableError(f"the server has no node {text!r} ({kind.StatusCode.name})")
        if kind.Value.Value != ua.NodeClass.Variable:
            raise UnreachableError(f"the node {text!r} is not a variable; a tag must be one")
        bits = level.Value.Value if level.StatusCode.is_good() and level.Value is not None else 0
        if not bits & 1:
            raise UnreachableError(
                f"not permitted to read the node {text!r}; ask the operator of the server"
            )
        if bits & _HISTORY:
            found.add(text)
    return found


# -- values --------------------------------------------------------------------------------------------


class Value(NamedTuple):
    """A value of a tag."""

    address: str
    value: Any
    time: float | None  # seconds since the epoch
    good: bool


Converter = Callable[[str, Any], Value]


def to_seconds(moment: Any) -> float | None:
    """Return a time as seconds since the epoch, exact to the microsecond; None if it is invalid."""
    if not isinstance(moment, datetime):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    stamp = (moment - _EPOCH) // timedelta(microseconds=1)
    return stamp / SECOND if stamp > 0 else None  # servers send the year 1601 for an unknown time


def to_datetime(seconds: float) -> datetime:
    """Return seconds since the epoch as a datetime."""
    return _EPOCH + timedelta(microseconds=round(seconds * SECOND))


def make_converter(accept_uncertain: bool) -> Converter:
    """Return a function from a tag address and a ``DataValue`` to a :class:`Value`.

    The time is the source's, or else the server's. With `accept_uncertain`, uncertain values are good.
    """

    def convert(address: str, found: Any) -> Value:
        status = found.StatusCode
        good = status is None or status.is_good() or (accept_uncertain and status.is_uncertain())
        moment = found.SourceTimestamp
        time = to_seconds(found.ServerTimestamp if moment is None else moment)
        value = None if found.Value is None else found.Value.Value
        return Value(address, value, time, good)

    return convert


def has_overflowed(found: Any) -> bool:
    """Return whether the server dropped values before this one."""
    return found.StatusCode is not None and found.StatusCode.value & _OVERFLOW == _OVERFLOW
