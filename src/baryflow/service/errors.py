"""Error responses and JSON encoding."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from starlette.responses import Response

_log = logging.getLogger("baryflow.service")
#: Operating system errors that mean the state cannot be written.
_STORAGE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}


class RequestError(Exception):
    """A request that is refused: the HTTP status, the message and headers of the response."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})

    def response(self) -> Response:
        """Return the response to send."""
        return reply({"error": self.message}, self.status, self.headers)


def busy(message: str, seconds: int = 1) -> RequestError:
    """Return the error for a request that may succeed if it is sent again after some seconds."""
    return RequestError(429, message, {"Retry-After": str(seconds)})


def storage_error(error: OSError) -> RequestError | None:
    """Return the refusal if the state cannot be written; None if the error means something else."""
    if error.errno not in _STORAGE_ERRORS:
        return None
    _log.error("cannot write the state: %s", error)
    return RequestError(
        507,
        f"cannot write the state ({error.strerror}): nothing was changed; free disk space and retry",
        {"Retry-After": "10"},
    )


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response. Bytes are sent unchanged: they are JSON already."""
    if not isinstance(content, bytes):
        content = to_json(content)
    return Response(content, status, dict(headers or {}), media_type="application/json")


def to_json(content: Any) -> bytes:
    """Encode as JSON. Arrays become lists; NaN and infinity become null."""
    try:
        return msgspec.json.encode(content, enc_hook=_to_builtin)
    except UnicodeEncodeError:
        # A lone surrogate, for instance in a source named after an undecodable file name. UTF-8 cannot
        # encode it, but a JSON escape can.
        text = json.dumps(content, default=_to_builtin)
        return json.dumps(json.loads(text, parse_constant=lambda _: None)).encode()


def _to_builtin(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot encode {type(value).__name__} as JSON")
