"""Tasks on partitions: stored results are not computed again, rows are not kept, jobs are repeated."""

import weakref
from dataclasses import dataclass
from uuid import uuid4

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import CancelledError, KilledWorker

from baryflow import OnlineDaDiL, distributed
from baryflow.distributed import tasks
from baryflow.distributed.cluster import scheduler_errors
from baryflow.distributed.files import Files
from baryflow.distributed.tasks import TaskRunner
from baryflow.exceptions import UnreachableError

N = 12
COLUMNS = ["flow", "heat", "speed"]


def new(**parameters):
    quick = {"keep_sources": False, "classifier": "linear", "validate": False}
    return OnlineDaDiL(random_state=0, **quick | parameters)


@dataclass(frozen=True)
class Total:
    value: int


def add(some):
    return Total(sum(one.value for one in some))


class Partitions:
    """Partitions that count how often Dask computes them, and how many are in memory at a time."""

    def __init__(self):
        self.made, self.here, self.most = 0, 0, 0
        nothing = self(0).iloc[:0]
        self.frame = dd.from_map(self, list(range(N)), meta=nothing)
        self.parts = distributed.from_frame(self.frame, label="fault", domain="line")
        self.made = 0

    def __call__(self, number):
        rng = np.random.default_rng(number)
        fault = rng.integers(2, size=100)
        rows = pd.DataFrame(rng.normal(size=(100, 3)) + 2.0 * fault[:, None], columns=COLUMNS)
        rows["fault"], rows["line"] = fault, f"line {number % 2}"
        self.made, self.here = self.made + 1, self.here + 1
        self.most = max(self.most, self.here)
        weakref.finalize(rows, self._gone)
        return rows

    def __dask_tokenize__(self):
        return uuid4().hex  # otherwise Dask would take two objects for one

    def _gone(self):
        self.here -= 1


@pytest.fixture
def partitions():
    with dask.config.set(scheduler="synchronous"):
        yield Partitions()


def test_workers_do_not_keep_rows_between_passes(partitions):
    model = distributed.fit(new(), partitions.parts, sample_rows=300)
    assert partitions.made == 2 * N
    assert partitions.most <= 3
    partitions.made = partitions.most = 0
    distributed.absorb(model, distributed.from_frame(partitions.frame[COLUMNS]))
    assert partitions.made == N
    assert partitions.most <= 3


def test_partitions_with_stored_results_are_not_computed_again(partitions, tmp_path):
    runner = TaskRunner(files=Files(str(tmp_path)))

    def count(task):
        return runner.reduce("counting", Total, partitions.parts.partitions, task, add)

    calls = iter(range(N - 1))

    def break_off(rows):
        if next(calls, None) is None:
            raise InterruptedError
        return Total(len(rows))

    with pytest.raises(InterruptedError):
        count(break_off)
    assert len(list(tmp_path.glob("*.bary"))) == N - 1
    partitions.made = 0
    assert count(lambda rows: Total(len(rows))) == Total(100 * N)
    assert partitions.made == 1
    assert count(break_off) == Total(100 * N)


def test_results_are_merged_in_order_and_used_by_the_last_task(client):
    reports = []
    runner = TaskRunner(client, progress=lambda *report: reports.append(report))
    parts = [str(n) for n in range(100)]
    found = runner.reduce("joining", str, parts, str, "".join, then=("measuring", len))
    assert found == len("".join(parts))
    assert runner.reduce("joining", str, parts, str, "".join) == "".join(parts)
    assert all(0 <= done <= total == 100 for done, total, _ in reports)


# -- long jobs -------------------------------------------------------------------------------------


class Future:
    def __init__(self, outcome):
        self.outcome = outcome
        self.status = "error" if isinstance(outcome, Exception) else "finished"

    def result(self):
        if self.outcome == "lost":
            raise CancelledError
        return self.outcome

    def exception(self):
        return self.outcome


class Client:
    """Gives each submitted job the next outcome."""

    def __init__(self, *outcomes):
        self.outcomes, self.submitted, self.cancelled = list(outcomes), 0, []

    def submit(self, *_, **__):
        self.submitted += 1
        return Future(self.outcomes.pop(0))

    def cancel(self, futures):
        self.cancelled += futures


@pytest.fixture
def killed():
    return KilledWorker("task", None, 1)


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(tasks.Watch, "wait", lambda _, futures: futures[:1])


def work(job):
    raise NotImplementedError


@pytest.mark.usefixtures("at_once")
def test_jobs_whose_workers_die_are_repeated(killed):
    client = Client(*[killed] * 3, "done")
    assert list(tasks.complete(client, work, ["job"])) == [(0, "done")]
    assert client.submitted == 4


@pytest.mark.usefixtures("at_once")
def test_jobs_that_kill_their_workers_fail(killed):
    client = Client(*[killed] * 9)
    assert list(tasks.complete(client, work, ["job"])) == [(0, killed)]
    assert client.submitted == 4


@pytest.mark.usefixtures("at_once")
def test_an_error_does_not_affect_other_jobs():
    error = OSError("gone")
    client = Client(error, "done")
    found = dict(tasks.complete(client, work, ["a", "b"]))
    assert found == {0: error, 1: "done"}


@pytest.mark.usefixtures("at_once")
def test_lost_scheduler_raises_and_cancels_other_jobs():
    client = Client("lost", "done")
    with pytest.raises(UnreachableError, match="scheduler"), scheduler_errors():
        list(tasks.complete(client, work, ["a", "b"]))
    assert [future.outcome for future in client.cancelled] == ["done"]
