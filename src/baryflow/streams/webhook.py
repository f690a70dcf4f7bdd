"""Records to a webhook, signed as Standard Webhooks defines it (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urlsplit

from baryflow.exceptions import InvalidInputError, RefusedError, UnreachableError
from baryflow.streams.sinks import encode_record
from baryflow.streams.urls import is_loopback

#: Statuses with which a receiver refuses what a message holds: it would refuse it again.
_REFUSED = {400, 413, 415, 422}
#: Seconds to wait for a receiver.
_TIMEOUT = 10.0
#: How a secret in Base64 begins, and the fewest bytes of a secret.
_PREFIX, _SHORTEST = "whsec_", 16


class Webhook:
    """Sends each record as the JSON body of a POST request, once.

    The headers ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature`` let the receiver tell
    repeated and forged messages: the signature is ``v1,`` and the Base64 of HMAC-SHA256 of
    ``id.timestamp.body``. Redirects are not followed.

    Parameters
    ----------
    url : str
        https://, or http:// on this computer.
    secret : str
        Shared with the receiver; in Base64 after ``whsec_``, or any text of 16 characters or more.
    timeout : float, optional
        Seconds to connect, and then for the request and its whole answer.
    """

    def __init__(self, url: str, secret: str, timeout: float = _TIMEOUT) -> None:
        self._url, self._secret, self._timeout = _check_url(url), _read_secret(secret), timeout
        self.name = f"{self._url.scheme}://{self._url.hostname}{self._url.path}"  # no password, no token

    def send(self, name: str, record: dict[str, Any]) -> None:
        """Send a record.

        Parameters
        ----------
        name : str
            Identifies it: the same if it is sent again.
        record : dict

        Raises
        ------
        RefusedError
            If the receiver would refuse it again.
        UnreachableError
            If it may be sent again later.
        """
        body, stamp, url = encode_record(record).rstrip("\n").encode(), str(int(time.time())), self._url
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "baryflow",
            "webhook-id": name,
            "webhook-timestamp": stamp,
            "webhook-signature": sign(self._secret, name, stamp, body),
        }
        host = url.hostname or ""
        connection: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
        if url.scheme == "https":
            context = ssl.create_default_context()
            connection = partial(http.client.HTTPSConnection, context=context)
        one = connection(host, url.port, timeout=self._timeout)
        # The timeout of a socket begins again with every byte that arrives.
        limit = threading.Timer(self._timeout, _disconnect, [one])
        limit.daemon = True
        try:
            one.connect()
            limit.start()
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            one.request("POST", path, body, headers)
            status = one.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"{self.name}: {str(error) or type(error).__name__}") from error
        finally:
            limit.cancel()
            one.close()
        if status in _REFUSED:
            raise RefusedError(f"{self.name} refuses the message with status {status}", status)
        if not 200 <= status < 300:
            raise UnreachableError(f"{self.name} answers with status {status}")

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Do nothing: a request has a time limit."""

    def close(self) -> None:
        """Do nothing: each message has its own connection."""


def _disconnect(connection: http.client.HTTPConnection) -> None:
    """End a request that takes too long."""
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def sign(secret: bytes, name: str, stamp: str, body: bytes) -> str:
    """Return the signature of a message."""
    content = f"{name}.{stamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()


def _check_url(text: str) -> SplitResult:
    for character in text:
        if not "!" <= character <= "~":
            raise InvalidInputError(
                f"the address of the webhook has {character!a}, which no request can hold: write it in "
                "percent-encoding, or a host in Punycode"
            )
    try:
        url = urlsplit(text)
        host, _ = url.hostname or "", url.port
    except ValueError as error:
        raise InvalidInputError(f"the address of the webhook cannot be read: {error}") from error
    if url.scheme not in ("http", "https") or not host:
        raise InvalidInputError(f"expected a webhook that begins with https://, got {text[:40]!r}")
    if url.username is not None:
        raise InvalidInputError("leave the password out of the webhook's address: messages are signed")
    if url.scheme == "http" and not is_loopback(host):
        raise InvalidInputError(
            f"expected https:// for a webhook on another computer, got http://{host}"
        )
    return url


def _read_secret(text: str) -> bytes:
    secret = text.strip().encode()
    if text.strip().startswith(_PREFIX):
        try:
            secret = base64.b64decode(text.strip().removeprefix(_PREFIX), validate=True)
        except binascii.Error as error:
            raise InvalidInputError(f"the secret after {_PREFIX} is not valid Base64") from error
    if len(secret) < _SHORTEST:
        raise InvalidInputError(
            f"the secret of the webhook has {len(secret)} bytes: use at least {_SHORTEST}, for instance "
            "from 'openssl rand -base64 32'"
        )
    return secret
