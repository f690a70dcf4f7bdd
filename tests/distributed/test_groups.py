import gc
import tracemalloc
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest

from baryflow.distributed.fleet.groups import assign_targets, bytes_per_target
from baryflow.distributed.fleet.job import BackfillPlan, Counts, target_folder
from baryflow.distributed.fleet.manifest import Manifest, cut_epochs, encode_targets
from baryflow.distributed.fleet.worker import Slice, Target, read_slices
from baryflow.distributed.parquet import Partition
from baryflow.runtime import Rows


def manifest(rows, first):
    targets = [f"m{i}" for i in range(len(rows))]
    return Manifest([], targets, np.array(rows), np.array(first), 0)


def test_an_epoch_ends_when_it_is_full_or_at_the_end_of_its_files():
    assert list(cut_epochs([250, 0, 30], 100)) == [(0, 100), (100, 200), (200, 250), (250, 280)]
    # More files do not change earlier epochs.
    assert list(cut_epochs([250], 100)) == list(cut_epochs([250, 0, 30], 100))[:3]


def test_groups_have_similar_numbers_of_rows():
    rows = np.random.default_rng(0).integers(1, 1000, size=200)
    found = assign_targets([manifest(rows, [0] * 200)], 8, 1000)
    assert sorted(target for group in found for target in group) == sorted(f"m{i}" for i in range(200))
    shares = [sum(rows[int(target[1:])] for target in group) / rows.sum() for group in found]
    assert len(found) == 8
    assert max(shares) < 1.15 / 8


def test_targets_of_one_file_stay_together():
    assert assign_targets([manifest([1] * 6, [2, 0, 1, 2, 1, 0])], 3, 1000) == [
        ["m1", "m5"], ["m2", "m4"], ["m0", "m3"]
    ]  # fmt: skip


def test_one_large_target_does_not_leave_the_others_without_groups():
    found = assign_targets([manifest([10_000, *[1] * 99], range(100))], 4, 1000)
    assert found[0] == ["m0"]


def test_groups_are_limited_by_the_memory_of_buffered_rows():
    found = assign_targets([manifest([1] * 100, [0] * 100)], 1, 16 << 20)
    assert max(map(len, found)) == 8  # 128 MB


def fill_buffers(plan, size):
    """Return ten targets with rows from many files that almost complete an epoch."""
    targets = {f"m{i}": Target(None, f"m{i}", [(0, plan.epoch_rows)]) for i in range(10)}
    seen = dict.fromkeys(targets, 0)
    for _ in range((plan.epoch_rows - 1) // size):
        rows = {"pump": list(targets) * size, "when": ["2026-11-16T20:00:00.000"] * 10 * size}
        batch = pa.record_batch(rows | {name: np.zeros(10 * size) for name in plan.columns})
        folder = SimpleNamespace(batches=lambda *_, batch=batch: [batch])
        for target, some in read_slices(folder, Partition("in", (0,), 10 * size), plan, targets, seen):
            target.add(some)
    return targets


@pytest.mark.parametrize("n_columns", [1, 20])
@pytest.mark.parametrize("size", [1, 7, 80])
@pytest.mark.parametrize("time", [None, "when"])
def test_buffered_rows_take_no_more_memory_than_estimated(n_columns, size, time):
    columns = [f"s{i}" for i in range(n_columns)]
    plan = BackfillPlan("", "", "pump", time, columns, 32, "off", 161)
    fill_buffers(plan, size)  # imports and caches of the first call do not count
    tracemalloc.start()
    try:
        targets = fill_buffers(plan, size)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for target in targets.values():
        positions = np.concatenate([some.rows.positions for some in target.buffered])
        assert positions.tolist() == list(range(1, 160 // size * size + 1))
    assert used < len(targets) * bytes_per_target(plan)


def test_buffered_rows_do_not_keep_processed_rows_in_memory(monkeypatch):
    rows = Rows(np.zeros((1000, 4)), np.arange(1, 1001), [""] * 1000, [""] * 1000)
    target = Target(None, "7", list(cut_epochs([2000], 900)))

    def process(target, _, epoch):
        target.counts, target.epochs_done = Counts(epoch.stop), target.epochs_done + 1

    monkeypatch.setattr(Target, "_resume", lambda _: None)
    monkeypatch.setattr(Target, "_process", process)
    target.add(Slice(rows, [], 0, 1000))
    assert list(target.advance()) == [0]
    (rest,) = target.buffered
    assert (rest.start, rest.stop, rest.rows.values.base) == (900, 1000, None)


def test_names_of_targets_do_not_depend_on_the_column_type():
    for column in (pa.array([7, 8, 7]), pa.array([7.0, 8.0, 7.0, None]), pa.array(["7", " 8", "7 "])):
        names, codes = encode_targets(column)
        assert [names[code] for code in codes[:3]] == ["7", "8", "7"]
    assert encode_targets(pa.array([7.5]))[0][0] == "7.5"


@pytest.mark.parametrize(("kind", "n"), [(pa.int8(), 128), (pa.uint8(), 256)])
def test_categories_may_use_all_codes_of_their_type(kind, n):
    words = [f"m{i}" for i in range(n)]
    column = pa.DictionaryArray.from_arrays(pa.array([*range(n), None], kind), pa.array(words))
    names, codes = encode_targets(column)
    assert [names[code] for code in codes] == [*words, ""]


def test_every_target_has_a_folder_of_its_own():
    short = ["7", "a/b .", "a" * 248]
    assert [unquote(target_folder(name)) for name in short] == [f"target={name}" for name in short]
    long = ["a" * 249, "a" * 250, "ü" * 60, "ü" * 61, "😀" * 60, "ü" * 5000]
    long += [unquote(target_folder(name)).removeprefix("target=") for name in long]  # valid names
    names = {target_folder(name) for name in short + long}
    assert len(names) == len(short + long)
    assert max(map(len, names)) <= 255
    assert unquote(target_folder("ü" * 60), errors="strict").startswith("target=üüü")
