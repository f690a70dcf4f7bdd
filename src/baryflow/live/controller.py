"""The simulated plant on the live page: sends its windows to the service, obeys the page's buttons."""

from __future__ import annotations

import json
import queue
import threading
import time
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baryflow.alarms import AlarmConfig
from baryflow.client import Client
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalModel
from baryflow.live.panel import DemoPanel, serve_demo
from baryflow.live.plant import INTERVAL, RunningPlant, Window, class_name, clock
from baryflow.service import create_app
from baryflow.service.errors import RequestError
from baryflow.service.routes import reply
from baryflow.tep.plant.settling import RAMP
from baryflow.tep.tables import FAULTS, MODES

TARGET = "plant"
#: Simulated hours per second.
MIN_SPEED, MAX_SPEED = 1.0, 40.0
#: Windows per update of the model: 20 hours.
_BATCH_SIZE = 16
#: Bytes of a command's body.
_MAX_BODY = 1024
#: Hours after the end of a fault or a change of mode until the plant is in normal operation again.
_RECOVERY = 24.0
_DESCRIPTION = (
    "The simulated Tennessee Eastman plant runs in mode 1. The model learned its 28 faults in modes 2 "
    "to 6, and of mode 1 only normal operation. Every 1¼ hours it diagnoses the last five hours; three "
    "equal, likely diagnoses in a row raise an alarm. Inject a fault: its alarm should follow within 3 "
    "to 8 hours. End the fault: five hours later no window contains it, and after five other diagnoses "
    "the alarm clears. Faults 3, 5, 9, 15, 16, 21 and 28 hardly affect this plant and "
    "usually raise none. Columns are features of these windows, in standard deviations of normal "
    "operation."
)


def check_command(command: str, value: Any) -> None:
    """Raise InvalidInputError unless the value of a command (fault, mode or speed) is in range."""
    limits: dict[str, tuple[str, float, float]] = {
        "fault": ("a fault", 0, len(FAULTS) - 1),
        "mode": ("a mode", 1, max(MODES)),
        "speed": ("a speed in simulated hours per second", MIN_SPEED, MAX_SPEED),
    }
    name, low, high = limits[command]
    kinds = (int, float) if command == "speed" else (int,)
    if not isinstance(value, kinds) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInputError(f"expected {name} from {low:g} to {high:g}, got {value!r}")


