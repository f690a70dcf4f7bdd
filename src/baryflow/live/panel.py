"""The demo's panel on the live page, and the service and thread behind a demo."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baryflow.client import Client
from baryflow.exceptions import StoppedError
from baryflow.service import background
from baryflow.service.errors import reply

#: Marks kept.
_MAX_MARKS = 100


class DemoPanel:
    """What the page shows beside the data: a description, key figures and marks along the stream.

    One thread writes it, the service's thread reads it.
    """

    def __init__(self, target: str, title: str, description: str) -> None:
        self.target = target
        self._lock = threading.Lock()
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
        with self._lock:
            self._content |= {key: value for key, value in changed.items() if value is not None}

    def mark(self, row: int, text: str) -> None:
        """Mark an action in the charts, after `row` rows of the target."""
        with self._lock:
            self._content["marks"] = [*self._content["marks"], {"row": row, "words": text}][-_MAX_MARKS:]

    def read(self) -> dict[str, Any]:
        """Return the current content."""
        with self._lock:
            return dict(self._content)

    def route(self) -> Route:
        """Return the route from which the page reads the panel."""

        async def get_demo(_: Request) -> Response:
            return reply(self.read())

        return Route("/v1/demo", get_demo)


class FeedThread:
    """A thread that feeds a service until its work is done or the block ends."""

    def __init__(self, work: Callable[[], None], stop: threading.Event, panel: DemoPanel) -> None:
        self._work, self._stop, self._panel = work, stop, panel
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def _run(self) -> None:
        try:
            with suppress(StoppedError):
                self._work()
        except Exception as error:  # raised by wait(), in the caller's thread
            self._error = error
            self._panel.update(description=f"The demo stopped: {error}")

    def wait(self, seconds: float) -> bool:
        """Wait; return whether the thread has ended, and raise its error if there was one."""
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def idle(self, seconds: float) -> None:
        """Wait while the page stays available."""
        self._stop.wait(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def serve_demo(
    app: Starlette, panel: DemoPanel, feed: Callable[[Client, threading.Event], None], port: int = 0
) -> Iterator[tuple[str, FeedThread]]:
    """Serve an application on this host and feed it for the duration of the block.

    Yield the address of its page and the thread that feeds it. Port 0 selects a free port.
    """
    stop = threading.Event()
    with (
        background(app, port=port) as url,
        Client(url, stop=stop.is_set) as client,
        FeedThread(lambda: feed(client, stop), stop, panel) as thread,
    ):
        yield f"{url}/?demo#{panel.target}", thread
