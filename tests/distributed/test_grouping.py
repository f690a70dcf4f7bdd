import gc
import tracemalloc
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest
from distributed import KilledWorker

from baryflow.distributed.fleet import submit as submitting
from baryflow.distributed.fleet.assign import deal, weigh
from baryflow.distributed.fleet.manifest import Arrival, cut, folder_of, split_keys
from baryflow.distributed.fleet.slices import slices
from baryflow.distributed.fleet.worker import Counts, Plan, Slice, Target
from baryflow.distributed.parquet import Piece
from baryflow.exceptions import UnreachableError
from baryflow.runtime import Rows


def arrival(rows, first):
    keys = [f"m{i}" for i in range(len(rows))]
    return Arrival([], keys, np.array(rows), np.array(first), 0)


def test_an_epoch_ends_when_it_is_full_and_with_its_arrival():
    assert list(cut([250, 0, 30], 100)) == [(0, 100), (100, 200), (200, 250), (250, 280)]
    # What came before stays cut as it was.
    assert list(cut([250], 100)) == list(cut([250, 0, 30], 100))[:3]


def test_groups_have_about_equally_many_rows():
    rows = np.random.default_rng(0).integers(1, 1000, size=200)
    found = deal([arrival(rows, [0] * 200)], 8, 1000)
    assert sorted(key for keys in found for key in keys) == sorted(f"m{i}" for i in range(200))
    shares = [sum(rows[int(key[1:])] for key in keys) / rows.sum() for keys in found]
    assert len(found) == 8
    assert max(shares) < 1.15 / 8


def test_targets_of_one_file_stay_together():
    assert deal([arrival([1] * 6, [2, 0, 1, 2, 1, 0])], 3, 1000) == [
        ["m1", "m5"], ["m2", "m4"], ["m0", "m3"]
    ]  # fmt: skip


def test_one_large_target_does_not_leave_the_others_without_groups():
    found = deal([arrival([10_000, *[1] * 99], range(100))], 4, 1000)
    assert found[0] == ["m0"]


def test_groups_are_small_enough_for_the_memory_of_rows_that_wait():
    found = deal([arrival([1] * 100, [0] * 100)], 1, 16 << 20)
    assert max(map(len, found)) == 8  # 128 MB


