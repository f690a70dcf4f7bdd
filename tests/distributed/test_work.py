"""Work on pieces: what is kept is not made again, and rows are not kept."""

import shutil
import weakref
from dataclasses import dataclass
from uuid import uuid4

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from baryflow import OnlineDaDiL, container, distributed
from baryflow.distributed.fitting.work import Work
from baryflow.distributed.store import Store
from baryflow.exceptions import FileFormatError

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
    """Partitions that Dask has to make: how often it does, and how many there are at a time."""

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
        return uuid4().hex  # Dask would take two of them for one

    def _gone(self):
        self.here -= 1


@pytest.fixture
def partitions():
    with dask.config.set(scheduler="synchronous"):
        yield Partitions()


def test_workers_do_not_keep_rows_from_one_look_to_the_next(partitions):
    model = distributed.fit(new(), partitions.parts, sample_rows=300)
    assert partitions.made == 3 * N
    assert partitions.most <= 3
    partitions.made = partitions.most = 0
    distributed.absorb(model, distributed.from_frame(partitions.frame[COLUMNS]))
    assert partitions.made == 2 * N
    assert partitions.most <= 3


def test_partitions_whose_results_are_kept_are_not_made_again(partitions, tmp_path):
    work = Work(store=Store(str(tmp_path)))
    pieces = partitions.parts.pieces

    def count(task):
        return work.compute(work.over("census", Total, pieces, task, add), "counting")

    calls = iter(range(N - 1))

    def break_off(rows):
        if next(calls, None) is None:
            raise InterruptedError
        return Total(len(rows))

    with pytest.raises(InterruptedError):
        count(break_off)
    kept = sorted(tmp_path.glob("census/*.bary"))
    assert len(kept) == N - 1
    kept[3].write_bytes(b"cut off")
    partitions.made = 0
    assert count(lambda rows: Total(len(rows))) == Total(100 * N)
    assert partitions.made == 2  # the one that was interrupted, and the one that is damaged


def test_what_a_worker_kept_before_it_died_is_not_made_again(tmp_path):
    """Its tasks were submitted before; they are done by others."""
    store, called = Store(str(tmp_path)), []

    def task(piece):
        called.append(piece)
        return Total(piece)

    submitted = Work(store=store).over("census", Total, [1, 2, 3], task, add)
    (store / "census").keep(Total(20), "000001.bary")
    with dask.config.set(scheduler="synchronous"):
        assert submitted.compute() == Total(24)
    assert sorted(called) == [1, 3]


def test_a_whole_that_workers_cannot_read_is_named(tmp_path):
    (tmp_path / "census.bary").write_bytes(b"cut off")
    work = Work(store=Store(str(tmp_path)))
    with pytest.raises(FileFormatError, match=r"census\.bary is damaged, or a worker does not see it"):
        work.compute(work.over("census", Total, [1], Total, add), "counting")


def test_a_folder_that_goes_while_somebody_writes_there_comes_back(tmp_path, monkeypatch):
    write = container.write_bytes
    gone = iter([True, True])

    def slowly(path, content):
        if next(gone, False):
            shutil.rmtree(path.parent)
        write(path, content)

    monkeypatch.setattr(container, "write_bytes", slowly)
    Store(str(tmp_path / "census")).write("000001.bary", b"content")
    assert (tmp_path / "census/000001.bary").read_bytes() == b"content"


@pytest.mark.parametrize("prior", [[0.3 + 4e-10, 0.7 - 4e-10], {0: 0.3 + 4e-10, 1: 0.7 - 4e-10}])
def test_nearly_the_same_parameters_are_others(partitions, tmp_path, prior):
    kept = str(tmp_path)
    fits = [
        distributed.fit(new(class_prior=one), partitions.parts, checkpoint=kept)
        for one in (np.array([0.3, 0.7]), prior if isinstance(prior, dict) else np.array(prior))
    ]
    assert fits[0].to_bytes() != fits[1].to_bytes()
    assert len(list(tmp_path.rglob("learned.bary"))) == 2
