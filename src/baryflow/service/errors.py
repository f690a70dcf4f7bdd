"""Errors: requests that are refused, and the responses that say why."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Mapping

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
        content = json.dumps({"error": self.message})
        return Response(content, self.status, self.headers, media_type="application/json")


def busy(message: str, seconds: int = 1) -> RequestError:
    """Return the error for a request that may succeed if it is sent again after some seconds."""
    return RequestError(429, message, {"Retry-After": str(seconds)})


def no_target(name: str) -> RequestError:
    """Return the error for a target that does not exist."""
    return RequestError(404, f"no target {name!r}: post rows to create it")


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
