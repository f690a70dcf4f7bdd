import json
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from baryflow.exceptions import InvalidInputError
from baryflow.streams import open_sink
from tests.streams.files import require

RECORDS = [
    {"position": 1, "time": "a, b", "label": "süß", "probability": 0.1, "novelty": float("nan")},
    {
        "position": np.int64(2),
        "time": "",
        "label": 'x"y',
        "probability": np.float64(0.25),
        "novelty": None,
    },
    {"position": 3, "time": "\n", "label": "z", "probability": 1e-300, "novelty": np.float32(0.5)},
]
PLAIN = [
    {"position": 1, "time": "a, b", "label": "süß", "probability": 0.1, "novelty": None},
    {"position": 2, "time": "", "label": 'x"y', "probability": 0.25, "novelty": None},
    {"position": 3, "time": "\n", "label": "z", "probability": 1e-300, "novelty": 0.5},
]


def test_ndjson(tmp_path):
    sink = open_sink(tmp_path / "a.ndjson")
    sink.write(RECORDS)
    sink.flush()
    assert sink.position == (tmp_path / "a.ndjson").stat().st_size
    sink.close()
    sink.close()
    lines = (tmp_path / "a.ndjson").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == PLAIN


def test_csv_reads_back(tmp_path):
    import csv

    sink = open_sink(tmp_path / "a.csv")
    sink.write(RECORDS[:1])
    sink.write(RECORDS[1:])
    with pytest.raises(InvalidInputError, match="as in the header"):
        sink.write([{"position": 4}])
    sink.close()
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert found == [
        {name: "" if value is None else str(value) for name, value in record.items()} for record in PLAIN
    ]


def test_csv_has_a_header_even_if_the_first_batch_was_refused(tmp_path):
    sink = open_sink(tmp_path / "a.csv")
    with pytest.raises(InvalidInputError, match="as in the header"):
        sink.write([{"a": 1}, {"b": 2}])
    sink.write([{"b": 2}])
    sink.close()
    assert (tmp_path / "a.csv").read_text() == "b\n2\n"


@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet"])
def test_truncated_and_rewritten_files_equal_those_written_once(tmp_path, suffix):
    if suffix == "parquet":
        require("pyarrow")
    path = tmp_path / f"a.{suffix}"
    written = tmp_path / ("a.parquet.partial.ndjson" if suffix == "parquet" else f"a.{suffix}")
    once = open_sink(path)
    once.write(RECORDS)
    once.close(finished=False)
    whole = written.read_bytes()
    sink = open_sink(path)
    positions = [sink.position]
    for record in RECORDS:
        sink.write([record])
        positions.append(sink.position)
    sink.close(finished=False)
    for count, position in enumerate(positions):
        sink = open_sink(path, resume=True)
        sink.truncate(position)
        sink.write(RECORDS[count:])
        assert sink.position == len(whole)
        with pytest.raises(InvalidInputError, match="shorter"):
            sink.truncate(len(whole) + 1)
        sink.truncate(len(whole))
        sink.close(finished=False)
        assert written.read_bytes() == whole


def test_parquet(tmp_path):
    require("pyarrow")
    import pyarrow.parquet as pq

    sink = open_sink(tmp_path / "a.parquet")
    sink.write(RECORDS)
    assert not (tmp_path / "a.parquet").exists()
    sink.close()
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == PLAIN
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_parquet_columns_that_are_null_at_first(tmp_path, monkeypatch):
    require("pyarrow")
    import pyarrow.parquet as pq

    monkeypatch.setattr("baryflow.streams.sinks._GROUP", 10)
    sink = open_sink(tmp_path / "a.parquet")
    records = [
        {"i": i, "late": None if i < 25 else i / 2, "mixed": i if i < 15 else i + 0.5} for i in range(40)
    ]
    sink.write(records)
    sink.close()
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == records


def test_parquet_without_records(tmp_path):
    require("pyarrow")
    open_sink(tmp_path / "a.parquet").close()
    assert (tmp_path / "a.parquet").is_file()


