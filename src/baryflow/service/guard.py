"""Who may come in: a token where there is one, and no web page of somebody else where there is none."""

from __future__ import annotations

import hmac
import ipaddress
import time
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from baryflow.exceptions import InvalidInputError
from baryflow.service.metrics import Metrics
from baryflow.service.refusals import Refusal

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
    """Lets requests in, times them, and adds headers to what is answered.

    Parameters
    ----------
    app : ASGI application
    token : str or None
    metrics : Metrics
    """

    def __init__(self, app: ASGIApp, token: str | None, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
                if scope["path"].startswith("/v1"):
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        try:
            try:
                self._check(scope)
            except Refusal as refusal:
                await refusal.response()(scope, receive, sending)
            else:
                await self._app(scope, receive, sending)
        finally:
            route = getattr(scope.get("endpoint"), "__name__", "other").strip("_")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.count(route, method, status, time.perf_counter() - began)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        path = scope["path"]
        if self._token is None:
            _check_home(headers)
        elif path.startswith("/v1") or path == "/metrics":
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
                raise Refusal(
                    401,
                    "send the service's token in the header 'Authorization: Bearer …'",
                    {"WWW-Authenticate": "Bearer", "Connection": "close"},
                )


_METHODS = {"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"}


def _check_home(headers: dict[bytes, bytes]) -> None:
    """Refuse what a browser sends for others: by a name that leads here, or from a page of theirs."""
    host = headers.get(b"host", b"").decode("latin-1")
    if not _is_home(_host(f"//{host}")):
        words = "without a token the service is reached by localhost or an address, not by such a name"
        raise Refusal(421, words, {"Connection": "close"})
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and origin.partition("://")[2] != host:
        raise Refusal(403, "pages from elsewhere are not let in", {"Connection": "close"})


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
