"""Transports that are added from outside, with public names only."""

import subprocess
import sys

import numpy as np
import pytest

from baryflow.exceptions import InvalidInputError
from baryflow.streams import (
    Batch,
    Credentials,
    Endpoint,
    RetryPolicy,
    Sink,
    Source,
    SourceOptions,
    open_sink,
    open_source,
    register_transport,
)


class ListSource(Source):
    """Rows of a list; the cursor is the number of rows that were read."""

    columns, wanted = ["a", "b"], None

    def __init__(self, rows, options):
        self.wanted = list(options.columns or self.columns)
        self._rows, self._position = rows, 0

    def read(self, n, timeout=None):  # noqa: ARG002 - a list never waits
        rows = self._rows[self._position : self._position + n]
        if not rows:
            return None
        first, self._position = self._position + 1, self._position + len(rows)
        return Batch(
            rows=np.array([[row[name] for name in self.wanted] for row in rows], dtype=float),
            positions=np.arange(first, self._position + 1),
            times=[""] * len(rows),
            keys=[""] * len(rows),
            rejected=[],
            cursor={"position": self._position},
        )

    def seek(self, cursor):
        self._position = cursor["position"]

    def close(self):
        pass


class ListSink(Sink):
    """Appends records to a list."""

    position = 0

    def __init__(self, records):
        self._records = records

    def write(self, records):
        self._records += records
        self.position += len(records)

    def truncate(self, position):
        pass

    def flush(self):
        pass

    def close(self, finished=True):
        pass


class MemoryTransport:
    """Topics are lists in memory."""

    def __init__(self):
        self.topics = {}
        self.calls = []

    def open_source(self, endpoint, options):
        self.calls.append((endpoint, options))
        return ListSource(self.topics[endpoint.path], options)

    def open_sink(self, endpoint):
        return ListSink(self.topics.setdefault(endpoint.path, []))


def test_a_registered_transport_opens_sources_and_sinks():
    transport = MemoryTransport()
    register_transport("memory", transport)
    sink = open_sink("memory://here/rows")
    sink.write([{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}])
    sink.close()
    user = Credentials("user", "word")
    source = open_source(
        "memory://here:17/rows?x=y", columns=["b"], credentials=user, sample_interval=2.0
    )
    first = source.read(2)
    assert first.rows.tolist() == [[2], [4]]
    resumed = open_source("memory://here/rows", columns=["b"])
    resumed.seek(first.cursor)
    assert resumed.read(2).rows.tolist() == [[6]]
    assert resumed.read(2) is None
    endpoint, options = transport.calls[0]
    assert endpoint == Endpoint("memory", "here", 17, "rows", {"x": "y"}, credentials=user)
    assert "word" not in repr(endpoint)
    assert options == SourceOptions(columns=["b"], sample_interval=2.0)
    given = Endpoint.parse("memory://here/rows", user, RetryPolicy(grace=1.0))
    open_source(given, columns=["a"]).close()
    assert transport.calls[-1][0] is given
    with pytest.raises(InvalidInputError, match="registered already"):
        register_transport("memory", transport)


@pytest.mark.parametrize("scheme", ["mqtt", "kafka+ssl", "opc.tcp", "", "Upper", "x://"])
def test_a_scheme_that_is_taken_or_invalid_is_refused(scheme):
    with pytest.raises(InvalidInputError, match="scheme"):
        register_transport(scheme, MemoryTransport())


def test_a_package_adds_a_transport_with_an_entry_point(tmp_path, monkeypatch):
    (tmp_path / "toy_transport.py").write_text(
        "def open_sink(endpoint):\n    return f'sink for {endpoint}'\n"
    )
    info = tmp_path / "toy_transport-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-transport\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[baryflow.transports]\ntoy = toy_transport\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert open_sink("toy://host/topic") == "sink for toy://host/topic"
        with pytest.raises(InvalidInputError, match=r"toy://.*got unknown://"):
            open_sink("unknown://host/topic")
    finally:
        sys.modules.pop("toy_transport", None)


@pytest.mark.parametrize(
    ("package", "url", "extra"),
    [
        ("paho", "mqtt://h/a", "mqtt"),
        ("confluent_kafka", "kafka://h/a", "kafka"),
        ("asyncua", "opc.tcp://h/a?serve", "opcua"),
    ],
)
def test_a_package_is_imported_on_first_use_and_its_extra_is_named(package, url, extra):
    code = (
        f"import sys; sys.modules['{package}'] = None\n"
        "from baryflow.streams import open_sink\n"
        f"try:\n    open_sink('{url}')\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'baryflow[{extra}]'" in done.stdout
