"""Connections: TLS, and clients that open connections and send half of a request."""

import contextlib
import resource
import socket
import ssl

import httpx
import pytest
from click.testing import CliRunner

from baryflow.cli import main
from baryflow.client import Client
from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.service import background, create_app, server
from tests.service.conftest import post, serve
from tests.waiting import wait_until

POST = b"POST /v1/targets/a/rows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALVES = (b"", POST, POST + b"Content-Length: 100\r\n\r\n{")


def connect(client, head=b""):
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


def shed(client):
    return client.app.state.service.metrics.registry.get_sample_value("baryflow_shed_connections_total")


def test_half_sent_requests_do_not_lock_out_others(model, rows, monkeypatch, caplog):
    monkeypatch.setattr(server, "_CONNECTIONS", 8)
    with serve(model) as client, contextlib.ExitStack() as stack:
        post(client, "a", rows[:3])
        live = stack.enter_context(client.stream("GET", "/v1/live")).iter_raw()
        assert next(live)  # a complete request with an endless response
        half = [stack.enter_context(connect(client, HALVES[n % 3])) for n in range(30)]
        for n in range(3):  # each on a new connection
            fresh = httpx.get(f"{client.base_url}/v1/targets", timeout=60, trust_env=False)
            assert fresh.json()["targets"][0]["rows_seen"] == 3 + n
            assert post(client, "a", rows[:1]).status_code == 200
        assert b"event: targets" in next(live)  # it was not closed
        closed = [is_closed(sock) for sock in half]
        n_shed = shed(client)
    assert closed == sorted(closed, reverse=True)  # the oldest first
    assert 20 <= sum(closed) < 30
    assert n_shed >= sum(closed)
    logged = [record for record in caplog.records if record.name != "httpx"]
    assert len(logged) == 1
    assert "8 connections are open" in logged[0].getMessage()


@pytest.mark.parametrize(("limit", "most"), [(256, 128), (1024, 832), (65536, 1024), (2, 1)])
def test_connections_leave_file_descriptors_for_files(monkeypatch, limit, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert server.max_connections() == most


@pytest.fixture
def no_environment(monkeypatch):
    for name in ("BARYFLOW_TOKEN", "BARYFLOW_CA"):
        monkeypatch.delenv(name, raising=False)


def test_https_with_a_certificate_that_the_client_trusts(
    model, rows, certificate, no_environment, monkeypatch
):
    *_, ca = certificate
    with serve(model, certificate=certificate) as http:
        url = str(http.base_url).rstrip("/")
        assert url.startswith("https://")
        with Client(url, ca=ca) as client:
            assert len(client.send("a", rows[:40])["predictions"]) == 40
            assert client.target("a")["rows_seen"] == 40
        monkeypatch.setenv("BARYFLOW_CA", str(ca))
        with Client(url) as client:
            assert [one["name"] for one in client.targets()] == ["a"]
        large = b'{"rows": [[1, 2, 3, 4]]' + b" " * 500_000 + b"}"  # many TLS records
        posted = http.post(
            "/v1/targets/b/rows", content=large, headers={"Content-Type": "application/json"}
        )
        assert posted.json()["rows"] == 1
        with http.stream("GET", "/v1/live") as live:
            assert next(live.iter_raw()).startswith(b"retry:")


def test_https_is_refused_by_clients_that_do_not_trust_the_certificate(
    model, certificate, no_environment
):
    with serve(model, certificate=certificate) as http:
        url = str(http.base_url).rstrip("/")
        with (
            Client(url, patience=0.01) as client,
            pytest.raises(UnreachableError, match=r"(?i)certificate"),
        ):
            client.targets()
        plain = url.replace("https", "http")
        with Client(plain, patience=0.01) as client, pytest.raises(UnreachableError):
            client.targets()
        assert http.get("/healthz").status_code == 200


def test_a_request_in_the_same_packet_as_the_end_of_the_handshake_is_answered(model, certificate):
    """The server may decrypt a request before it knows that the handshake has ended."""
    with serve(model, certificate=certificate) as http:
        context = ssl.create_default_context(cafile=certificate[2])
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with connect(http) as sock:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    sock.sendall(outgoing.read())
                    incoming.write(sock.recv(65536))
            tls.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            sock.sendall(outgoing.read())  # the last message of the handshake and the request
            answer = b""
            with contextlib.suppress(ssl.SSLZeroReturnError):
                while b"alive" not in answer:
                    try:
                        answer += tls.read()
                    except ssl.SSLWantReadError:
                        received = sock.recv(65536)
                        assert received, answer
                        incoming.write(received)
        assert answer.startswith(b"HTTP/1.1 200")


def test_unfinished_handshakes_do_not_lock_out_others(model, rows, certificate, monkeypatch):
    monkeypatch.setattr(server, "_CONNECTIONS", 8)
    with serve(model, certificate=certificate) as client, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(client)) for _ in range(15)]
        garbage = [stack.enter_context(connect(client, b"\x16\x03\x01" + HALVES[1])) for _ in range(15)]
        for _ in range(3):
            assert post(client, "a", rows[:1]).status_code == 200
        closed = [is_closed(sock) for sock in silent]
        assert closed == sorted(closed, reverse=True)
        assert sum(closed) >= 7
        assert all(is_closed(sock) or sock.recv(100) for sock in garbage[:5])
        assert shed(client) >= sum(closed)


