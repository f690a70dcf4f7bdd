"""Rows from standard input, as another program sends them."""

import os
import sys
import threading

import pytest

from baryflow.streams import open_source
from tests.streams.files import write


def read(source, timeout=None):
    """Return the next two rows, and the cursor after them; None at the end."""
    batch = source.read(2, timeout=timeout)
    if batch is None:
        return None
    rejected = [one.position for one in batch.rejected]
    return batch.rows.tolist(), batch.positions.tolist(), rejected, batch.cursor


@pytest.fixture
def pipe(monkeypatch):
    """The writing end of a pipe that is standard input."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stdin, os.fdopen(writing, "wb", buffering=0) as pipe:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield pipe


@pytest.mark.parametrize(
    "text",
    [b"b;a\n%;bar\n2;1\n4;3,5\nx;9\n", b'{"a": 1, "b": 2}\n{"b": 4, "a": 3.5}\n{"a": [], "b": 9}'],
)
def test_csv_and_ndjson_are_distinguished(pipe, text):
    pipe.write(text)
    pipe.close()
    source = open_source("-", columns=["a", "b"])
    assert read(source)[:3] == ([[1, 2], [3.5, 4]], [1, 2], [])
    assert read(source)[:3] == ([], [], [3])
    assert read(source) is None


def test_a_timeout_ends_a_batch_and_the_next_row_is_not_lost(pipe):
    pipe.write(b"a,b\n1,2\n3")
    source = open_source("-", columns=["a", "b"])
    assert read(source, 0.05)[:2] == ([[1, 2]], [1])  # while the pipe is still open
    pipe.write(b",4\n")
    pipe.close()
    assert read(source, 0.05)[:2] == ([[3, 4]], [2])
    assert read(source) is None


def test_a_pipe_continues_counting_after_seek(pipe):
    pipe.write(b"a,b\n1,2\n")
    pipe.close()
    source = open_source("-", columns=["a", "b"])
    source.seek({"offset": 99, "position": 41})
    assert read(source)[1] == [42]


def test_a_redirected_file_resumes_where_it_was(tmp_path, monkeypatch):
    path = write(tmp_path / "rows.csv", "a,b\n1,2\n3,4\n5,6\n")
    with path.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", file)
        source = open_source("-", columns=["a", "b"])
        *_, cursor = read(source)
        assert read(source)[0] == [[5, 6]]
        source.close()
    with path.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", file)
        source = open_source("-", columns=["a", "b"])
        source.seek(cursor)
        assert read(source)[:2] == ([[5, 6]], [3])
        source.close()


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
