"""Rows to a service over HTTP, as any other client sends them."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from typing import Any

from baryflow.exceptions import UnreachableError
from baryflow.validation import Floats

#: Seconds until an answer must be there; and between tries while the service has other things to do.
_PATIENCE, _AGAIN = 30.0, 0.2
_BUSY = (429, 503)


class Feeder:
    """Sends rows of one target.

    Parameters
    ----------
    url : str
        Of a service on this machine.
    target : str
    stop : threading.Event
        Nothing is tried again once it is set.
    """

    def __init__(self, url: str, target: str, stop: threading.Event) -> None:
        self._url, self._stop, self.n_rows = f"{url}/v1/targets/{target}/rows", stop, 0

    def post(self, rows: Floats, times: list[str] | None = None) -> list[dict[str, Any]]:
        """Send rows, and send them again while the service is busy.

        Parameters
        ----------
        rows : array of shape (n, d)
        times : list of str, optional
            Without it the time at which they arrive.

        Returns
        -------
        list of dict
            A prediction for every row; none if it was told to stop.

        Raises
        ------
        UnreachableError
            If the service refuses, or is not there.
        """
        # The id of a batch makes it count once, however often it is sent.
        held = rows.tolist()
        if times is not None:
            held = [{"values": row, "time": at} for row, at in zip(held, times, strict=True)]
        body = {"rows": held, "batch_id": f"rows-from-{self.n_rows}"}
        request = urllib.request.Request(  # noqa: S310 - our own address
            self._url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        while not self._stop.is_set():
            try:
                with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:  # noqa: S310 - as above
                    predictions: list[dict[str, Any]] = json.load(answer)["predictions"]
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in _BUSY:
                        raise UnreachableError(
                            f"the service says {error.code}: {error.read()!r}"
                        ) from error
            except OSError as error:
                if not self._stop.is_set():
                    raise UnreachableError(f"the service does not answer: {error}") from error
            else:
                self.n_rows += len(rows)
                return predictions
            self._stop.wait(_AGAIN)
        return []
