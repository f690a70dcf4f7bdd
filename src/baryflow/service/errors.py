"""How a service says no: a status, a sentence, and when to try again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.responses import Response


class RequestError(Exception):
    """A request that is not carried out.

    Parameters
    ----------
    status : int
        Of HTTP.
    words : str
        What was expected, what came, what to do.
    headers : dict of str → str, optional
    """

    def __init__(self, status: int, words: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(words)
        self.status, self.words, self.headers = status, words, dict(headers or {})

    def response(self) -> Response:
        """Return what is sent.

        Returns
        -------
        Response
        """
        return reply({"error": self.words}, self.status, self.headers)


def busy(words: str, seconds: int = 1) -> RequestError:
    """Return a refusal of what may be tried again soon.

    Parameters
    ----------
    words : str
    seconds : int

    Returns
    -------
    Refusal
    """
    return RequestError(429, words, {"Retry-After": str(seconds)})


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response of JSON.

    Parameters
    ----------
    content : object or bytes
        What JSON can say, or JSON.
    status : int
    headers : mapping, optional

    Returns
    -------
    Response
    """
    if not isinstance(content, bytes):
        content = to_json(content)
    return Response(content, status, dict(headers or {}), media_type="application/json")


def to_json(content: Any) -> bytes:
    """Return JSON in plain ASCII: also halves of characters, which requests may hold, can be said.

    What is not a number, or infinite, becomes null; arrays become lists.

    Parameters
    ----------
    content : object

    Returns
    -------
    bytes
    """
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":"), default=_plain).encode()
    except ValueError:
        return to_json(_finite(json.loads(json.dumps(content, default=_plain))))


def _plain(value: Any) -> Any:
    """Return an array or one of its numbers as JSON has it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot say {type(value).__name__} in JSON")


def _finite(value: Any) -> Any:
    """Put null for what is no number: JSON has no word for it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return value
