"""How the broker is to know us: sessions, certificates, and paho's clients."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baryflow.exceptions import InvalidInputError
from baryflow.streams.urls import Address, Credentials

if TYPE_CHECKING:
    from paho.mqtt.client import Client

#: Seconds to wait for a connection, and then for the broker's first words.
ANSWER = 5.0


@dataclass(frozen=True)
class Session:
    """How the broker is to know us.

    Attributes
    ----------
    client : str
        Name of the session; with "" the broker chooses one.
    lasting : bool
        Whether the broker keeps what comes while we are away.
    inflight : int
        Messages that it may send before we acknowledge the first of them.
    keepalive : int
        Seconds of silence after which each end asks whether the other is there.
    """

    client: str = ""
    lasting: bool = False
    inflight: int = 256
    keepalive: int = 30


def make_client(session: Session, credentials: Credentials, tls: ssl.SSLContext | None) -> Client:
    """Return a client of paho's that acknowledges nothing of its own accord."""
    mqtt = require_paho().client
    client: Client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        client_id=session.client,
        protocol=mqtt.MQTTv5,
        manual_ack=True,
    )
    client.connect_timeout = ANSWER
    if credentials.username is not None:
        client.username_pw_set(credentials.username, credentials.password)
    if tls is not None:
        client.tls_set_context(tls)
    return client


class _Tls(ssl.SSLContext):
    """Speaks TLS, with certificates verified; a socket that comes to nothing is closed."""

    def wrap_socket(self, sock: socket.socket, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Agree on a secret at once."""
        wrapped = super().wrap_socket(sock, *args, **options)
        try:
            wrapped.settimeout(ANSWER)
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped


def make_tls(address: Address, credentials: Credentials) -> ssl.SSLContext | None:
    """Return what verifies the broker's certificate, and shows ours; None without TLS."""
    if address.scheme != "mqtts":
        return None
    try:
        context = _Tls(ssl.PROTOCOL_TLS_CLIENT)  # checks certificates, and that they are for this host
        if credentials.ca_file is not None:
            context.load_verify_locations(credentials.ca_file)
        else:
            context.load_default_certs()
        if credentials.cert_file is not None:
            # Without a password: it would be asked for on the terminal, where nobody sits.
            context.load_cert_chain(credentials.cert_file, credentials.key_file, lambda: b"")
    except (ssl.SSLError, OSError) as error:
        raise InvalidInputError(
            "ca_file must hold certificates, cert_file one of ours and key_file its key, all as PEM "
            f"({error})"
        ) from error
    return context


def require_paho() -> Any:
    """Return paho's package, or say where it is to be had."""
    try:
        import paho.mqtt.client
        import paho.mqtt.packettypes
        import paho.mqtt.properties
        import paho.mqtt.subscribeoptions
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "mqtt:// and mqtts:// need paho-mqtt: pip install 'baryflow[mqtt]'", name=error.name
        ) from error
    return paho.mqtt
