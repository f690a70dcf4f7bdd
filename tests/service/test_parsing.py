"""Slow, oversized, interrupted and malicious requests."""

import contextlib
import json
import random
import re
import select
import socket
import tracemalloc

import numpy as np
import pytest

from baryflow.service.errors import RequestError
from baryflow.service.parsing import JSON, NDJSON, Parser
from tests.service.conftest import post, serve
from tests.waiting import wait_until

MB = 2**20
PIECES = [
    b"null", b"1e999", b'"', b"[", b"]", b"{", b"}", b",", b"-", b"\\ud800", b"\x00", b"\xff", b"NaN",
    b"9" * 400, b'"rows":', b"true", b"\n", b"\r", b"\\u0000", b"e5",
]  # fmt: skip


@pytest.fixture(scope="module")
def service(model):
    with serve(model, seconds=1.0, body=MB, buffered=4 * MB) as client:
        yield client


def raw(client, *parts, pause=0.0):
    """Send bytes until the service answers, and return the response.

    The service may answer and close before it has read everything. Bytes that it has not read make the
    system reset the connection instead of closing it; the response comes before the reset.
    """
    url, found = client.base_url, b""
    with socket.create_connection((url.host, url.port), timeout=300) as sock:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for part in parts:
                sock.sendall(part)
                if pause and select.select([sock], [], [], pause)[0]:
                    break
        with contextlib.suppress(ConnectionResetError):
            while some := sock.recv(65536):
                found += some
    return found


def head(length, path="/v1/targets/a/rows", more=""):
    lines = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{lines}Content-Length: {length}\r\n{more}\r\n".encode()


def test_a_body_that_does_not_arrive_times_out(service):
    assert b" 408 " in raw(service, head(100), b'{"rows"')


def test_a_body_that_arrives_slowly_times_out(service):
    assert b" 408 " in raw(service, head(10_000), *[b"["] * 9_000, pause=0.2)


def test_incomplete_headers_time_out(service):
    assert raw(service, b"POST /v1/targets/a/rows HTTP/1.1\r\nHost: loc") == b""
    assert raw(service, b"") == b""


def test_an_absurd_content_length_is_refused(service):
    for digits in (16, 5000):
        assert raw(service, head("9" * digits)).split()[1] in (b"400", b"413")


@pytest.mark.parametrize(
    "framing",
    ["Content-Length: 2\r\nTransfer-Encoding: chunked",
     "Transfer-Encoding: chunked\r\nContent-Length: 2",
     "Content-Length: 2\r\nContent-Length: 3", "Content-Length: 2, 3", "Content-Length: +2",
     "Transfer-Encoding: identity\r\nContent-Length: 2", "Transfer-Encoding: chunked, identity"],
)  # fmt: skip
def test_a_body_whose_length_is_ambiguous_is_refused_and_the_connection_closed(service, framing):
    lines = "POST /v1/targets/a/rows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    smuggled = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = raw(service, f"{lines}{framing}\r\n\r\n0\r\n\r\n{smuggled}".encode())
    assert answer.split()[1] in (b"400", b"501")
    assert answer.count(b"HTTP/1.1") == 1  # the rest is not read as a request
    assert b"connection: close" in answer.lower()


MANY = b",".join([b"[]"] * 100_000)


@pytest.mark.parametrize(
    ("parse", "status"),
    [
        (lambda parser: parser.parse(b'{"rows": [' + MANY + b"]}", JSON, None), 413),
        (lambda parser: parser.parse(b'{"rows": [[' + b"1," * 100_000 + b"1]]}", JSON, None), 413),
        (lambda parser: parser.parse(b"[1, 2]\n" * 100_000, NDJSON[0], None), 413),
        (lambda parser: parser.parse(b"7\n" * 100_000, NDJSON[0], None), 413),
        (lambda parser: parser.parse_labels(b'{"labels": [' + MANY + b"]}", None), 413),
        (lambda parser: parser.parse_labels(b'{"labels": [' + b"1," * 100_000 + b"1]}", None), 413),
        (lambda parser: parser.parse_command(b'{"alarm": [' + MANY + b"]}", "shelve"), 422),
        (lambda parser: parser.parse_command(b'{"alarm": "1", "x": [' + MANY + b"]}", "shelve"), 422),
        (lambda parser: parser.parse_command(b'{"alarm":"1","by":[' + MANY + b"]}", "shelve"), 422),
    ],
)
def test_bodies_of_too_many_values_are_refused_in_bounded_memory(parse, status):
    parser = Parser(2, None, 100)
    tracemalloc.start()
    try:
        with pytest.raises(RequestError) as refused:
            parse(parser)
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused.value.status == status
    assert used < 1_500_000  # the bodies themselves have up to 700,000 bytes


def test_the_longest_rows_and_labels_are_not_too_many_values():
    names, time = ["a,b", "c[d]"], "," * 64
    parser = Parser(2, names, 50, 3)
    rows = [{**dict.fromkeys(names, 1.0), "time": time}] * 50
    lines = "\n\n".join(map(json.dumps, rows)).encode()
    assert (
        len(parser.parse(json.dumps({"rows": rows, "columns": names}).encode(), JSON, None).rows) == 50
    )
    assert len(parser.parse(lines, NDJSON[0], None).rows) == 50
    label = {"label": "[a]", "position": 1, "time": time, "values": [1.0, None, 2.0]}
    content = json.dumps({"labels": [label] * 50, "certify": True, "id": "x"}).encode()
    assert len(parser.parse_labels(content, None).labels) == 50