def test_standard_output():
    program = """
from baryflow.streams import open_sink
sink = open_sink("-")
sink.write([{"a": 1}])
sink.flush()
assert sink.position == 9
try:
    sink.truncate(0)
except ValueError as error:
    sink.write([{"error": str(error)[:13]}])
sink.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b'{"a": 1}\n{"error": "cannot resume"}\n'


def test_sinks_that_cannot_be_opened(tmp_path):
    with pytest.raises(InvalidInputError, match=r"ends with \.ndjson"):
        open_sink(tmp_path / "a.xlsx")
    with pytest.raises(InvalidInputError, match="cannot resume"):
        open_sink(tmp_path / "a.csv", resume=True)
    sink = open_sink(tmp_path / "a.ndjson")
    with pytest.raises(TypeError, match="a record can hold"):
        sink.write([{"a": object()}])
    sink.close()


# -- rotation ------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a SIGKILL between two file operations."""


EVENTS = st.sampled_from(["", "checkpoint", "kill", "kill without buffer"])


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def abandon(sink, folder, *, keep_buffer):
    """Leave the files of a sink as a kill would, with or without what is buffered."""
    on_disk = contents(folder)
    sink.close()
    for name, data in on_disk.items():
        if not keep_buffer:
            (folder / name).write_bytes(data)


def write_with_kills(path, records, limit, steps, kill_at):
    """Write records in steps, die between them or at file operations, and resume from checkpoints.

    `steps` are pairs of a number of records and what happens then: nothing, a checkpoint, or a kill that
    loses what is buffered or does not. `kill_at` are numbers of renames and removals before or after
    which the process dies.
    """
    operations = iter(range(10_000))

    def dying(original):
        def operate(*arguments, **options):
            if next(operations) in kill_at:
                raise Killed
            found = original(*arguments, **options)
            if next(operations) in kill_at:
                raise Killed
            return found

        return operate

    sink, done, saved, steps = None, 0, (0, 0), list(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", dying(Path.replace))
        patch.setattr(Path, "unlink", dying(Path.unlink))
        while sink is None or done < len(records):
            try:
                if sink is None:
                    sink = open_sink(path, resume=saved != (0, 0), rotate=limit)
                    sink.truncate(saved[1])
                    done = saved[0]
                count, event = steps.pop(0) if steps else (len(records), "")
                sink.write(records[done : done + count])
                done = min(len(records), done + count)
                if event == "checkpoint":
                    sink.flush()
                    saved = done, sink.position
                elif event in ("kill", "kill without buffer"):
                    abandon(sink, path.parent, keep_buffer=event == "kill")
                    sink = None
            except Killed:
                sink = None
    sink.close()


TWICE = [(1, "checkpoint"), (5, "kill"), (0, "kill")]  # the second kill follows an undone rotation


@settings(max_examples=100, deadline=None)
@example(lengths=[0] * 9, limit=1, steps=TWICE, kill_at=set(), suffix="csv")
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=30),
    limit=st.integers(1, 200),
    steps=st.lists(st.tuples(st.integers(0, 9), EVENTS), max_size=12),
    kill_at=st.sets(st.integers(0, 30), max_size=4),
    suffix=st.sampled_from(["ndjson", "csv"]),
)
def test_a_killed_and_resumed_run_writes_the_same_rotated_files(
    tmp_path_factory, lengths, limit, steps, kill_at, suffix
):
    records = [{"n": n, "text": "x" * length} for n, length in enumerate(lengths)]
    whole, killed = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("killed")
    sink = open_sink(whole / f"out.{suffix}", rotate=limit)
    sink.write(records)
    sink.close()
    write_with_kills(killed / f"out.{suffix}", records, limit, steps, kill_at)
    assert contents(killed) == contents(whole)


