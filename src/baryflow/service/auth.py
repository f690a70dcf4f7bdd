"""Access control: a bearer token, or without one no requests from other sites."""

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

#: What a browser may load: nothing from anywhere else.
POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class Guard:
    """Check each request, time it, and add headers to the response.

    With a token, every request needs it unless the route that will handle it is listed as open. The
    routes themselves decide which one that is, so a prefix from ``root_path`` or a ``Mount`` changes
    nothing, and unknown paths need the token, too.

    Parameters
    ----------
    app : ASGI application
    token : str or None
    metrics : Metrics
    open_routes : sequence of routes
        Routes that need no token.
    """

    def __init__(
        self, app: ASGIApp, token: str | None, metrics: Metrics, open_routes: Sequence[BaseRoute] = ()
    ) -> None:
        self._app, self._metrics, self._open_routes = app, metrics, tuple(open_routes)
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            await self._handle(scope, receive, send)
        elif scope["type"] == "websocket" and self._refusal(scope, is_open=False) is not None:
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status, is_open = time.perf_counter(), 500, self._is_open(scope)

        async def sending(message: Message) -> None:
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
            refusal = self._refusal(scope, is_open)
            if refusal is not None:
                await refusal.response()(scope, receive, sending)
            else:
                await self._app(scope, receive, sending)
        finally:
            route = getattr(scope.get("endpoint"), "__name__", "other").strip("_")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.count(route, method, status, time.perf_counter() - began)

    def _is_open(self, scope: Scope) -> bool:
        """Return whether the route that will handle the request needs no token."""
        for route in scope["app"].routes:  # in the order in which the router tries them
            if route.matches(scope)[0] is Match.FULL:
                return any(route is one for one in self._open_routes)
        return False

    def _refusal(self, scope: Scope, is_open: bool) -> RequestError | None:
        """Return why a request is refused; None if it is not."""
        headers = dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # Proxies and servers disagree on which one counts: the body could hide a second request.
            return RequestError(
                400,
                "the request has both Content-Length and Transfer-Encoding: send one of them",
                {"Connection": "close"},
            )
        if self._token is None:
            return _cross_site_refusal(headers)
        if is_open:
            return None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        return RequestError(
            401,
            "missing or wrong token: send the header 'Authorization: Bearer <token>'",
            {"WWW-Authenticate": "Bearer", "Connection": "close"},
        )


_METHODS = {"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"}


def _cross_site_refusal(headers: dict[bytes, bytes]) -> RequestError | None:
    """Refuse what a browser sends for another site: by a name of theirs, or from their page."""
    host = headers.get(b"host", b"").decode("latin-1")
    if not _is_home(_host(f"//{host}")):
        words = (
            "without a token the service answers only to localhost or an IP address in the Host header"
        )
        return RequestError(421, words, {"Connection": "close"})
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and origin.partition("://")[2] != host:
        return RequestError(403, "cross-origin request refused", {"Connection": "close"})
    return None


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_home(name: str) -> bool:
    if name and "." not in name and ":" not in name:
        return True  # nobody can register a name without a dot
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Tell whether an address is heard by this machine only.

    Parameters
    ----------
    host : str

    Returns
    -------
    bool
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_reach(host: str, token: str | None) -> None:
    """Refuse to be heard by others without a token.

    Parameters
    ----------
    host : str
    token : str or None

    Raises
    ------
    InvalidInputError
        If others could come in.
    """
    if token is not None and len(token) < 16:
        raise InvalidInputError(f"the token has {len(token)} characters: use 16 or more")
    if token is None and not is_loopback(host):
        raise InvalidInputError(
            f"{host} can be reached from elsewhere: give a token (--token-file or BARYFLOW_TOKEN), or "
            "stay at 127.0.0.1"
        )
