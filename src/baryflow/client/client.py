"""The client: one request at a time, retried with backoff until it is answered."""

from __future__ import annotations

import math
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Self
from urllib.parse import quote

import httpx
import numpy as np

from baryflow.exceptions import InvalidInputError, RefusedError, StoppedError, UnreachableError

#: Answers after which the same request may do better.
_PASSING = {408, 425, 429, 500, 502, 503, 504, 507}
#: Seconds between two attempts: the first and the longest.
_FIRST, _LONGEST = 0.1, 5.0
#: Seconds between two looks whether to stop, and for which a request may still be answered then.
_LOOK, _GRACE = 0.1, 2.0


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
    stop : callable, optional
        Asked while a request waits for its answer or for its next attempt; once it returns True, a
        request that is not answered soon raises :class:`~baryflow.exceptions.StoppedError`.
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
        stop: Callable[[], bool] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInputError(f"expected the address of a service, http://host:port, got {url!r}")
        token = token or os.environ.get("BARYFLOW_TOKEN")
        headers = {} if not token else {"Authorization": f"Bearer {token}"}
        self.url, self._patience, self._random = url.rstrip("/"), patience, random.Random()  # noqa: S311
        self._stop = stop
        # A redirect is not followed: the token is for this service only.
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=timeout, transport=transport, trust_env=False
        )

    def send(
        self,
        target: str,
        rows: Any,
        *,
        columns: Sequence[str] | None = None,
        times: Sequence[str] | None = None,
        batch_id: str | None = None,
    ) -> dict[str, Any]:
        """Send rows of a target and return the service's answer.

        Parameters
        ----------
        target : str
            Its name; the service starts a new target if it does not know the name.
        rows : array or frame of shape (n, d), or list of dict
            NaN or None where there is no value. Columns of a frame (pandas or polars) are matched with
            those of the model by name, in any order; dictionaries are by column.
        columns : list of str, optional
            Names of the columns of an array, to be matched likewise; without them its columns are taken
            to be in the order of the model.
        times : list of str, optional
            One for each row.
        batch_id : str, optional
            A batch that is sent again under the same id counts once; without it one is made up.

        Returns
        -------
        dict
            ``predictions``, ``events``, ``rows``, ``first``, ``last``, how many rows were
            ``quarantined``, and whether it was ``repeated``.

        Raises
        ------
        InvalidInputError
            If the columns are not those of the model, or the service refuses the rows: it is then a
            :class:`~baryflow.exceptions.RefusedError`.
        UnreachableError
            If it does not answer, or does not let us in.
        """
        if hasattr(rows, "collect") and not hasattr(rows, "to_numpy"):
            rows = rows.collect()  # a lazy frame
        columns = _names(rows) if columns is None else list(columns)
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
        if columns is not None:
            content["columns"] = columns
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
                response = self._request(method, path, content)
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
            self._pause(wait)
            pause = min(2 * pause, _LONGEST)

    def _request(self, method: str, path: str, content: Any) -> httpx.Response:
        """Return the answer to one attempt, unless it does not come soon after we are to stop."""
        if self._stop is None:
            return self._http.request(method, path, json=content)
        found: list[httpx.Response | BaseException] = []

        def request() -> None:
            try:
                found.append(self._http.request(method, path, json=content))
            except BaseException as error:  # raised by the caller's thread
                found.append(error)

        # In a thread: a signal does not interrupt a socket that waits for an answer.
        attempt = threading.Thread(target=request, name="baryflow-request", daemon=True)
        attempt.start()
        patience = _GRACE
        while attempt.is_alive():
            attempt.join(_LOOK)
            if self._stop():
                patience -= _LOOK
                if patience < 0.0 and attempt.is_alive():
                    raise StoppedError(f"{self.url} has not answered: stopped")
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def _pause(self, seconds: float) -> None:
        if self._stop is None:
            time.sleep(seconds)
            return
        end = time.monotonic() + seconds
        while True:
            if self._stop():
                raise StoppedError(f"{self.url} does not take it: stopped")
            left = end - time.monotonic()
            if left <= 0.0:
                return
            time.sleep(min(left, _LOOK))


def _checked(response: httpx.Response, url: str) -> httpx.Response:
    if response.status_code in (401, 403, 421):
        raise UnreachableError(f"{url} does not let us in: {_words(response)}")
    if not response.is_success:
        raise RefusedError(f"{url} refuses: {_words(response)}", response.status_code)
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


def _names(rows: Any) -> list[str] | None:
    """Return the names of a frame's columns; None for an array, or if columns are only numbered."""
    names = getattr(rows, "columns", None)
    found = None if names is None else list(names)
    return found if found is not None and all(isinstance(name, str) for name in found) else None


def _plain(rows: Any) -> list[Any]:
    if isinstance(rows, list) and rows and isinstance(rows[0], dict):
        return [{name: _cell(value) for name, value in row.items()} for row in rows]
    try:
        if hasattr(rows, "iloc"):  # pandas: only this way its NA becomes NaN
            values = rows.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
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
