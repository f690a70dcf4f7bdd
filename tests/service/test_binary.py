"""Rows as NPY and as Arrow streams: the same answers as for JSON, and every damaged body is refused."""

import io
import tracemalloc

import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baryflow.client import Client
from baryflow.service.binary import ARROW, NPY
from baryflow.service.errors import RequestError
from baryflow.service.parsing import JSON, Parser
from tests.service.conftest import COLUMNS, post, serve

PARSER = Parser(4, COLUMNS, 100)
TABLE = np.arange(20.0).reshape(5, 4)


def npy(rows, **options):
    file = io.BytesIO()
    np.save(file, rows, **options)
    return file.getvalue()


def arrow(columns, compression=None, chunk=None):
    table, file = pa.table(columns), io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return file.getvalue()


def named(rows, names=COLUMNS):
    return {name: np.ascontiguousarray(rows[:, i]) for i, name in enumerate(names)}


@pytest.fixture(scope="module")
def service(model):
    with serve(model) as client:
        yield client


def send(client, name, body, kind, batch_id="one"):
    headers = {"Content-Type": kind, "Idempotency-Key": batch_id}
    return client.post(f"/v1/targets/{name}/rows", content=body, headers=headers)


def predictions(answer):
    assert answer.status_code == 200, answer.text
    return [{**one, "time": ""} for one in answer.json()["predictions"]]


def test_all_formats_get_the_same_predictions(service, rows):
    some = rows[:20].copy()
    some[3, 1] = np.nan
    plain = [[None if np.isnan(value) else value for value in row] for row in some.tolist()]
    json = service.post("/v1/targets/json/rows", json={"rows": plain})
    expected = predictions(json)
    assert predictions(send(service, "npy", npy(some), NPY)) == expected
    assert predictions(send(service, "fortran", npy(np.asfortranarray(some)), NPY)) == expected
    assert predictions(send(service, "big", npy(some.astype(">f8")), NPY)) == expected
    assert predictions(send(service, "arrow", arrow(named(some), chunk=7), ARROW)) == expected
    mixed = named(some[:, ::-1], COLUMNS[::-1])
    assert predictions(send(service, "order", arrow(mixed), ARROW)) == expected
    again = send(service, "npy", npy(some), NPY)
    assert again.json()["repeated"]


def test_arrow_streams_have_times(service, rows):
    for name, times in (
        ("text", [f"day {n}" for n in range(5)]),
        ("stamps", np.arange("2026-03-02", "2026-03-07", dtype="datetime64[D]").astype("M8[ms]")),
    ):
        body = arrow({"time": pa.array(times), **named(rows[:5])})
        found = send(service, name, body, ARROW).json()["predictions"]
        assert [one["time"][:10] for one in found] == [str(time)[:10] for time in times]


def test_missing_and_unknown_columns_are_a_conflict(service, rows):
    for names, word in ((COLUMNS[:3], "missing"), (["heat", "cold", *COLUMNS[2:]], "missing")):
        refused = send(service, "a", arrow(named(rows[:5], names)), ARROW)
        assert refused.status_code == 409
        assert word in refused.json()["error"]


OBJECTS = np.array([["a", None]], dtype=object)
HUGE = b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b"{" * 100
NESTED = b"\x93NUMPY\x01\x00" + (900).to_bytes(2, "little") + b"(" * 900


