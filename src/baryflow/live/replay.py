"""The embedded stream on the live page: five modes are known, the sixth flows in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.datasets.tennessee_eastman import Features
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.live.fault_names import class_name
from baryflow.live.feeder import Feeder
from baryflow.live.story import Story
from baryflow.validation import Floats

TARGET = "mode-1"
#: Requests in a second, at most.
_REQUESTS = 5.0


@dataclass(frozen=True, eq=False)
class Replay:
    """A model of the modes that are known, and the stream of the one that is not.

    Attributes
    ----------
    model : OnlineDaDiL
    rows : array of shape (n, d)
    labels : array of shape (n,)
        Of the stream: nobody but the score sees them.
    before : array of shape (n,)
        What the model says before it has seen any row of the stream.
    """

    model: OnlineDaDiL
    rows: Floats
    labels: Any
    before: Any

    @classmethod
    def of(
        cls, data: Features, seed: int = 0, learning: Callable[[int, int, str], None] | None = None
    ) -> Replay:
        """Learn the modes that are known.

        Parameters
        ----------
        data : Features
        seed : int
            Order in which the stream flows.
        learning : callable, optional
            Called with what is done, of how much, and what.

        Returns
        -------
        Replay
        """
        known = ~data.is_target
        names = np.array([class_name(fault) for fault in range(int(data.y.max()) + 1)])
        modes = np.array([f"mode {mode}" for mode in data.domain[known]])
        model = OnlineDaDiL(verbose=learning or False, keep_sources=False, random_state=0)
        model.fit(data.X[known], names[data.y[known]], sample_domain=modes)
        flows = np.random.default_rng(seed).permutation(np.flatnonzero(data.is_target))
        rows = data.X[flows].astype(np.float64)
        return cls(model, rows, names[data.y[flows]], model.predict(rows))

    def story(self) -> Story:
        """Return what is told of it.

        Returns
        -------
        Story
        """
        n = len(self.rows)
        words = (
            "Modes 2 to 6 of the Tennessee Eastman plant are known, with all their faults. Now mode 1 "
            f"flows in: {n:,} runs without labels. Each is diagnosed before it is learned from."
        )
        return Story(TARGET, "An operating mode that nobody has labelled", words)

    def feed(self, feeder: Feeder, story: Story, speed: float, stop: threading.Event) -> None:
        """Let the stream flow, and tell how well it goes.

        Parameters
        ----------
        feeder : Feeder
        story : Story
        speed : float
            Rows in a second.
        stop : threading.Event
        """
        size = max(1, round(speed / _REQUESTS))
        right = 0
        begun = time.monotonic()
        for start in range(0, len(self.rows), size):
            some = slice(start, start + size)
            rows = self.rows[some]
            said = feeder.post(rows)
            if stop.wait(max(0.0, begun + (start + len(rows)) / speed - time.monotonic())):
                return
            right += sum(
                one["label"] == name for one, name in zip(said, self.labels[some], strict=False)
            )
            n = start + len(rows)
            before = float((self.before[:n] == self.labels[:n]).mean())
            story.tell(figures={
                "right so far, adapting": f"{100 * right / n:.1f} %",
                "right so far without adapting": f"{100 * before:.1f} %",
                "runs seen": f"{n:,} of {len(self.rows):,}",
            })  # fmt: skip
        story.mark(len(self.rows), "the stream has ended")
