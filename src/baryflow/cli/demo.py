"""The demos on the live page: ``demo --live``."""

from __future__ import annotations

import sys
import webbrowser
from typing import Any

from threadpoolctl import threadpool_limits

from baryflow import demo as demonstration
from baryflow.cli.console import Line, echo

#: Rows, or simulated hours of the plant, in a second.
REPLAY_SPEED, PLANT_SPEED = 20.0, 5.0


def show(seed: int, speed: float | None, port: int, *, plant: bool, browser: bool) -> None:
    """Show a demo until the user has seen enough.

    Parameters
    ----------
    seed : int
        Order in which the embedded stream flows.
    speed : float or None
    port : int
        0: any that is free.
    plant : bool
        The simulated plant instead of the embedded stream.
    browser : bool
        Whether to open the page.
    """
    try:
        from baryflow.live.replay import serve_replay
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error.name} is missing: pip install 'baryflow[serve]'") from error
    with threadpool_limits(limits=1):
        if plant:
            from baryflow.live.controller import serve_plant

            _watch(serve_plant(_controller(speed or PLANT_SPEED), port), browser)
        else:
            _watch(serve_replay(_replay(seed), speed or REPLAY_SPEED, port), browser)


def _controller(speed: float) -> Any:
    from baryflow.live.controller import PlantController
    from baryflow.live.plant import load_plant_model
    from baryflow.tep.plant import model  # noqa: F401 - fail early if an extra is missing

    return PlantController(load_plant_model(), speed)


def _replay(seed: int) -> Any:
    from baryflow.live.replay import Replay

    data = demonstration.problem()
    n_known = int((~data.is_target).sum())
    echo(f"learning modes 2 to 6 of the plant: {n_known} labelled runs ...", err=True)
    with Line() as line:
        return Replay.fit(data, seed, lambda done, n, what: line.show(f"{done}/{n} steps  {what}"))


def _watch(shown: Any, browser: bool) -> None:
    with shown as (url, feeding):
        echo(f"the page: {url}", err=True)
        echo("Ctrl-C ends it", err=True)
        if browser and not webbrowser.open(url):
            echo("no browser could be opened: follow the address above", err=True)
        sys.stderr.flush()
        try:
            while not feeding.wait(0.5):
                pass
            echo("the stream has ended; the page stays until Ctrl-C", err=True)
            while True:
                feeding.idle(3600.0)
        except KeyboardInterrupt:
            echo("", err=True)
