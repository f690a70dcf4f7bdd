"""Brokers and servers by URL: what a transport must be able to do, and which there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Sink, Source
from baryflow.streams.urls import Address, Credentials

#: Scheme → module with ``open_source`` and ``open_sink``.
_OURS = {
    "mqtt": "baryflow.streams.mqtt",
    "mqtts": "baryflow.streams.mqtt",
    "kafka": "baryflow.streams.kafka",
    "kafka+ssl": "baryflow.streams.kafka",
    "opc.tcp": "baryflow.streams.opcua",
}
#: Other packages announce theirs under this group: the name is the scheme.
GROUP = "baryflow.transports"


@dataclass(frozen=True)
class Wanted:
    """What is wanted of a source.

    Attributes
    ----------
    columns : sequence of str or None
        In this order; None for all that there are.
    time, key : str or None
        Columns that are handed over as they are written; a key that begins with ``@`` is not a column
        but something of the transport: ``"@topic"``, ``"@key"``.
    idle : float or None
        Seconds without a row after which ``read`` returns what there is, be it nothing.
    every : float or None
        Seconds from one row to the next, if values come one by one and rows are made of them.
    tags : str or None
        File with the list of values that come one by one.
    max_age : float or None
        Seconds after which a value that did not change is not believed any longer.
    """

    columns: Sequence[str] | None = None
    time: str | None = None
    key: str | None = None
    idle: float | None = None
    every: float | None = None
    tags: str | None = None
    max_age: float | None = None


class Transport(Protocol):
    """Opens sources and sinks of one kind; a module with two functions will do."""

    def open_source(self, address: Address, credentials: Credentials, wanted: Wanted) -> Source:
        """Open a source of rows.

        Parameters
        ----------
        address : Address
        credentials : Credentials
        wanted : Wanted

        Returns
        -------
        Source

        Raises
        ------
        UnreachableError
            If we are not let in. Being away for a while is no reason: a source waits, and goes on.
        """

    def open_sink(self, address: Address, credentials: Credentials) -> Sink:
        """Open a sink of records.

        Parameters
        ----------
        address : Address
        credentials : Credentials

        Returns
        -------
        Sink
            What was sent cannot be taken back: its ``truncate`` does nothing, and after a kill some
            records are sent again, equal in every character.

        Raises
        ------
        UnreachableError
            If we are not let in.
        """


def find_transport(scheme: str) -> Transport:
    """Return what opens URLs that begin with `scheme`.

    Parameters
    ----------
    scheme : str

    Returns
    -------
    Transport

    Raises
    ------
    InvalidInputError
        If there is none.
    ModuleNotFoundError
        If a package that it needs is not installed; the message says which extra brings it.
    """
    if scheme in _OURS:
        ours: Transport = import_module(_OURS[scheme])
        return ours
    theirs = {point.name: point for point in entry_points(group=GROUP)}
    if scheme not in theirs:
        known = ", ".join(f"{name}://" for name in (*_OURS, *theirs))
        raise InvalidInputError(f"expected a file or one of {known}, got {scheme}://")
    transport: Transport = theirs[scheme].load()
    return transport