def test_clients_that_disconnect_leave_nothing_behind(service):
    url = service.base_url
    for _ in range(20):
        with socket.create_connection((url.host, url.port)) as sock:
            sock.sendall(head(50_000) + b"[" * 20_000)
    wait_until(lambda: not service.app.state.service.inbox.held)
    assert service.get("/v1/targets").json()["targets"] == []


def memory(service):
    """Return the resident memory of the process, which is also that of the service."""
    text = service.get("/metrics").text
    return float(re.search(r"^process_resident_memory_bytes (\S+)$", text, re.MULTILINE)[1])


def test_a_body_of_100_mb_is_refused_in_bounded_memory(service):
    def chunks():
        for _ in range(100):
            yield b" " * MB

    before = memory(service)
    declared = service.post(
        "/v1/targets/a/rows",
        content=chunks(),
        headers={"Content-Type": "application/json", "Content-Length": str(100 * MB)},
    )
    streamed = service.post(
        "/v1/targets/a/rows", content=chunks(), headers={"Content-Type": "application/json"}
    )
    assert declared.status_code == streamed.status_code == 413
    assert "1,048,576 bytes" in streamed.json()["error"]
    assert memory(service) - before < 30 * MB


def test_the_bytes_of_all_bodies_are_limited(service):
    url, half = service.base_url, MB // 2
    socks = [socket.create_connection((url.host, url.port), timeout=300) for _ in range(12)]
    try:
        for sock in socks:
            sock.sendall(head(half + 1) + b" " * half)
        answers = [sock.recv(65536) for sock in socks]  # the last byte never comes
    finally:
        for sock in socks:
            sock.close()
    assert {answer.split()[1] for answer in answers} == {b"429", b"408"}
    assert all(b"retry-after: " in answer.lower() for answer in answers if b" 429 " in answer)


@pytest.mark.parametrize(
    "name",
    ["%2e%2e", "..", ".hidden", "%00", "a%00b", "a%0ab", "a%2fb", "..%2f..%2fetc", "%c3%bc", "%ff",
     "a%20b", "x" * 129, "%F0%9F%92%A9", "a;b", "a%5cb", "-a", "%25", "a%3Fb", "a%23b"],
)  # fmt: skip
def test_malicious_target_names_are_refused(service, rows, name):
    path = f"/v1/targets/{name}"
    body = json.dumps({"rows": rows[:1].tolist()}).encode()
    codes = []
    for request in (
        head(len(body), f"{path}/rows", "Connection: close\r\n") + body,
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(),
        f"DELETE {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(),
        f"GET {path}/why/1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(),
    ):
        answer = raw(service, request)
        codes.append(int(answer.split()[1]))
        assert b'{"error":' in answer
    assert set(codes) <= {404, 422}
    assert service.get("/v1/targets").json()["targets"] == []


@pytest.mark.parametrize("position", ["x", "-1", "1e3", "%D9%A1", "9" * 5000, "%00"])
def test_invalid_positions_are_refused(service, position):
    assert service.get(f"/v1/targets/a/why/{position}").status_code == 422


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/..%2f..%2fcli"],
)
def test_no_files_outside_the_static_folder_are_served(service, path):
    answer = raw(
        service, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    assert int(answer.split()[1]) == 404


def mutated(rng, rows):
    """Return a randomly damaged body and its content type."""
    some = np.round(rows[:3], 2).tolist()
    kind = rng.choice(["application/json", "application/json", "application/x-ndjson"])
    some[1] = {"values": some[1], "time": "noon"}
    whole = json.dumps({"rows": some, "batch_id": "b"})
    body = bytearray("\n".join(map(json.dumps, some)).encode() if "nd" in kind else whole.encode())
    for _ in range(rng.randint(1, 3)):
        at, how = rng.randrange(len(body)), rng.randrange(4)
        if how == 0:
            body[at] = rng.randrange(256)
        elif how == 1:
            del body[at : at + rng.randint(1, 8)]
        elif how == 2:
            body[at:at] = rng.choice(PIECES)
        else:
            body[at:at] = body[: rng.randint(1, 60)]
    return bytes(body), kind


def test_2000_mutated_bodies_are_parsed_or_refused(service, rows):
    rng, found = random.Random(0), {"parsed": 0}
    parser = service.app.state.service.parser
    for _ in range(2000):
        try:
            posted = parser.parse(*mutated(rng, rows), None)
        except RequestError as error:
            found[error.status] = found.get(error.status, 0) + 1
        else:
            found["parsed"] += 1
            assert posted.rows.shape == (len(posted.times), 4)
            assert not np.isinf(posted.rows).any()
    assert found.keys() == {"parsed", 400, 422}
    assert min(found.values()) > 20


def test_mutated_bodies_break_nothing(service, rows):
    rng, codes = random.Random(1), set()
    for n in range(100):
        body, kind = mutated(rng, rows)
        answer = service.post(f"/v1/targets/t{n % 3}/rows", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 200 or isinstance(answer.json()["error"], str)
        codes.add(answer.status_code)
    assert codes == {200, 400, 422}
    seen = sum(line["rows_seen"] for line in service.get("/v1/targets").json()["targets"])
    counted = re.search(r"^baryflow_rows_total (\S+)$", service.get("/metrics").text, re.MULTILINE)
    assert float(counted[1]) == seen


def test_the_service_still_works_afterwards(service, rows):
    assert post(service, "a", rows[:5]).status_code == 200
    service.delete("/v1/targets/a")


def test_a_truth_value_is_no_label():
    with pytest.raises(RequestError, match="nothing was stored"):
        Parser(2, None, 100).parse_labels(b'{"labels": [{"label": true, "position": 1}]}', None)
