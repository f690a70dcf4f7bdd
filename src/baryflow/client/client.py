"""The HTTP client of the service: one request at a time, retried with backoff until it is answered."""

from __future__ import annotations

import io
import json
import math
import os
import random
import re
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, Self
from urllib.parse import quote

import httpx
import numpy as np

from baryflow.exceptions import (
    BaryflowError,
    InvalidInputError,
    RefusedError,
    UnreachableError,
)
from baryflow.streams.backoff import SLICE, Backoff, RetryPolicy

#: Statuses after which the same request may succeed.
_RETRIED = {408, 425, 429, 500, 502, 503, 504, 507}
#: Statuses with which the service refuses rows, always with a reason; proxies have none.
_ROWS = {400, 422}
#: How to wait for the service, and for how long it may still answer once the process must stop.
_POLICY = RetryPolicy(first=0.1, longest=5.0, grace=2.0)
#: Ids that a header can hold; others are refused.
_HEADER = re.compile(r"[!-~]{1,128}")


class Client:
    """Send rows to a service.

    Every batch has an id: one that is sent again because its answer was lost counts once.

    Parameters
    ----------
    url : str
        Address of the service, for instance ``http://127.0.0.1:8000``.
    token : str, optional
        Bearer token; defaults to the environment variable ``BARYFLOW_TOKEN``.
    ca : path, optional
        PEM file with the certificates to trust for an ``https://`` address, instead of the public ones;
        defaults to the environment variable ``BARYFLOW_CA``.
    timeout : float
        Seconds to wait for an answer.
    patience : float
        Seconds for which a request is retried while the service is busy or unreachable.
    stop : callable, optional
        Called while a request waits for its answer or its next attempt. Once it returns True, a request
        that is not answered soon raises :class:`~baryflow.exceptions.StoppedError`.
    transport : httpx.BaseTransport, optional
        Replaces the network in tests.

    Raises
    ------
    InvalidInputError
        If the address is not that of a service, or the CA file cannot be read.

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
        ca: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
        patience: float = 60.0,
        stop: Callable[[], bool] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInputError(f"expected the address of a service, http://host:port, got {url!r}")
        token = (token or os.environ.get("BARYFLOW_TOKEN") or "").strip()
        if not (token.isascii() and token.isprintable()):  # errors of httpx would show it
            raise InvalidInputError("a token must be ASCII without line breaks: it is sent in a header")
        headers = {} if not token else {"Authorization": f"Bearer {token}"}
        self.url, self._patience, self._random = url.rstrip("/"), patience, random.Random()  # noqa: S311
        self._stop = stop
        # Redirects are not followed: the token is for this service only.
        verify = _trusted(ca or os.environ.get("BARYFLOW_CA") or None)
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=timeout,
                transport=transport,
                trust_env=False,
                verify=verify,
            )
        except httpx.InvalidURL:  # its message may hold a piece of a password
            raise InvalidInputError(
                "expected the address of a service, http://host:port, got one that cannot be parsed"
            ) from None

    def send(
        self,
        target: str,
        rows: Any,
        *,
        columns: Sequence[str] | None = None,
        times: Sequence[str] | None = None,
        batch_id: str | None = None,
    ) -> dict[str, Any]:
        """Send rows of a target and return the answer of the service.

        Parameters
        ----------
        target : str
            Name of the target; the service creates a target for a new name.
        rows : array or frame of shape (n, d), or list of dict
            NaN or None marks a missing value. Columns of a frame (pandas or polars) are matched with
            those of the model by name, in any order; dictionaries map columns to values.
        columns : list of str, optional
            Column names of an array, matched in the same way; without them the columns must be in the
            order of the model.
        times : list of str, optional
            Time of each row.
        batch_id : str, optional
            A batch that is sent again under the same id counts once; by default a random id. Other rows
            under an id that was used before are refused.

        Returns
        -------
        dict
            ``predictions``, ``events``, ``rows``, ``first``, ``last``, the number of rows
            ``quarantined``, and whether the batch was ``repeated``.

        Raises
        ------
        InvalidInputError
            If the columns differ from those of the model, or the service refuses the rows; then it is a
            :class:`~baryflow.exceptions.RefusedError`.
        UnreachableError
            If the service does not answer or denies access.
        """
        if hasattr(rows, "collect") and not hasattr(rows, "to_numpy"):
            rows = rows.collect()  # a lazy frame
        columns = _column_names(rows) if columns is None else list(columns)
        _check_frame(rows)
        batch_id = batch_id or uuid.uuid4().hex
        path = f"{_path(target)}/rows"
        if columns is None and times is None and (packed := _pack(rows)) and _HEADER.fullmatch(batch_id):
            headers = {"Content-Type": "application/x-npy", "Idempotency-Key": batch_id}
            return self._request("POST", path, packed, headers, field="repeated")
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
        content = {"rows": plain, "batch_id": batch_id}
        if columns is not None:
            content["columns"] = columns
        return self._post(path, content)

    def label(
        self,
        target: str,
        labels: Any,
        *,
        positions: Sequence[int] | None = None,
        times: Sequence[str] | None = None,
        rows: Any = None,
        certify: bool = False,
        request_id: str | None = None,
    ) -> dict[str, Any]:
        """Send labels of rows of a target, so that its model learns from them.

        Each row is given by its position in the predictions, by its time, or by the row itself, which
        serves if the service does not remember the row any more.

        Parameters
        ----------
        target : str
        labels : list of str or numbers
            A name that is not among the classes becomes a class of this target.
        positions : list of int, optional
        times : list of str, optional
        rows : array of shape (n, d), optional
            With the columns in the order of the model; features if the rows are raw signals.
        certify : bool, default=False
            The rows were chosen at random, whatever was predicted of them: let the labels count for the
            certificate.
        request_id : str, optional
            Labels that are sent again under the same id count once; by default a random id. Other labels
            under an id that was used before are refused.

        Returns
        -------
        dict
            How many labels are ``learned`` and ``pending``, those ``rejected`` with the reasons, the
            ``classes``, the ``certificate``, and whether the request was ``repeated``.

        Raises
        ------
        InvalidInputError
            If the target does not exist, no rows are given, or the service refuses the labels.
        UnreachableError
            If the service does not answer or denies access.
        """
        found: list[dict[str, Any]] = [{"label": _cell(label)} for label in labels]
        given = {
            "position": None if positions is None else [int(position) for position in positions],
            "time": None if times is None else list(times),
            "values": None if rows is None else _plain(rows),
        }
        columns = {name: column for name, column in given.items() if column is not None}
        if not columns:
            raise InvalidInputError("pass positions, times or rows: labels alone say nothing")
        for name, column in columns.items():
            if len(column) != len(found):
                raise InvalidInputError(
                    f"expected one {name} for each of {len(found)} labels, got {len(column)}"
                )
            for label, value in zip(found, column, strict=True):
                label[name] = value
        content = {"labels": found, "certify": certify, "id": request_id or uuid.uuid4().hex}
        return self._post(f"{_path(target)}/labels", content)

    def baseline(
        self,
        target: str,
        label: Any = None,
        *,
        rows: Any = None,
        positions: Sequence[int] | None = None,
        since: str | None = None,
        until: str | None = None,
        request_id: str | None = None,
    ) -> dict[str, Any]:
        """Name rows of a target that are known to be of one class: they show how it is calibrated.

        Pass the rows, or their positions, or the times from which until which all rows are meant. Rows
        that the service does not remember any more have to be passed themselves.

        Parameters
        ----------
        target : str
        label : str or number, optional
            A class of the sources; by default the class that ``fit --normal-class`` has named.
        rows : array of shape (n, d), optional
            With the columns in the order of the model; features if the rows are raw signals.
        positions : list of int, optional
        since, until : str, optional
            Both included.
        request_id : str, optional
            As in :meth:`label`.

        Returns
        -------
        dict
            As :meth:`label` does.

        Raises
        ------
        InvalidInputError
            If the target does not exist, or the service refuses the baseline.
        UnreachableError
            If the service does not answer or denies access.
        """
        content = {
            "label": None if label is None else _cell(label),
            "rows": None if rows is None else _plain(rows),
            "positions": None if positions is None else [int(position) for position in positions],
            "from": since,
            "until": until,
            "id": request_id or uuid.uuid4().hex,
        }
        return self._post(f"{_path(target)}/baseline", content)

    def query(self, target: str, n: int = 10) -> list[dict[str, Any]]:
        """Return the recent rows of a target that are most worth a label, the most worth first.

        Parameters
        ----------
        target : str
        n : int, default=10
            At most.

        Returns
        -------
        list of dict
            ``position``, ``time``, ``label``, ``probability``, ``novelty`` and ``values``.

        Raises
        ------
        InvalidInputError
            If the target does not exist, or `n` is not between 1 and 100.
        """
        return self._list(f"{_path(target)}/query?n={int(n)}", "rows")

    def alarms(self, target: str) -> list[dict[str, Any]]:
        """Return the alarms of a target, the most urgent first.

        Parameters
        ----------
        target : str

        Returns
        -------
        list of dict
            ``alarm`` (the class), ``number``, ``state``, ``priority``, ``evidence`` and more.

        Raises
        ------
        InvalidInputError
            If the target does not exist.
        """
        return self._list(f"{_path(target)}/alarms", "alarms")

    def command(
        self,
        target: str,
        action: str,
        alarm: str,
        *,
        number: int | None = None,
        duration: str | int | None = None,
        by: str = "",
        comment: str = "",
    ) -> dict[str, Any]:
        """Acknowledge, shelve, unshelve, suppress or unsuppress the alarm of a class.

        Parameters
        ----------
        target : str
        action : {"acknowledge", "shelve", "unshelve", "suppress", "unsuppress"}
        alarm : str
            The class; ``"*"`` acknowledges all alarms.
        number : int, optional
            Of the alarm; if the class has a later one, the command is refused.
        duration : str or int, optional
            For how long to shelve: ``"30min"`` by the times of rows, or a number of rows.
        by, comment : str, optional
            Who wants it, and why.

        Returns
        -------
        dict
            ``events``, and the ``alarms`` afterwards.

        Raises
        ------
        InvalidInputError
            If the target does not exist, or the command cannot be carried out.
        """
        content = {"alarm": alarm, "number": number, "for": duration, "by": by, "comment": comment}
        path = f"{_path(target)}/alarms/{quote(action, safe='')}"
        return self._post(path, content, "alarms")

    def targets(self) -> list[dict[str, Any]]:
        """Return a summary of each target.

        Returns
        -------
        list of dict
        """
        return self._list("/v1/targets", "targets")

    def target(self, name: str) -> dict[str, Any]:
        """Return the detailed description of a target.

        Parameters
        ----------
        name : str

        Returns
        -------
        dict

        Raises
        ------
        InvalidInputError
            If the target does not exist.
        """
        return self._request("GET", _path(name), field="rows_seen")

    def delete(self, name: str) -> None:
        """Delete a target.

        Parameters
        ----------
        name : str

        Raises
        ------
        InvalidInputError
            If the target does not exist.
        """
        self._request("DELETE", _path(name))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _list(self, path: str, field: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._request("GET", path, field=field)[field]
        return found

    def _post(self, path: str, content: dict[str, Any], field: str = "repeated") -> dict[str, Any]:
        body = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
        return self._request("POST", path, body, {"Content-Type": "application/json"}, field=field)

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        field: str | None = None,
    ) -> dict[str, Any]:
        """Return the successful answer, which has a certain field; retry until the patience ends.

        An answer of anything but the service, for instance of a proxy, is retried like none at all.
        """
        end, backoff = time.monotonic() + self._patience, Backoff(self.url, _POLICY, self._stop)
        while True:
            wait = 0.0
            try:
                response = self._attempt(backoff, method, path, body, headers)
            except httpx.RequestError as error:  # also an answer that cannot be decoded
                problem = str(error) or type(error).__name__
            else:
                answer = _json_object(response)
                if response.is_success and (field is None or field in answer):
                    return answer
                problem = _error(response)
                if response.is_success or (response.status_code in _ROWS and "error" not in answer):
                    problem = f"this is not the answer of a baryflow service ({problem})"
                elif response.status_code not in _RETRIED:
                    raise _refusal(response, self.url)
                wait = _seconds(response.headers.get("retry-after", ""))
            # Random, so that clients do not all come back at the same time.
            wait = max(wait, backoff.next_pause() * self._random.uniform(0.5, 1.0))
            if time.monotonic() + wait > end:
                raise UnreachableError(f"gave up on {self.url} after {self._patience:g} s: {problem}")
            backoff.sleep(wait)

    def _attempt(
        self,
        backoff: Backoff,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str] | None,
    ) -> httpx.Response:
        """Send a request once. Raise StoppedError if no answer arrives soon after ``stop`` is true."""
        if self._stop is None:
            return self._http.request(method, path, content=body, headers=headers)
        found: list[httpx.Response | BaseException] = []

        def request() -> None:
            try:
                found.append(self._http.request(method, path, content=body, headers=headers))
            except BaseException as error:  # raised by the caller's thread
                found.append(error)

        # In a thread: a signal does not interrupt a socket that waits for an answer.
        attempt = threading.Thread(target=request, name="baryflow-request", daemon=True)
        try:
            attempt.start()
        except RuntimeError as error:  # too many threads
            raise UnreachableError(f"cannot send to {self.url}: {error}") from error
        attempt.join(SLICE)
        while attempt.is_alive():
            backoff.check()
            attempt.join(SLICE)
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]


def _trusted(ca: str | os.PathLike[str] | None) -> ssl.SSLContext | bool:
    """Return what httpx verifies certificates with: a CA file, or the public certificates."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # ssl.SSLError, too
        raise InvalidInputError(f"cannot read certificates from {ca}: {error}") from error


