"""The demo's panel on the live page, and the service and thread behind a demo."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baryflow.client import Client
from baryflow.exceptions import StoppedError
from baryflow.service import background
from baryflow.service.routes import reply

#: Marks kept.
_MAX_MARKS = 100


class DemoPanel:
    """What the page shows beside the data: a description, key figures and marks along the stream.

    One thread writes it, the service's thread reads it: the content is replaced, never changed.
    """

    def __init__(self, target: str, title: str, description: str) -> None:
        self.target = target
        self._content: dict[str, Any] = {"target": target, "title": title, "words": description}
        self._content |= {"figures": [], "marks": [], "plant": None}

    def update(
        self,
        *,
        description: str | None = None,
        figures: dict[str, str] | None = None,
        plant: dict[str, Any] | None = None,
    ) -> None:
        """Replace the description, the key figures (name → value) or the state of the plant."""
        changed: dict[str, Any] = {"words": description, "plant": plant}
        if figures is not None:
            changed["figures"] = [{"name": name, "value": value} for name, value in figures.items()]
        changed = {key: value for key, value in changed.items() if value is not None}
        self._content = self._content | changed

    def mark(self, row: int, text: str) -> None:
        """Mark an action in the charts, after `row` rows of the target."""
        marks = [*self._content["marks"], {"row": row, "words": text}][-_MAX_MARKS:]
        self._content = self._content | {"marks": marks}

    def read(self) -> dict[str, Any]:
        """Return the current content."""
        return self._content

    def route(self) -> Route:
        """Return the route from which the page reads the panel."""

        async def get_demo(_: Request) -> Response:
            return reply(self.read())

        return Route("/v1/demo", get_demo)


@contextmanager
def serve_demo(
    app: Starlette, panel: DemoPanel, feed: Callable[[Client, threading.Event], None], port: int = 0
) -> Iterator[tuple[str, Future[None]]]:
    """Serve an application on this host and feed it for the duration of the block.

    Yield the address of its page, and the future of the thread that feeds it. Port 0 selects a free
    port.
    """
    stop = threading.Event()

    def work() -> None:
        try:
            with suppress(StoppedError):
                feed(client, stop)
        except Exception as error:
            panel.update(description=f"The demo stopped: {error}")
            raise

    with (
        background(app, port=port) as url,
        Client(url, stop=stop.is_set) as client,
        ThreadPoolExecutor(1, "feed") as pool,
    ):
        try:
            yield f"{url}/?demo#{panel.target}", pool.submit(work)
        finally:
            stop.set()
