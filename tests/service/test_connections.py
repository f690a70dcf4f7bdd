"""Clients that open connections and send half of a request keep nobody else out."""

import contextlib
import resource
import socket

import httpx
import pytest

from baryflow.service import server
from tests.service.conftest import post, serve

POST = b"POST /v1/targets/a/rows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALVES = (b"", POST, POST + b"Content-Length: 100\r\n\r\n{")


def connect(client, head):
    sock = socket.create_connection((client.base_url.host, client.base_url.port), timeout=60)
    sock.sendall(head)
    return sock


def is_closed(sock):
    """Return whether the service has closed a connection; waits a moment if it has not."""
    sock.settimeout(0.2)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_half_sent_requests_keep_nobody_out(model, rows, monkeypatch, caplog):
    monkeypatch.setattr(server, "_CONNECTIONS", 8)
    with serve(model) as client, contextlib.ExitStack() as stack:
        post(client, "a", rows[:3])
        live = stack.enter_context(client.stream("GET", "/v1/live")).iter_raw()
        assert next(live)  # a complete request, whose response goes on
        half = [stack.enter_context(connect(client, HALVES[n % 3])) for n in range(30)]
        for n in range(3):  # each on a new connection
            fresh = httpx.get(f"{client.base_url}/v1/targets", timeout=60, trust_env=False)
            assert fresh.json()["targets"][0]["rows_seen"] == 3 + n
            assert post(client, "a", rows[:1]).status_code == 200
        assert b"event: targets" in next(live)  # it was not closed
        closed = [is_closed(sock) for sock in half]
        shed = client.app.state.desk.metrics.shed
    assert closed == sorted(closed, reverse=True)  # the oldest first
    assert 20 <= sum(closed) < 30
    assert shed >= sum(closed)
    said = [record for record in caplog.records if record.name != "httpx"]
    assert len(said) == 1
    assert "8 connections are open" in said[0].getMessage()


@pytest.mark.parametrize(("limit", "most"), [(256, 128), (1024, 832), (65536, 1024), (2, 1)])
def test_connections_leave_file_descriptors_for_files(monkeypatch, limit, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert server.max_connections() == most
