"""Access control: bearer tokens, or without one no requests from other sites."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from baryflow.exceptions import InvalidInputError
from baryflow.service.errors import RequestError
from baryflow.service.metrics import Metrics
from baryflow.streams.urls import is_loopback

#: The content security policy: a browser loads nothing from other hosts.
POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_CLOSE = {"Connection": "close"}
#: Methods that are counted by name in the metrics.
_METHODS = {"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"}
#: Methods that a read-only token allows.
_READ_METHODS = {"GET", "HEAD"}
#: The shortest token, in characters.
_SHORTEST = 16


class AuthMiddleware:
    """Check each request, time it, and add security headers to its response.

    With a token, every request needs it unless the route that will handle the request is listed in
    ``open_routes``. The routes themselves decide which one that is, so a prefix from ``root_path`` or a
    ``Mount`` changes nothing, and unknown paths need the token, too. A request with the read-only token
    may use GET and HEAD; ``request.state.read_only`` says whether it has that token.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        read_token: str | None,
        metrics: Metrics,
        open_routes: Sequence[BaseRoute] = (),
    ) -> None:
        self._app, self._metrics, self._open_routes = app, metrics, tuple(open_routes)
        self._token = None if token is None else token.encode()
        self._read_token = None if read_token is None else read_token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            await self._handle(scope, receive, send)
        elif scope["type"] == "websocket" and self._check(scope, is_open=False) is not None:
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status, is_open = time.perf_counter(), 500, self._is_open(scope)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
                if not is_open and all(
                    name.lower() != b"cache-control" for name, _ in message["headers"]
                ):
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        try:
            error = self._check(scope, is_open)
            if error is not None:
                await error.response()(scope, receive, send_with_headers)
            else:
                await self._app(scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("endpoint"), "__name__", "other").strip("_")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(route, method, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - began)

    def _is_open(self, scope: Scope) -> bool:
        """Return whether the route that will handle the request needs no token."""
        for route in scope["app"].routes:  # in the order in which the router tries them
            if route.matches(scope)[0] is Match.FULL:
                return any(route is one for one in self._open_routes)
        return False

    def _check(self, scope: Scope, is_open: bool) -> RequestError | None:
        """Return the error for a request that is refused; None if it is allowed."""
        headers = dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # Proxies and servers disagree on which one counts: the body could hide a second request.
            return RequestError(
                400,
                "the request has both Content-Length and Transfer-Encoding: send one of them",
                _CLOSE,
            )
        if self._token is None:
            return _check_same_site(headers)
        return None if is_open else self._check_token(scope, headers)

    def _check_token(self, scope: Scope, headers: dict[bytes, bytes]) -> RequestError | None:
        scheme, _, credentials = headers.get(b"authorization", b"").partition(b" ")
        given = credentials.strip() if scheme.lower() == b"bearer" else b""
        # Both comparisons always run, in constant time: how long they take reveals nothing. An empty
        # token matches nothing.
        is_full = hmac.compare_digest(given, self._token or b"") and bool(given)
        is_reader = hmac.compare_digest(given, self._read_token or b"") and bool(given)
        scope.setdefault("state", {})["read_only"] = not is_full
        reads = scope["type"] == "http" and scope["method"] in _READ_METHODS
        if is_full or (is_reader and reads):
            return None
        if is_reader:
            return RequestError(
                403,
                "this token is read-only: use the full token to post rows or change anything",
                _CLOSE,
            )
        return RequestError(
            401,
            "missing or wrong token: send the header 'Authorization: Bearer <token>'",
            {"WWW-Authenticate": "Bearer", **_CLOSE},
        )


def _check_same_site(headers: dict[bytes, bytes]) -> RequestError | None:
    """Refuse requests that a browser sends to a foreign host name, or from a page of another origin."""
    host = headers.get(b"host", b"").decode("latin-1")
    if not _is_local_name(_hostname(f"//{host}")):
        return RequestError(
            421,
            "without a token, the Host header must be localhost, another name without a dot, or an IP "
            "address",
            _CLOSE,
        )
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and origin.partition("://")[2] != host:
        return RequestError(403, "cross-origin request refused", _CLOSE)
    return None


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_local_name(name: str) -> bool:
    if name and "." not in name and ":" not in name:
        return True  # a name without a dot cannot be registered
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_exposure(
    host: str, token: str | None, read_token: str | None = None, *, encrypted: bool = False
) -> None:
    """Raise InvalidInputError for short tokens, and for those that others could do without or read."""
    for name, one in (("token", token), ("read-only token", read_token)):
        if one is not None and len(one) < _SHORTEST:
            raise InvalidInputError(f"the {name} has {len(one)} characters: use {_SHORTEST} or more")
    is_local = is_loopback(host.strip("[]"))
    if token is None and not is_local:
        raise InvalidInputError(
            f"other computers can reach {host}: set a token (--token-file or BARYFLOW_TOKEN), or listen "
            "at 127.0.0.1"
        )
    if not encrypted and not is_local:
        raise InvalidInputError(
            f"other computers can reach {host}, and the token would be sent in plain text: use TLS "
            "(--tls-cert), or --plaintext in a trusted network or behind a proxy with TLS"
        )


def check_read_token(token: str | None, read_token: str | None) -> None:
    """Raise InvalidInputError if a read-only token would restrict nothing."""
    if read_token is not None and token is None:
        raise InvalidInputError(
            "a read-only token needs a full token beside it (--token-file or BARYFLOW_TOKEN): without "
            "one, every client may change everything"
        )
    if read_token is not None and read_token == token:
        raise InvalidInputError("the read-only token equals the full token: use two different ones")
