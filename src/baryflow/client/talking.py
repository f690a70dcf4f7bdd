"""The client: one request at a time, again until it is answered."""

from __future__ import annotations

import math
import os
import random
import time
import uuid
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import quote

import httpx
import numpy as np

from baryflow.exceptions import InvalidInputError, UnreachableError

#: Answers after which the same request may do better.
_PASSING = {408, 425, 429, 500, 502, 503, 504, 507}
#: Seconds between two attempts: the first and the longest.
_FIRST, _LONGEST = 0.1, 5.0


class Client:
    """Sends rows to a service.

    Every batch has an id, so that one that is sent again, because no answer came, counts once.

    Parameters
    ----------
    url : str
        Of the service: ``http://127.0.0.1:8000``.
    token : str, optional
        Without it ``BARYFLOW_TOKEN`` of the environment.
    timeout : float
        Seconds to wait for an answer.
    patience : float
        Seconds for which a request is tried again, if the service is busy or not there.
    transport : httpx.BaseTransport, optional
        For tests.

    Examples
    --------
    >>> from baryflow.client import Client
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     answer = client.send("pump-7", [[0.1, 2.0, None]])
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        patience: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInputError(f"expected the address of a service, http://host:port, got {url!r}")
        token = token or os.environ.get("BARYFLOW_TOKEN")
        headers = {} if not token else {"Authorization": f"Bearer {token}"}
        self.url, self._patience, self._random = url.rstrip("/"), patience, random.Random()  # noqa: S311
        # A redirect is not followed: the token is for this service only.
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=timeout, transport=transport, trust_env=False
        )

    def send(
        self,
        target: str,
        rows: Any,
        *,
        times: Sequence[str] | None = None,
        batch_id: str | None = None,
    ) -> dict[str, Any]:
        """Send rows of a target and return what the service says of them.

        Parameters
        ----------
        target : str
            Its name; one that the service does not know begins.
        rows : array of shape (n, d) or list of dict
            NaN or None where there is no value; dictionaries by column.
        times : list of str, optional
            One for each row.
        batch_id : str, optional
            Under which the batch counts once; without it one is made up.

        Returns
        -------
        dict
            ``predictions``, ``events``, ``rows``, ``first``, ``last`` and whether it was ``repeated``.

        Raises
        ------
        InvalidInputError
            If the service cannot use the rows.
        UnreachableError
            If it does not answer, or does not let us in.
        """
        plain = _plain(rows)
        if times is not None:
            if len(times) != len(plain):
                raise InvalidInputError(
                    f"expected {len(plain)} times, one for each row, got {len(times)}"
                )
            plain = [
                (row if isinstance(row, dict) else {"values": row}) | ({"time": time} if time else {})
                for row, time in zip(plain, times, strict=True)
            ]
        content = {"rows": plain, "batch_id": batch_id or uuid.uuid4().hex}
        found: dict[str, Any] = self._ask("POST", f"{_path(target)}/rows", content).json()
        return found

    def targets(self) -> list[dict[str, Any]]:
        """Return a line on each target.

        Returns
        -------
        list of dict
        """
        found: list[dict[str, Any]] = self._ask("GET", "/v1/targets").json()["targets"]
        return found

    def target(self, name: str) -> dict[str, Any]:
        """Return all that is said of a target.

        Parameters
        ----------
        name : str

        Returns
        -------
        dict

        Raises
        ------
        InvalidInputError
            If there is none of this name.
        """
        found: dict[str, Any] = self._ask("GET", _path(name)).json()
        return found

    def delete(self, name: str) -> None:
        """Forget a target.

        Parameters
        ----------
        name : str

        Raises
        ------
        InvalidInputError
            If there is none of this name.
        """
        self._ask("DELETE", _path(name))

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, path: str, content: Any = None) -> httpx.Response:
        end, pause = time.monotonic() + self._patience, _FIRST
        while True:
            wait = 0.0
            try:
                response = self._http.request(method, path, json=content)
            except httpx.TransportError as error:
                trouble = str(error) or type(error).__name__
            else:
                if response.status_code not in _PASSING:
                    return _checked(response, self.url)
                trouble, wait = _words(response), _seconds(response.headers.get("retry-after", ""))
            # Each waits another time, lest all come back at once.
            wait = max(wait, pause * self._random.uniform(0.5, 1.0))
            if time.monotonic() + wait > end:
                raise UnreachableError(f"{self.url} does not take it: {trouble}")
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST)


def _checked(response: httpx.Response, url: str) -> httpx.Response:
    if response.status_code in (401, 403, 421):
        raise UnreachableError(f"{url} does not let us in: {_words(response)}")
    if not response.is_success:
        raise InvalidInputError(f"{url} refuses: {_words(response)}")
    return response


def _words(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {response.status_code}"


def _seconds(text: str) -> float:
    return min(float(text), _LONGEST) if text.isdecimal() else 0.0


def _path(target: str) -> str:
    return f"/v1/targets/{quote(target, safe='')}"


def _plain(rows: Any) -> list[Any]:
    if isinstance(rows, list) and rows and isinstance(rows[0], dict):
        return [{name: _cell(value) for name, value in row.items()} for row in rows]
    try:
        values = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"rows must be numbers, all of one width: {error}") from error
    if values.ndim != 2 or np.isinf(values).any():
        raise InvalidInputError(
            f"expected rows of shape (n, d) without infinity, got shape {values.shape}: "
            "send [row] for one of them"
        )
    plain: list[Any] = values.tolist()
    if np.isnan(values).any():
        plain = [[None if math.isnan(cell) else cell for cell in row] for row in plain]
    return plain


def _cell(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value
