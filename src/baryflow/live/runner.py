"""Starts a service, opens its page, and feeds it until somebody has seen enough."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from baryflow.live.feeder import Feeder
from baryflow.live.replay import TARGET as REPLAYED
from baryflow.live.replay import Replay
from baryflow.live.story import Story
from baryflow.service import background, create_app

if TYPE_CHECKING:
    from baryflow.live.controller import Driver

#: Windows of the plant from which the model learns at a time: 20 hours.
_PLANT_BATCH = 16


@contextmanager
def show_replay(replay: Replay, speed: float, port: int = 0) -> Iterator[tuple[str, Feeding]]:
    """Let the embedded stream flow into a service for as long as the block lasts.

    Parameters
    ----------
    replay : Replay
    speed : float
        Rows in a second.
    port : int
        0: any that is free.

    Yields
    ------
    url, feeding : str and Feeding
        Where the page is, and what feeds it.
    """
    story = replay.story()
    app = create_app(replay.model, extra_routes=[story.route()])
    with background(app, port=port) as url:
        stop = threading.Event()
        feeder = Feeder(url, REPLAYED, stop)
        with Feeding(lambda: replay.feed(feeder, story, speed, stop), stop, story) as feeding:
            yield f"{url}/?demo#{REPLAYED}", feeding


@contextmanager
def show_plant(driver: Driver, port: int = 0) -> Iterator[tuple[str, Feeding]]:
    """Let the simulated plant run into a service for as long as the block lasts.

    Parameters
    ----------
    driver : Driver
    port : int
        0: any that is free.

    Yields
    ------
    url, feeding : str and Feeding
    """
    from baryflow.live.controller import TARGET

    app = create_app(
        driver.pair.model, batch_size=_PLANT_BATCH, drift="forget", extra_routes=driver.routes()
    )
    with background(app, port=port) as url:
        stop = threading.Event()
        feeder = Feeder(url, TARGET, stop)
        with Feeding(lambda: driver.drive(feeder, stop), stop, driver.story) as feeding:
            yield f"{url}/?demo#{TARGET}", feeding


class Feeding:
    """A thread that feeds a service.

    Parameters
    ----------
    work : callable
    stop : threading.Event
        Ends it.
    story : Story
        Says so if it ends before its time.
    """

    def __init__(self, work: Callable[[], None], stop: threading.Event, story: Story) -> None:
        self._work, self._stop, self._story = work, stop, story
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="feeding", daemon=True)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # raised again where somebody hears it
            self._error = error
            self._story.tell(words=f"The demo has stopped: {error}")

    def wait(self, seconds: float) -> bool:
        """Wait for a while; tell whether it has ended.

        Parameters
        ----------
        seconds : float

        Returns
        -------
        bool

        Raises
        ------
        Exception
            What went wrong while it fed, if anything did.
        """
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def idle(self, seconds: float) -> None:
        """Do nothing for a while: the page is still there.

        Parameters
        ----------
        seconds : float
        """
        self._stop.wait(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