class PlantController:
    """Runs the plant at a speed in simulated hours per second, and applies commands from the page."""

    def __init__(self, model: SignalModel, speed: float) -> None:
        check_command("speed", speed)
        self.model, self.speed = model, speed
        self.panel = DemoPanel(TARGET, "A plant without a single labelled fault", _DESCRIPTION)
        self._commands: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._state: dict[str, Any] = {"mode": 1, "fault": 0, "speed": speed, "hours": 0.0}
        self._state |= {"modes": [mode for mode in MODES if mode], "faults": list(FAULTS)}
        self._state["said"] = "Compiling the simulator …"
        self._n_rows = self._n_faults = self._n_found = self._n_other = self._n_false = 0
        self._normal_hours = 0.0
        self._delay: float | None = None  # hours from the fault to its alarm
        self._ramp_start = self._disturbed = -np.inf  # hours of the last change of mode, of any change
        self.panel.update(plant=self._state)

    def app(self) -> Starlette:
        """Return the service with the panel and its buttons."""
        commands = Route("/v1/plant/{command}", self._post_command, methods=["POST"])
        return create_app(
            self.model.model,
            batch_size=_BATCH_SIZE,
            drift="forget",
            alarms=AlarmConfig(),
            extra_routes=[self.panel.route(), commands],
        )

    async def _post_command(self, request: Request) -> Response:
        command = request.path_params["command"]
        if command not in ("fault", "mode", "speed"):
            raise RequestError(404, f"expected fault, mode or speed, got {command!r}")
        if int(request.headers.get("content-length") or _MAX_BODY + 1) > _MAX_BODY:
            raise RequestError(413, f"expected a Content-Length of at most {_MAX_BODY} bytes")
        try:
            value = json.loads(await request.body())[command]
            check_command(command, value)
        except InvalidInputError as error:
            raise RequestError(422, str(error)) from error
        except (ValueError, TypeError, KeyError) as error:
            raise RequestError(422, f'expected {{"{command}": number}}') from error
        self._commands.put((command, value))
        return reply(self._state | {command: value})

    def run(self, client: Client, stop: threading.Event) -> None:
        """Run the plant until `stop` is set."""
        plant = RunningPlant(self.model)
        due = time.monotonic()
        while not stop.is_set():
            hours = self.advance(plant, client)
            # If the service is slow, the plant slows down; no backlog builds up.
            due = max(due + hours / self.speed, time.monotonic() - 0.5)
            stop.wait(max(0.0, due - time.monotonic()))

    def advance(self, plant: RunningPlant, client: Client) -> float:
        """Apply the commands, simulate a few rows and send the windows; return the hours simulated."""
        before = plant.hours
        self._apply_commands(plant)
        windows, trip = plant.advance()
        if windows:
            rows, times = np.array([w.features for w in windows]), [clock(w.hour) for w in windows]
            answer = client.send(TARGET, rows, times=times, batch_id=f"rows-from-{self._n_rows}")
            for event in answer["events"]:
                if event["event"] == "alarm" and event["change"] in ("raised", "repeated"):
                    self._judge(plant, windows[event["position"] - self._n_rows - 1], event["alarm"])
            self._n_rows += len(rows)
        if trip is not None:
            self._mark(plant, f"the plant shut down ({trip}) and restarted without a fault")
            self._delay, self._disturbed = None, plant.hours
        hours = plant.hours - before
        if self._is_normal(plant):
            self._normal_hours += hours
        self._report(plant)
        return hours

    def _apply_commands(self, plant: RunningPlant) -> None:
        while not self._commands.empty():
            command, value = self._commands.get()
            if command == "speed":
                self.speed = float(value)
            elif command == "mode" and value != plant.mode:
                plant.set_mode(value)
                self._ramp_start = plant.hours
                self._disturbed = plant.hours + RAMP
                self._mark(plant, f"moving to mode {value} within {RAMP:g} hours")
            elif command == "fault" and value != plant.fault:
                plant.set_fault(value)
                self._delay, self._disturbed = None, max(self._disturbed, plant.hours)
                self._n_faults += value != 0
                self._mark(
                    plant, f"fault {value} injected: {FAULTS[value]}" if value else "fault removed"
                )

    def _mark(self, plant: RunningPlant, text: str) -> None:
        self.panel.mark(self._n_rows, f"{clock(plant.hours)}: {text}")

    def _is_normal(self, plant: RunningPlant) -> bool:
        return not plant.fault and plant.hours - self._disturbed >= _RECOVERY

    def _judge(self, plant: RunningPlant, window: Window, alarm: str) -> None:
        """Compare an alarm that was raised with the fault."""
        if plant.fault and alarm == class_name(plant.fault):
            self._n_found += self._delay is None
            self._delay = window.hour - plant.fault_since
        elif self._is_normal(plant):
            self._n_false += 1
        else:
            self._n_other += 1

    def _report(self, plant: RunningPlant) -> None:
        moving = plant.hours - self._ramp_start < RAMP
        text = f"{clock(plant.hours)}, {'moving to' if moving else 'in'} mode {plant.mode}. "
        since, length = plant.hours - plant.fault_since, INTERVAL * self.model.length
        if plant.fault:
            text += f"Fault {plant.fault} ({FAULTS[plant.fault]}) for {since:.1f} h: "
            text += (
                "no alarm yet." if self._delay is None else f"alarm raised after {self._delay:.1f} h."
            )
        elif self._n_faults and since < length:
            text += f"The fault ended {since:.1f} h ago; windows of five hours still contain it."
        elif self._n_faults and not self._is_normal(plant):
            text += f"The fault ended {since:.1f} h ago; the plant recovers."
        else:
            text += "No fault."
        now = {"mode": plant.mode, "fault": plant.fault, "speed": self.speed, "said": text}
        self._state = self._state | now | {"hours": round(plant.hours, 2)}
        figures = {"simulated time": clock(plant.hours)}
        if self._normal_hours >= 1.0:
            hours = f"false alarms in {self._normal_hours:.0f} h of normal operation"
            figures[hours] = str(self._n_false)
        if self._n_faults:
            figures["faults raised their alarm"] = f"{self._n_found} of {self._n_faults}"
        if self._n_other:
            noun = "other alarm" if self._n_other == 1 else "other alarms"
            figures[f"{noun} during a fault or within a day after it"] = str(self._n_other)
        if plant.n_trips:
            figures["shutdowns"] = str(plant.n_trips)
        self.panel.update(plant=self._state, figures=figures)


def serve_plant(
    controller: PlantController, port: int = 0
) -> AbstractContextManager[tuple[str, Future[None]]]:
    """Serve the running plant; see :func:`serve_demo`."""
    return serve_demo(controller.app(), controller.panel, controller.run, port)
