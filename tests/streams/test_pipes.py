"""Rows from standard input, as another program sends them."""

import json
import os
import subprocess
import sys
import threading

import pytest

from baryflow.streams import open_source
from tests.streams.files import write

#: Reads batches of two and writes a line for each.
PROGRAM = """
import json, sys
from baryflow.streams import open_source
source = open_source("-", columns=["a", "b"])
if len(sys.argv) > 2:
    source.seek(json.loads(sys.argv[2]))
while (batch := source.read(2, timeout=json.loads(sys.argv[1]))) is not None:
    words = batch.rows.tolist(), batch.positions.tolist(), [one.position for one in batch.rejected]
    print(json.dumps([*words, batch.cursor]), flush=True)
print("end", flush=True)
"""


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        **{"stdin": subprocess.PIPE, **options},
    )


def finish(program):
    with program:
        lines = program.stdout.read().decode().splitlines()
    assert program.returncode == 0
    assert lines.pop() == "end"
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "text",
    [b"b;a\n%;bar\n2;1\n4;3,5\nx;9\n", b'{"a": 1, "b": 2}\n{"b": 4, "a": 3.5}\n{"a": [], "b": 9}'],
)
def test_csv_and_ndjson_are_told_apart(text):
    program = start("null")
    program.stdin.write(text)
    program.stdin.close()
    first, second = finish(program)
    assert first[:3] == [[[1, 2], [3.5, 4]], [1, 2], []]
    assert second[:3] == [[], [], [3]]


def test_a_slow_row_does_not_wait_for_ever_and_the_next_one_is_not_lost():
    program = start("0.05")
    program.stdin.write(b"a,b\n1,2\n3")
    program.stdin.flush()
    assert json.loads(program.stdout.readline())[:2] == [[[1, 2]], [1]]  # while the pipe is still open
    program.stdin.write(b",4\n")
    program.stdin.close()
    assert finish(program)[0][:2] == [[[3, 4]], [2]]


def test_a_pipe_goes_on_counting_where_it_was():
    program = start("null", '{"offset": 99, "position": 41}')
    program.stdin.write(b"a,b\n1,2\n")
    program.stdin.close()
    assert finish(program)[0][1] == [42]


def test_a_redirected_file_goes_on_where_it_was(tmp_path):
    path = write(tmp_path / "rows.csv", "a,b\n1,2\n3,4\n5,6\n")
    with path.open("rb") as file:
        first, second = finish(start("null", stdin=file))
    assert second[0] == [[5, 6]]
    with path.open("rb") as file:
        assert finish(start("null", json.dumps(first[3]), stdin=file))[0][:2] == [[[5, 6]], [3]]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe(tmp_path):
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("a,b\n1,2\n",))
    writer.start()
    source = open_source(path, columns=None)
    assert source.read(5).rows.tolist() == [[1, 2]]
    assert source.read(5) is None
    writer.join()
    source.close()
