"""Which nodes of a server are the tags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.opcua.packages import pieces, ua
from baryflow.streams.sampling.tags import Tag

_NODE_ID = re.compile(r"(ns=\d+;)?[isgb]=.+")
#: A variable whose history can be read has this bit in its access level.
_HISTORY = 1 << 2


async def find_node(client: Any, text: str) -> Any:
    """Return a node by its id, ``ns=2;s=Plant``, or by its path under Objects, ``2:Plant/2:Flow``."""
    if _NODE_ID.fullmatch(text):
        try:
            return client.get_node(ua.NodeId.from_string(text))
        except (ua.UaError, ValueError):
            raise InvalidInputError(f"{text!r} is not a node id such as ns=2;s=Flow") from None
    names = [
        name for name in text.strip("/").split("/") if name and name not in ("Objects", "0:Objects")
    ]
    try:
        return await client.nodes.objects.get_child(names)
    except (ua.UaError, ValueError):
        raise UnreachableError(
            f"the server has no node {text!r}; expected an id such as ns=2;s=Flow, or a path such as "
            "2:Plant/2:Flow"
        ) from None


async def find_tags(
    client: Any, text: str, columns: Sequence[str] | None, by_machine: bool
) -> list[Tag]:
    """Return the variables under a node as tags; their names are the columns.

    Parameters
    ----------
    client : asyncua.Client
    text : str
        The node.
    columns : sequence of str or None
        Those wanted; None for all.
    by_machine : bool
        Whether the variables are those of the objects under the node, each of which is a machine.

    Returns
    -------
    list of Tag

    Raises
    ------
    UnreachableError
        If there are no such variables.
    """
    node = await find_node(client, text)
    try:
        machines = {"": node}
        if by_machine:
            objects = await node.get_children(nodeclassmask=ua.NodeClass.Object)
            machines = {(await one.read_browse_name()).Name: one for one in objects}
        tags = []
        for key, machine in machines.items():
            variables = await machine.get_children(nodeclassmask=ua.NodeClass.Variable)
            named = {(await one.read_browse_name()).Name: one for one in variables}
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
        raise UnreachableError(f"there are no machines under the node {text!r}")
    return tags


async def check_nodes(client: Any, nodes: dict[str, Any]) -> set[str]:
    """Return the addresses of those nodes that have a history.

    Parameters
    ----------
    client : asyncua.Client
    nodes : dict of str → Node

    Returns
    -------
    set of str

    Raises
    ------
    UnreachableError
        If there is no such node, it is not a variable, or must not be read.
    """
    ids = [node.nodeid for node in nodes.values()]
    classes, levels = [], []
    session = client.uaclient.session
    for some in pieces(ids):
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
            raise UnreachableError(f"we may not read the node {text!r}; ask the server's operator")
        if bits & _HISTORY:
            found.add(text)
    return found