@pytest.mark.parametrize(
    ("body", "kind", "status", "word"),
    [
        (b"", NPY, 400, "NPY"),
        (npy(TABLE)[:-1], NPY, 400, "bytes"),
        (npy(TABLE) + b"0", NPY, 400, "bytes"),
        (npy(TABLE)[:30], NPY, 400, "header"),
        (HUGE, NPY, 400, "header"),
        (NESTED, NPY, 400, "header"),
        (npy(TABLE).replace(b"(5, 4)", b"(-5,4)"), NPY, 400, "shape"),
        (npy(TABLE).replace(b"(5, 4)", b"(9, 4)"), NPY, 400, "shape"),
        (npy(TABLE).replace(b"(5, 4)", b"(5, 9)"), NPY, 422, "4 columns"),
        (npy(OBJECTS, allow_pickle=True), NPY, 422, "dtype"),
        (npy(np.zeros((2, 4), dtype="U3")), NPY, 422, "dtype"),
        (npy(np.zeros((2, 4), dtype=bool)), NPY, 422, "dtype"),
        (npy(np.zeros((2, 4), dtype=complex)), NPY, 422, "dtype"),
        (npy(np.zeros(2, dtype=[("a", "f8"), ("b", "f8")])), NPY, 422, "dtype"),
        (npy(np.zeros(4)), NPY, 422, "shape"),
        (npy(np.zeros((2, 3))), NPY, 422, "4 columns"),
        (npy(np.zeros((0, 4))), NPY, 422, "no rows"),
        (npy(np.zeros((101, 4))), NPY, 413, "100 rows"),
        (npy(np.full((2, 4), np.inf)), NPY, 422, "row 1: column 'flow'"),
        (b"", ARROW, 400, "Arrow"),
        (npy(TABLE), ARROW, 400, "Arrow"),
        (arrow(named(TABLE))[:-100], ARROW, 400, "Arrow"),
        (arrow(named(TABLE), "zstd"), ARROW, 422, "compressed"),
        (arrow(named(TABLE), "lz4"), ARROW, 422, "compressed"),
        (arrow(named(np.zeros((101, 4)))), ARROW, 413, "100 rows"),
        (arrow(named(np.zeros((0, 4)))), ARROW, 422, "no rows"),
        (arrow(named(TABLE) | {"flow": list("abcde")}), ARROW, 422, "'flow' is string"),
        (arrow(named(TABLE) | {"flow": [[1.0]] * 5}), ARROW, 422, "'flow' is list"),
        (arrow(named(TABLE) | {"time": [1.0] * 5}), ARROW, 200, ""),
        (arrow(named(TABLE) | {"time": [b"\xff"] * 5}), ARROW, 422, "time is binary"),
        (arrow(named(TABLE) | {"time": ["x" * 65] * 5}), ARROW, 422, "row 1: time"),
        (arrow({f"c{n}": [1.0] for n in range(200)}), ARROW, 409, "missing"),
        (
            arrow(named(TABLE) | {"flow": pa.array([1.0] * 5).dictionary_encode()}),
            ARROW,
            422,
            "dictionary",
        ),
    ],
)
def test_bodies_that_are_no_rows_are_refused_with_a_reason(body, kind, status, word):
    if status == 200:
        assert len(PARSER.parse(body, kind, None).rows) == 5
        return
    with pytest.raises(RequestError) as refused:
        PARSER.parse(body, kind, None)
    assert refused.value.status == status
    assert word in refused.value.message