@pytest.mark.parametrize("suffix", ["ndjson", "csv"])
def test_rotated_files_hold_all_records_and_repeat_the_header(tmp_path, suffix):
    sink = open_sink(tmp_path / f"out.{suffix}", rotate="100B")
    sink.write([{"n": n, "text": "x" * 20} for n in range(20)])
    sink.close()
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files[:2]] == [f"out-000001.{suffix}", f"out-000002.{suffix}"]
    assert files[-1].name == f"out.{suffix}"
    assert all(100 <= path.stat().st_size < 200 for path in files[:-1])
    lines = [path.read_text().splitlines() for path in files]
    if suffix == "csv":
        assert {one.pop(0) for one in lines} == {"n,text"}
        assert [int(line.split(",")[0]) for one in lines for line in one] == list(range(20))
    else:
        assert [json.loads(line)["n"] for one in lines for line in one] == list(range(20))


def test_full_files_may_be_moved_away_after_a_checkpoint(tmp_path):
    path = tmp_path / "out.csv"
    sink = open_sink(path, rotate=50)
    records = [{"n": n, "text": "x" * 20} for n in range(20)]
    sink.write(records[:10])
    sink.flush()
    position = sink.position
    sink.write(records[10:12])
    sink.close()
    moved = [tmp_path / f"out-00000{number}.csv" for number in (1, 2)]
    kept = [one.read_bytes() for one in moved]
    for one in moved:
        one.unlink()
    sink = open_sink(path, resume=True, rotate=50)
    sink.truncate(position)
    sink.write(records[10:])
    sink.close()
    for one, data in zip(moved, kept, strict=True):
        one.write_bytes(data)
    found = contents(tmp_path)
    for one in tmp_path.iterdir():
        one.unlink()
    sink = open_sink(path, rotate=50)
    sink.write(records)
    sink.close()
    assert found == contents(tmp_path)


def test_a_full_file_that_is_needed_to_resume_is_named_if_it_is_missing(tmp_path):
    sink = open_sink(tmp_path / "out.ndjson", rotate=10)
    sink.write([{"n": 1}])
    position = sink.position
    sink.write([{"n": n} for n in range(10)])
    sink.close()
    (tmp_path / "out-000001.ndjson").unlink()
    sink = open_sink(tmp_path / "out.ndjson", resume=True, rotate=10)
    with pytest.raises(InvalidInputError, match=r"out-000001\.ndjson does not exist"):
        sink.truncate(position)
    sink.close()


def test_a_new_run_replaces_rotated_files_and_no_others(tmp_path):
    names = ["out-1.ndjson", "out-000001.csv", "outer-000001.ndjson"]
    names += ["out-20260131.ndjson", "out-202601.ndjson"]  # dates
    others = [tmp_path / name for name in names]
    for path in others:
        path.write_text("kept")
    for count in (9, 1):
        sink = open_sink(tmp_path / "out.ndjson", rotate=10)
        sink.write([{"number": n} for n in range(count)])
        sink.close()
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "out.ndjson", *others])


@pytest.mark.parametrize(
    ("name", "rotate", "match"),
    [
        ("a.ndjson", "much", "expected a size"),
        ("a.ndjson", "0MB", "expected a size"),
        ("a.ndjson", "2000GB", "expected a size"),
        ("a.parquet", "1MB", "can be rotated"),
        ("-", "1MB", "can be rotated"),
        ("mqtt://h/a", 1000, "can be rotated"),
    ],
)
def test_outputs_that_cannot_be_rotated(tmp_path, name, rotate, match):
    path = tmp_path / name if name.startswith("a.") else name
    with pytest.raises(InvalidInputError, match=match):
        open_sink(path, rotate=rotate)


def test_a_rotated_output_cannot_be_resumed_without_rotation(tmp_path):
    sink = open_sink(tmp_path / "out.ndjson", rotate="1kB")
    sink.write([{"n": n} for n in range(500)])
    sink.close()
    sink = open_sink(tmp_path / "out.ndjson", resume=True)
    with pytest.raises(InvalidInputError, match="was rotated"):
        sink.truncate(1 << 40)
    sink.close()
