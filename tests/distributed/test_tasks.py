"""Tasks on partitions: stored results are not computed again, rows are not kept, jobs are repeated."""

import shutil
import weakref
from dataclasses import dataclass
from uuid import uuid4

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import KilledWorker

from baryflow import OnlineDaDiL, container, distributed
from baryflow.distributed import tasks
from baryflow.distributed.store import Store
from baryflow.distributed.tasks import TaskRunner
from baryflow.exceptions import FileFormatError, UnreachableError

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
    assert partitions.made == 3 * N
    assert partitions.most <= 3
    partitions.made = partitions.most = 0
    distributed.absorb(model, distributed.from_frame(partitions.frame[COLUMNS]))
    assert partitions.made == 2 * N
    assert partitions.most <= 3


def test_partitions_with_stored_results_are_not_computed_again(partitions, tmp_path):
    runner = TaskRunner(store=Store(str(tmp_path)))

    def count(task):
        return runner.compute(
            runner.reduce("count", Total, partitions.parts.partitions, task, add), "counting"
        )

    calls = iter(range(N - 1))

    def break_off(rows):
        if next(calls, None) is None:
            raise InterruptedError
        return Total(len(rows))

    with pytest.raises(InterruptedError):
        count(break_off)
    kept = sorted(tmp_path.glob("count/*.bary"))
    assert len(kept) == N - 1
    kept[3].write_bytes(b"cut off")
    partitions.made = 0
    assert count(lambda rows: Total(len(rows))) == Total(100 * N)
    assert partitions.made == 2  # the interrupted one and the damaged one


def test_results_of_a_killed_worker_are_not_computed_again(tmp_path):
    """They are stored after the tasks were submitted."""
    store, called = Store(str(tmp_path)), []

    def task(partition):
        called.append(partition)
        return Total(partition)

    submitted = TaskRunner(store=store).reduce("count", Total, [1, 2, 3], task, add)
    (store / "count").save(Total(20), "000001.bary")
    with dask.config.set(scheduler="synchronous"):
        assert submitted.compute() == Total(24)
    assert sorted(called) == [1, 3]


def test_unreadable_merged_result_is_reported(tmp_path):
    (tmp_path / "count.bary").write_bytes(b"cut off")
    runner = TaskRunner(store=Store(str(tmp_path)))
    with pytest.raises(FileFormatError, match=r"count\.bary is damaged"):
        runner.compute(runner.reduce("count", Total, [1], Total, add), "counting")


def test_writing_survives_the_removal_of_the_folder(tmp_path, monkeypatch):
    write = container.write_bytes
    gone = iter([True, True])

    def slowly(path, content):
        if next(gone, False):
            shutil.rmtree(path.parent)
        write(path, content)

    monkeypatch.setattr(container, "write_bytes", slowly)
    Store(str(tmp_path / "count")).write("000001.bary", b"content")
    assert (tmp_path / "count/000001.bary").read_bytes() == b"content"


@pytest.mark.parametrize("prior", [[0.3 + 4e-10, 0.7 - 4e-10], {0: 0.3 + 4e-10, 1: 0.7 - 4e-10}])
def test_slightly_different_parameters_are_distinguished(partitions, tmp_path, prior):
    kept = str(tmp_path)
    fits = [
        distributed.fit(new(class_prior=one), partitions.parts, checkpoint=kept)
        for one in (np.array([0.3, 0.7]), prior if isinstance(prior, dict) else np.array(prior))
    ]
    assert fits[0].to_bytes() != fits[1].to_bytes()
    assert len(list(tmp_path.rglob("learned.bary"))) == 2


# -- long jobs -------------------------------------------------------------------------------------


class Future:
    def __init__(self, outcome):
        self.outcome = outcome
        self.status = "error" if isinstance(outcome, Exception) else "finished"
        self.status = "lost" if outcome == "lost" else self.status

    def result(self):
        return self.outcome

    exception = result


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
    monkeypatch.setattr(tasks, "_wait", lambda futures: futures[:1])


def work(job):
    raise NotImplementedError


@pytest.mark.usefixtures("at_once")
def test_jobs_that_make_progress_are_repeated_however_often_workers_die(killed):
    client, done = Client(*[killed] * 9, "done"), iter([0, 0, 0, 1, 1, 1, 1, 2, 2])
    assert list(tasks.complete(client, work, ["job"], progress=lambda _: next(done))) == [(0, "done")]
    assert client.submitted == 10


@pytest.mark.usefixtures("at_once")
def test_jobs_that_kill_their_workers_fail(killed):
    client = Client(*[killed] * 9)
    assert list(tasks.complete(client, work, ["job"], progress=lambda _: 3)) == [(0, killed)]
    assert client.submitted == 5  # it made progress before the first attempt only


@pytest.mark.usefixtures("at_once")
def test_an_error_does_not_affect_other_jobs():
    error = OSError("gone")
    client = Client(error, "done")
    found = dict(tasks.complete(client, work, ["a", "b"], progress=lambda _: 0))
    assert found == {0: error, 1: "done"}


@pytest.mark.usefixtures("at_once")
def test_lost_scheduler_raises_and_cancels_other_jobs():
    client = Client("lost", "done")
    with pytest.raises(UnreachableError, match="scheduler"):
        list(tasks.complete(client, work, ["a", "b"], progress=lambda _: 0))
    assert [future.outcome for future in client.cancelled] == ["done"]