def claim(*shape):
    """Return an NPY body of a few bytes that claims a large shape."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def nulls(n_columns, n_rows, empty=0):
    """Return an Arrow stream of nulls, which need no bytes, and of batches without rows."""
    names = [f"c{j}" for j in range(n_columns)]
    schema, file = pa.schema([(name, pa.null()) for name in names]), io.BytesIO()
    with pa.ipc.new_stream(file, schema) as writer:
        for n in [n_rows] + [0] * empty:
            writer.write_batch(pa.record_batch([pa.nulls(n)] * n_columns, schema=schema))
    return file.getvalue()


def views(n, length):
    """Return an Arrow stream of rows whose times are views of one long text."""
    long = pa.array(["x" * length], pa.string_view()).buffers()
    view = pa.py_buffer(long[1].to_pybytes() * n)
    times = pa.Array.from_buffers(pa.string_view(), n, [None, view, long[2]])
    return arrow({"time": times, **named(np.zeros((n, 4)))})


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (claim(2_500_000, 0), NPY, 413),
        (claim(10**12, 0), NPY, 413),
        (claim(2**62, 0), NPY, 413),
        (claim(0, 2**63 - 1), NPY, 422),
        (claim(0, 4), NPY, 422),
        (claim(10**12, 4), NPY, 413),
        (claim(10**400, 4), NPY, 413),
        (nulls(1000, 100), ARROW, 409),
        (nulls(4, 10**9), ARROW, 413),
        (nulls(4, 0, 3000), ARROW, 422),
        (views(100, 10**5), ARROW, 422),
    ],
)
def test_a_claimed_shape_is_refused_before_memory_is_used(body, kind, status):
    parser = Parser(4, None, 100)
    parser.parse(npy(TABLE), NPY, None)
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes()
        with pytest.raises(RequestError) as refused:
            parser.parse(body, kind, None)
        used = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
    finally:
        tracemalloc.stop()
    assert refused.value.status == status
    assert used < 500_000  # of the values; the bytes of the body are there already


def test_a_service_without_arrow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(RequestError, match="install") as refused:
        PARSER.parse(arrow(named(TABLE)), ARROW, None)
    assert refused.value.status == 415


BODIES = {
    NPY: [npy(TABLE), npy(TABLE.astype("i2")), npy(TABLE.T.astype("f4").T)],
    ARROW: [arrow(named(TABLE)), arrow({"time": list("abcde"), **named(TABLE)}, chunk=2)],
}


@settings(max_examples=300, deadline=None)
@given(data=st.data(), kind=st.sampled_from([NPY, ARROW]))
def test_damaged_bodies_are_parsed_or_refused(data, kind):
    body = bytearray(data.draw(st.sampled_from(BODIES[kind])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body)))
        new = data.draw(st.one_of(st.binary(max_size=9), st.just(b"\xff\xff\xff\x7f")))
        if data.draw(st.booleans()):
            body[at : at + len(new)] = new
        else:
            del body[at:]
    try:
        found = PARSER.parse(bytes(body), kind, None)
    except RequestError as error:
        found = error
    if isinstance(found, RequestError):
        assert found.status in (400, 409, 413, 422)
        assert found.message.isprintable()
    else:
        assert found.rows.shape == (len(found.times), 4)
        assert not np.isinf(found.rows).any()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_every_type_of_numbers_arrives_as_json_does(data):
    n = data.draw(st.integers(1, 5))
    kind = data.draw(st.sampled_from(["f2", "f4", "f8", "i1", "i4", "i8", "u1", "u2", "u8"]))
    values = data.draw(st.lists(st.integers(0, 100), min_size=4 * n, max_size=4 * n))
    table = np.array(values).reshape(n, 4).astype(kind)
    text = str(table.tolist()).encode()
    expected = PARSER.parse(b'{"rows": ' + text + b"}", JSON, None).rows
    for body, format_ in (
        (npy(table), NPY),
        (npy(np.asfortranarray(table)), NPY),
        (arrow(named(table)), ARROW),
    ):
        found = PARSER.parse(body, format_, None).rows
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, expected)


def test_the_client_sends_arrays_as_npy(service, rows):
    kinds = []

    class Transport(httpx.HTTPTransport):
        def handle_request(self, request):
            kinds.append(request.headers["content-type"])
            return super().handle_request(request)

    gaps = rows[:6].copy()
    gaps[2, 2] = np.nan
    with Client(str(service.base_url), transport=Transport()) as client:
        first = client.send("client", gaps, batch_id="one")
        assert client.send("client", gaps, batch_id="one")["repeated"]
        client.send("client", rows[6:8].astype(np.float32))
        client.send("client", rows[8:10], columns=COLUMNS)
        client.send("client", rows[10:12], times=["a", "b"])
        last = client.send("client", rows[12:14].tolist())
    assert kinds == [NPY] * 3 + [JSON] * 3
    assert (first["last"], last["last"]) == (6, 14)
    expected = post(
        service, "same", [[None if np.isnan(v) else v for v in row] for row in gaps.tolist()]
    )
    assert [{**one, "time": ""} for one in first["predictions"]] == predictions(expected)