def let_wait(plan, size):
    """Return ten targets that have some rows in each of many files, all but a whole epoch."""
    targets = {f"m{i}": Target(None, f"m{i}", [(0, plan.epoch_rows)]) for i in range(10)}
    seen = dict.fromkeys(targets, 0)
    for _ in range((plan.epoch_rows - 1) // size):
        rows = {"machine": list(targets) * size, "when": ["2026-11-16T20:00:00.000"] * 10 * size}
        batch = pa.record_batch(rows | {name: np.zeros(10 * size) for name in plan.columns})
        folder = SimpleNamespace(batches=lambda *_, batch=batch: [batch])
        for target, some in slices(folder, Piece("in", (0,), 10 * size), plan, targets, seen):
            target.take(some)
    return targets


@pytest.mark.parametrize("n_columns", [1, 20])
@pytest.mark.parametrize("size", [1, 7, 80])
@pytest.mark.parametrize("time", [None, "when"])
def test_rows_that_wait_take_no_more_memory_than_is_counted_on(n_columns, size, time):
    columns = [f"s{i}" for i in range(n_columns)]
    plan = Plan("", "", "machine", time, columns, 32, "off", 161)
    let_wait(plan, size)  # what is imported and kept in the first call does not count
    tracemalloc.start()
    try:
        targets = let_wait(plan, size)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for target in targets.values():
        positions = np.concatenate([some.rows.positions for some in target.waiting])
        assert positions.tolist() == list(range(1, 160 // size * size + 1))
    assert used < len(targets) * weigh(plan)


def test_what_waits_after_an_epoch_does_not_hold_the_rows_before_it(monkeypatch):
    rows = Rows(np.zeros((1000, 4)), np.arange(1, 1001), [""] * 1000, [""] * 1000)
    target = Target(None, "7", list(cut([2000], 900)))

    def follow(target, _, some):
        target.counts, target.done = Counts(some.stop), target.done + 1

    monkeypatch.setattr(Target, "_resume", lambda _: None)
    monkeypatch.setattr(Target, "_follow", follow)
    target.take(Slice(rows, [], 0, 1000))
    assert list(target.advance()) == [0]
    (rest,) = target.waiting
    assert (rest.start, rest.stop, rest.rows.values.base) == (900, 1000, None)


class Future:
    def __init__(self, outcome):
        self.outcome = outcome
        self.status = "error" if isinstance(outcome, Exception) else "finished"
        self.status = "lost" if outcome == "lost" else self.status

    def result(self):
        return self.outcome

    exception = result


class Client:
    """Gives each job the next of its outcomes."""

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


@pytest.fixture(autouse=True)
def all_done(monkeypatch):
    monkeypatch.setattr(submitting, "_wait", lambda _, futures: futures[:1])


def work(job):
    raise NotImplementedError


def test_what_gets_on_is_submitted_again_however_often_workers_die(killed):
    client, done = Client(*[killed] * 9, "done"), iter([0, 0, 0, 1, 1, 1, 1, 2, 2])
    assert list(submitting.complete(client, work, ["job"], progress=lambda _: next(done))) == [
        (0, "done")
    ]
    assert client.submitted == 10


def test_what_kills_its_workers_is_given_up(killed):
    client = Client(*[killed] * 9)
    assert list(submitting.complete(client, work, ["job"], progress=lambda _: 3)) == [(0, killed)]
    assert client.submitted == 5  # it had got on before the first time, and never since


def test_an_error_does_not_cost_the_other_jobs():
    error = OSError("gone")
    client = Client(error, "done")
    found = dict(submitting.complete(client, work, ["a", "b"], progress=lambda _: 0))
    assert found == {0: error, 1: "done"}


def test_a_scheduler_that_is_gone_is_told_of_and_the_rest_is_cancelled():
    client = Client("lost", "done")
    with pytest.raises(UnreachableError, match="call it again"):
        list(submitting.complete(client, work, ["a", "b"], progress=lambda _: 0))
    assert [future.outcome for future in client.cancelled] == ["done"]


def test_a_key_is_the_same_in_files_with_gaps_and_without():
    for column in (pa.array([7, 8, 7]), pa.array([7.0, 8.0, 7.0, None]), pa.array(["7", " 8", "7 "])):
        names, codes = split_keys(column)
        assert [names[code] for code in codes[:3]] == ["7", "8", "7"]
    assert split_keys(pa.array([7.5]))[0][0] == "7.5"


@pytest.mark.parametrize(("kind", "n"), [(pa.int8(), 128), (pa.uint8(), 256)])
def test_categories_may_be_as_many_as_their_numbers_can_count(kind, n):
    words = [f"m{i}" for i in range(n)]
    column = pa.DictionaryArray.from_arrays(pa.array([*range(n), None], kind), pa.array(words))
    names, codes = split_keys(column)
    assert [names[code] for code in codes] == [*words, ""]


def test_any_key_has_a_folder_of_its_own():
    short = ["7", "a/b .", "a" * 248]
    assert [unquote(folder_of(key)) for key in short] == [f"target={key}" for key in short]
    long = ["a" * 249, "a" * 250, "ü" * 60, "ü" * 61, "😀" * 60, "ü" * 5000]
    long += [unquote(folder_of(key)).removeprefix("target=") for key in long]  # a name is a key, too
    names = {folder_of(key) for key in short + long}
    assert len(names) == len(short + long)
    assert max(map(len, names)) <= 255
    assert unquote(folder_of("ü" * 60), errors="strict").startswith("target=üüü")
