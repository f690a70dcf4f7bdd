"""The embedded stream on the live page: the model knows five operating modes, the sixth arrives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.client import Client
from baryflow.datasets.tennessee_eastman import Features
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.live.panel import DemoPanel, serve_demo
from baryflow.live.plant import class_name
from baryflow.service import create_app
from baryflow.validation import Floats

TARGET = "mode-1"
#: Requests per second at most.
_REQUEST_RATE = 5.0


@dataclass(frozen=True, eq=False)
class Replay:
    """A model of the known modes, and the rows of the unknown one."""

    model: OnlineDaDiL
    rows: Floats
    labels: Any  # used for the score only
    source_only: Any  # predictions of the model before it has seen the stream

    @classmethod
    def fit(
        cls, data: Features, seed: int = 0, progress: Callable[[int, int, str], None] | None = None
    ) -> Replay:
        """Fit the known modes and shuffle the rows of the unknown one.

        `progress` is called with the steps done, their number, and what the current one is.
        """
        known = ~data.is_target
        names = np.array([class_name(fault) for fault in range(int(data.y.max()) + 1)])
        modes = np.array([f"mode {mode}" for mode in data.domain[known]])
        model = OnlineDaDiL(verbose=progress or False, keep_sources=False, random_state=0)
        model.fit(data.X[known], names[data.y[known]], sample_domain=modes)
        order = np.random.default_rng(seed).permutation(np.flatnonzero(data.is_target))
        rows = data.X[order].astype(np.float64)
        return cls(model, rows, names[data.y[order]], model.predict(rows))

    def feed(self, client: Client, panel: DemoPanel, speed: float, stop: threading.Event) -> None:
        """Send the rows at `speed` per second, and keep the score on the panel."""
        size = max(1, round(speed / _REQUEST_RATE))
        correct = 0
        start_time = time.monotonic()
        for start in range(0, len(self.rows), size):
            batch = slice(start, start + size)
            rows = self.rows[batch]
            answer = client.send(TARGET, rows, batch_id=f"rows-from-{start}")
            n = start + len(rows)
            if stop.wait(max(0.0, start_time + n / speed - time.monotonic())):
                return
            predicted = [prediction["label"] for prediction in answer["predictions"]]
            correct += int((np.array(predicted) == self.labels[batch]).sum())
            source_only = float((self.source_only[:n] == self.labels[:n]).mean())
            figures = {
                "correct so far, adapting": f"{100 * correct / n:.1f} %",
                "correct so far, not adapting": f"{100 * source_only:.1f} %",
                "runs seen": f"{n:,} of {len(self.rows):,}",
            }
            panel.update(figures=figures)
        panel.mark(len(self.rows), "end of the stream")


def serve_replay(
    replay: Replay, speed: float, port: int = 0
) -> AbstractContextManager[tuple[str, Future[None]]]:
    """Serve the embedded stream at `speed` rows per second; see :func:`serve_demo`."""
    description = (
        "The model learned modes 2 to 6 of the Tennessee Eastman plant, with all their faults. Now it "
        f"receives {len(replay.rows):,} unlabelled runs of mode 1. It predicts each run before it "
        "learns from it."
    )
    panel = DemoPanel(TARGET, "An operating mode without labels", description)
    app = create_app(replay.model, extra_routes=[panel.route()])
    return serve_demo(app, panel, lambda client, stop: replay.feed(client, panel, speed, stop), port)