def _refusal(response: httpx.Response, url: str) -> BaryflowError:
    if response.status_code in (401, 403, 421):
        return UnreachableError(f"{url} denies access: {_error(response)}")
    message = f"{url} refuses the request: {_error(response)}"
    return RefusedError(message, response.status_code, response.headers.get("Idempotency-Key"))


def _json_object(response: httpx.Response) -> dict[str, Any]:
    """Return the content of a response; an empty one if it is not a JSON object."""
    try:
        found = response.json()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _error(response: httpx.Response) -> str:
    return str(_json_object(response).get("error", f"status {response.status_code}"))


def _seconds(text: str) -> float:
    return min(float(text), _POLICY.longest) if text.isdecimal() else 0.0


def _path(target: str) -> str:
    return f"/v1/targets/{quote(target, safe='')}"


def _column_names(rows: Any) -> list[str] | None:
    """Return the column names of a frame; None for arrays and frames whose columns are not named."""
    names = getattr(rows, "columns", None)
    found = None if names is None else list(names)
    return found if found is not None and all(isinstance(name, str) for name in found) else None


def _check_frame(rows: Any) -> None:
    """Name the column of a frame that does not hold numbers."""
    names = _column_names(rows)
    for name in names if names and len(set(names)) == len(names) else ():
        column = np.asarray(rows[name])
        values = column.tolist() if column.dtype.kind in "OU" else []
        # Times with a time zone are objects.
        found = next((one for one in values if isinstance(one, str | date)), None)
        if column.dtype.kind in "mM" or isinstance(found, date):
            raise InvalidInputError(
                f"column {name!r} holds times, not numbers: drop it, and pass it as times="
            )
        if found is not None:
            raise InvalidInputError(
                f"column {name!r} holds text, for example {found[:40]!r}: drop it; if these are the "
                "times of the rows, pass them as times="
            )


def _pack(rows: Any) -> bytes:
    """Return an array of finite numbers and gaps as NPY; nothing if the rows are anything else."""
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "fiu" or rows.ndim != 2:
        return b""
    if np.isinf(rows).any():
        return b""
    file = io.BytesIO()
    np.save(file, rows if rows.dtype.itemsize <= 8 else rows.astype(np.float64), allow_pickle=False)
    return file.getvalue()


def _plain(rows: Any) -> list[Any]:
    """Return rows as lists or dictionaries that JSON can hold."""
    if isinstance(rows, list) and rows and isinstance(rows[0], dict):
        return [{name: _cell(value) for name, value in row.items()} for row in rows]
    try:
        if hasattr(rows, "iloc"):  # pandas: only this converts its NA to NaN
            values = rows.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"rows must be numbers, all rows of one width: {error}") from error
    if values.ndim != 2 or np.isinf(values).any():
        raise InvalidInputError(
            f"expected finite rows of shape (n, d), got shape {values.shape}: send one row as [row]"
        )
    plain: list[Any] = values.tolist()
    if np.isnan(values).any():
        plain = [[None if math.isnan(cell) else cell for cell in row] for row in plain]
    return plain


def _cell(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value