def test_unfinished_handshakes_time_out_and_do_not_delay_shutdown(model, certificate, caplog):
    with serve(model, certificate=certificate, seconds=0.5) as client, connect(client) as sock:
        wait_until(lambda: is_closed(sock))
        assert client.get("/healthz").status_code == 200
        stack = contextlib.ExitStack()
        for _ in range(3):
            stack.enter_context(connect(client))
    stack.close()  # they were open while the service stopped
    assert "timeout" not in caplog.text  # that of the graceful shutdown


def test_idle_https_connections_do_not_delay_shutdown(model, certificate, caplog, monkeypatch):
    monkeypatch.setattr(server, "_GRACE", 20)  # asyncio's own limit is 30 s
    cert, key, ca = certificate
    with (
        httpx.Client(verify=ssl.create_default_context(cafile=ca)) as http,
        background(create_app(model), tls_cert=cert, tls_key=key) as url,
    ):
        assert http.get(f"{url}/healthz").status_code == 200
    # The service stopped first: the open connection did not answer its close_notify.
    assert "timeout" not in caplog.text


def test_unusable_certificates_are_refused(model, certificate, tmp_path):
    cert, key, ca = certificate
    app = create_app(model)
    (tmp_path / "no.pem").write_text("no certificate\n")
    for pair in ((cert, None), (tmp_path / "no.pem", key), (tmp_path / "missing.pem", key), (ca, key)):
        with (
            pytest.raises(InvalidInputError, match="cannot load the TLS certificate"),
            background(app, tls_cert=pair[0], tls_key=pair[1]),
        ):
            pass
    with pytest.raises(InvalidInputError, match="--tls-cert"), background(app, tls_key=key):
        pass
    for wrong in ("missing.pem", "no.pem"):
        with pytest.raises(InvalidInputError, match="cannot read certificates"):
            Client("https://localhost", ca=tmp_path / wrong)


def test_the_command_serves_https_with_both_tokens(model_file, certificate, tmp_path, monkeypatch):
    cert, key, ca = certificate
    statuses = []

    def serve_and_return(app, *_, **tls):
        with (
            background(app, **tls) as url,
            httpx.Client(base_url=url, verify=ssl.create_default_context(cafile=ca)) as http,
        ):
            for token in ("f" * 16, "r" * 16, "x" * 16):
                headers = {"Authorization": f"Bearer {token}"}
                statuses.append(http.get("/v1/targets", headers=headers).status_code)
                statuses.append(http.delete("/v1/targets/a", headers=headers).status_code)

    monkeypatch.setattr("baryflow.service.run", serve_and_return)
    (tmp_path / "token").write_text("f" * 16 + "\n")
    options = ["--token-file", tmp_path / "token", "--tls-cert", cert, "--tls-key", key]
    done = CliRunner().invoke(
        main, ["serve", *map(str, [model_file, *options])], env={"BARYFLOW_READ_TOKEN": "r" * 16}
    )
    assert done.exit_code == 0, done.output
    assert statuses == [200, 404, 200, 403, 401, 401]
