"""Targets are assigned to groups, and their names become folders."""

from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest

from baryflow.distributed.groups import assign_targets, count_groups
from baryflow.distributed.manifest import Manifest, encode_targets
from baryflow.distributed.output import BackfillPlan, target_folder
from baryflow.distributed.targets import Target

PLAN = BackfillPlan("", "", "pump", None, ["flow"], 32, "off", 100)


def manifest(rows):
    return Manifest([], {f"m{i}": int(n) for i, n in enumerate(rows)})


def test_an_epoch_ends_when_it_is_full_or_at_the_end_of_its_files():
    for ends in ([250, 250, 280], [250]):  # more files do not change earlier epochs
        target = Target(SimpleNamespace(plan=PLAN), "7", ends)
        found = [target.epoch_end(row) for row in (0, 99, 100, 200, 249)]
        assert found == [100, 100, 200, 250, 250]
    assert Target(SimpleNamespace(plan=PLAN), "7", [250, 250, 280]).epoch_end(250) == 280


def test_groups_have_similar_numbers_of_rows():
    rows = np.random.default_rng(0).integers(1, 1000, size=200)
    found = assign_targets([manifest(rows)], 8, PLAN)
    assert [target for group in found for target in group] == [f"m{i}" for i in range(200)]
    shares = [sum(rows[int(target[1:])] for target in group) / rows.sum() for group in found]
    assert len(found) == 8
    assert max(shares) < 1.15 / 8


def test_one_large_target_does_not_leave_the_others_without_groups():
    found = assign_targets([manifest([10_000, *[1] * 99])], 4, PLAN)
    assert found[0] == ["m0"]


def test_groups_are_limited_by_the_memory_of_buffered_rows():
    plan = BackfillPlan("", "", "pump", None, [f"s{i}" for i in range(112)], 32, "off", 16 << 10)
    found = assign_targets([manifest([1] * 100)], 1, plan)
    assert max(map(len, found)) == 8  # 128 MB


def test_many_workers_have_several_groups_each():
    assert (count_groups(1, shared_files=False), count_groups(1, shared_files=True)) == (64, 16)
    assert count_groups(100, shared_files=False) == 800
    assert count_groups(100, shared_files=True) == 300


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
