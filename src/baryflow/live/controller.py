"""The simulated plant on the live page: windows to the service, wishes from the page to the plant."""

from __future__ import annotations

import json
import queue
import threading
import time
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from baryflow.features import SignalModel
from baryflow.live.fault_names import class_name, clock
from baryflow.live.feeder import Feeder
from baryflow.live.plant import RunningPlant, Window, check_fault, check_mode
from baryflow.live.story import Story
from baryflow.service.errors import RequestError, reply
from baryflow.tep.plant.settling import RAMP
from baryflow.tep.tables import FAULTS, MODES

TARGET = "plant"
#: Simulated hours in a second: at least, at most.
SLOWEST, FASTEST = 1.0, 40.0
#: Bytes of a wish.
_MOST = 1024
_WORDS = (
    "The simulated Tennessee Eastman plant runs in mode 1, of which the model knows normal operation "
    "only; faults it has seen in modes 2 to 6. Let a fault in, and see it found; or lead the plant to "
    "another mode."
)


def check_speed(speed: Any) -> str | None:
    """Return what is wrong with what should be a speed, or None."""
    fine = isinstance(speed, int | float) and not isinstance(speed, bool) and SLOWEST <= speed <= FASTEST
    return None if fine else f"expected {SLOWEST:g} to {FASTEST:g} hours in a second, got {speed!r}"


_CHECKS = {"fault": check_fault, "mode": check_mode, "speed": check_speed}


class Driver:
    """Runs the plant at a speed, sends its windows, and does what is asked for on the page.

    Parameters
    ----------
    pair : SignalModel
    speed : float
        Simulated hours in a second.
    """

    def __init__(self, pair: SignalModel, speed: float) -> None:
        self.pair, self.speed = pair, speed
        self.story = Story(TARGET, "A plant of which no fault was ever labelled", _WORDS)
        self._wishes: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._panel = {
            "mode": 1, "fault": 0, "speed": speed, "said": "The simulator is being compiled …",
            "modes": [mode for mode in MODES if mode], "faults": list(FAULTS), "hours": 0.0,
        }  # fmt: skip
        self._right = self._judged = 0
        self._found: float | None = None  # hours from the fault to its diagnosis
        self._led = -np.inf  # the hour at which the plant was led to another mode
        self.story.tell(plant=dict(self._panel))

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the page's buttons.

        Returns
        -------
        list of routes
        """
        return [self.story.route(), Route("/v1/plant/{what}", self._post_wish, methods=["POST"])]

    async def _post_wish(self, request: Request) -> Response:
        what = request.path_params["what"]
        if what not in _CHECKS:
            raise RequestError(404, f"the plant has {', '.join(_CHECKS)}")
        if int(request.headers.get("content-length") or _MOST + 1) > _MOST:
            raise RequestError(413, f"expected a body of {_MOST} bytes at most, and its length")
        try:
            wish = json.loads(await request.body())[what]
        except (ValueError, TypeError, KeyError) as error:
            raise RequestError(422, f'expected {{"{what}": number}}') from error
        if wrong := _CHECKS[what](wish):
            raise RequestError(422, wrong)
        self._wishes.put((what, wish))
        return reply(self._panel | {what: wish})

    def drive(self, feeder: Feeder, stop: threading.Event) -> None:
        """Run the plant until it is told to stop.

        Parameters
        ----------
        feeder : Feeder
        stop : threading.Event
        """
        plant = RunningPlant(self.pair)
        due = time.monotonic()
        while not stop.is_set():
            before = plant.hours
            self._do_wishes(plant, feeder.n_rows)
            windows, trip = plant.go_on()
            if windows:
                rows, times = np.array([w.features for w in windows]), [clock(w.hour) for w in windows]
                for window, said in zip(windows, feeder.post(rows, times), strict=False):
                    self._judge(plant, window, str(said["label"]))
            if trip is not None:
                words = f"the plant shut itself down ({trip}) and was started again, without a fault"
                self.story.mark(feeder.n_rows, f"{clock(plant.hours)}: {words}")
                self._found = None
            self._show(plant)
            # A service that needs longer slows the plant down: nothing piles up.
            due = max(due + (plant.hours - before) / self.speed, time.monotonic() - 0.5)
            stop.wait(max(0.0, due - time.monotonic()))

    def _do_wishes(self, plant: RunningPlant, n_rows: int) -> None:
        while not self._wishes.empty():
            what, wish = self._wishes.get()
            at = clock(plant.hours)
            if what == "speed":
                self.speed = float(wish)
            elif what == "mode" and wish != plant.mode:
                plant.set_mode(wish)
                self._led = plant.hours
                self.story.mark(n_rows, f"{at}: the plant is led to mode {wish}, in {RAMP:g} hours")
            elif what == "fault" and wish != plant.fault:
                plant.set_fault(wish)
                self._found = None
                done = f"fault {wish} is let in: {FAULTS[wish]}" if wish else "the fault is taken away"
                self.story.mark(n_rows, f"{at}: {done}")

    def _judge(self, plant: RunningPlant, window: Window, label: str) -> None:
        """Compare a diagnosis with what is wrong."""
        right, since = label == class_name(window.fault), window.hour - plant.fault_since
        if right and self._found is None:
            self._found = since
        length = 0.05 * self.pair.length
        # A window that is half from before says nothing of either.
        if since >= length and window.hour - self._led >= RAMP + length:
            self._judged += 1
            self._right += right

    def _show(self, plant: RunningPlant) -> None:
        on_its_way = plant.hours - self._led < RAMP
        where = f"on its way to mode {plant.mode}" if on_its_way else f"in mode {plant.mode}"
        said = f"{clock(plant.hours)}, {where}. "
        since = plant.hours - plant.fault_since
        if plant.fault:
            said += f"Fault {plant.fault} ({FAULTS[plant.fault]}) for {since:.1f} h: "
            said += "not found yet." if self._found is None else f"found after {self._found:.1f} h."
        else:
            said += "No fault."
        self._panel = self._panel | {
            "mode": plant.mode, "fault": plant.fault, "speed": self.speed, "said": said,
            "hours": round(plant.hours, 2),
        }  # fmt: skip
        figures = {"simulated": clock(plant.hours)}
        if self._judged:
            figures["of whole windows diagnosed rightly"] = f"{100 * self._right / self._judged:.0f} %"
        if plant.n_trips:
            figures["shutdowns"] = str(plant.n_trips)
        self.story.tell(plant=self._panel, figures=figures)
