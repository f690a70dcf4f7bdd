import json
import subprocess
import sys

import numpy as np
import pytest

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
    sink.flush(sync=True)
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


@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet"])
def test_what_was_cut_and_written_again_is_as_if_written_once(tmp_path, suffix):
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


def test_parquet_of_many_records_that_are_empty_at_first(tmp_path, monkeypatch):
    require("pyarrow")
    import pyarrow.parquet as pq

    monkeypatch.setattr("baryflow.streams.sinks._PACKED", 10)
    sink = open_sink(tmp_path / "a.parquet")
    records = [
        {"i": i, "late": None if i < 25 else i / 2, "mixed": i if i < 15 else i + 0.5} for i in range(40)
    ]
    sink.write(records)
    sink.close()
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == records


def test_parquet_of_nothing(tmp_path):
    require("pyarrow")
    open_sink(tmp_path / "a.parquet").close()
    assert (tmp_path / "a.parquet").is_file()


def test_standard_output():
    program = """
from baryflow.streams import open_sink
sink = open_sink("-")
sink.write([{"a": 1}])
sink.flush(sync=True)
assert sink.position == 9
try:
    sink.truncate(0)
except ValueError as error:
    sink.write([{"said": str(error)[:8]}])
sink.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b'{"a": 1}\n{"said": "what was"}\n'


def test_sinks_that_cannot_be_opened(tmp_path):
    with pytest.raises(InvalidInputError, match=r"ends with \.ndjson"):
        open_sink(tmp_path / "a.xlsx")
    with pytest.raises(InvalidInputError, match="gone on with"):
        open_sink(tmp_path / "a.csv", resume=True)
    sink = open_sink(tmp_path / "a.ndjson")
    with pytest.raises(TypeError, match="a record can hold"):
        sink.write([{"a": object()}])
    sink.close()
