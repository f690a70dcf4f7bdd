"""What a demo tells beside its data: what one sees, how well it goes, and what was done when."""

from __future__ import annotations

import threading
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baryflow.service.errors import reply

#: Marks that are kept.
_MARKS = 100


class Story:
    """Told by one thread, read by another.

    Parameters
    ----------
    target : str
        Of which it is told.
    title, words : str
    """

    def __init__(self, target: str, title: str, words: str) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, Any] = {
            "target": target, "title": title, "words": words, "figures": [], "marks": [], "plant": None,
        }  # fmt: skip

    def tell(self, **said: Any) -> None:
        """Say something anew.

        Parameters
        ----------
        **said
            ``words``, or ``plant``, or ``figures`` as a dict of names and values.
        """
        if "figures" in said:
            said["figures"] = [{"name": name, "value": value} for name, value in said["figures"].items()]
        with self._lock:
            self._said |= said

    def mark(self, row: int, words: str) -> None:
        """Say that something was done.

        Parameters
        ----------
        row : int
            Rows that the target had by then.
        words : str
        """
        with self._lock:
            self._said["marks"] = [*self._said["marks"], {"row": row, "words": words}][-_MARKS:]

    def read(self) -> dict[str, Any]:
        """Return all that is said at the moment.

        Returns
        -------
        dict
        """
        with self._lock:
            return dict(self._said)

    def route(self) -> Route:
        """Return the route at which the page asks for it.

        Returns
        -------
        Route
        """

        async def get_demo(_: Request) -> Response:
            return reply(self.read())

        return Route("/v1/demo", get_demo)
