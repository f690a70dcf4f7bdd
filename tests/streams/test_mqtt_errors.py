"""Errors of MQTT connections: one line with what to do, and no password."""

import contextlib
import http.server
import math
import re
import socket
import threading
import time
from functools import partial

import pytest

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams import Endpoint, RetryPolicy, open_sink, open_source
from baryflow.streams.urls import Credentials
from tests.streams.files import require
from tests.streams.mosquitto import PASSWORD, USER, Broker, Publisher, free_port
from tests.waiting import wait_until

require("paho.mqtt.client")
trustme = require("trustme")

from baryflow.streams import mqtt  # noqa: E402

US = Credentials(USER, PASSWORD)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, certificates for two hosts, and an unknown authority."""
    folder = tmp_path_factory.mktemp("certificates")
    ca, stranger = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    stranger.cert_pem.write_to_path(str(folder / "stranger.pem"))
    for name, host in (("here", "127.0.0.1"), ("elsewhere", "broker.example")):
        made = ca.issue_cert(host)
        made.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
        made.private_key_pem.write_to_path(str(folder / f"{name}.key"))
    return folder


def tls_of(folder, name):
    return folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key"


@pytest.fixture(scope="module")
def broker(tmp_path_factory, certificates):
    with Broker(tmp_path_factory.mktemp("broker"), tls_of(certificates, "here")) as broker:
        yield broker


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(mqtt, "ANSWER", 0.7)


def refuse(url, credentials, pattern, sink=False):
    opened = partial(open_sink, url) if sink else partial(open_source, url, columns=["n"])
    with pytest.raises(UnreachableError, match=pattern) as caught:
        opened(credentials=credentials)
    text = str(caught.value)
    assert "\n" not in text
    assert not re.search("secret|correct horse", text)
    assert url.split("?", maxsplit=1)[0] in text


def notice(url, pattern, credentials=US):
    """Open a source whose broker does not answer: it waits, and reports why, or says it is no broker."""
    notices = []
    try:
        with contextlib.closing(
            open_source(url, columns=["n"], idle=0.1, credentials=credentials)
        ) as source:
            wait_until(lambda: notices.extend(source.read(1).notices) or notices)
            assert "retrying" in notices[0]
    except UnreachableError as error:
        notices.append(str(error))
    assert re.search(pattern, notices[0])
    assert url in notices[0]
    assert PASSWORD not in notices[0]


@pytest.mark.parametrize("sink", [False, True])
def test_wrong_and_missing_passwords(broker, sink):
    refuse(broker.url("a"), Credentials(USER, "secret"), "access denied for 'plant'", sink)
    refuse(broker.url("a"), Credentials("nobody", "secret"), "access denied for 'nobody'", sink)
    refuse(broker.url("a"), Credentials(), "requires a user", sink)


def test_tls_is_verified(broker, certificates):
    url = broker.url("tls", broker.tls_port, "mqtts")
    trusted = Credentials(USER, PASSWORD, ca_file=str(certificates / "ca.pem"))
    with contextlib.closing(open_source(url, columns=["n"], idle=5.0, credentials=trusted)) as source:
        with Publisher(broker.port) as publisher:
            publisher.send_all("tls", [{"n": i} for i in range(300)])
        rows = []
        while len(rows) < 300:
            batch = source.read(32, 1.0)
            rows += batch.rows[:, 0].tolist()
            source.acknowledge(batch.cursor)
    assert rows == list(range(300))
    for untrusted in (US, Credentials(USER, PASSWORD, ca_file=str(certificates / "stranger.pem"))):
        refuse(url, untrusted, "certificate is not trusted .*ca_file")


def test_a_certificate_for_another_host(tmp_path, certificates):
    with Broker(tmp_path, tls_of(certificates, "elsewhere")) as broker:
        trusted = Credentials(USER, PASSWORD, ca_file=str(certificates / "ca.pem"))
        refuse(broker.url("a", broker.tls_port, "mqtts"), trusted, "for another host than 127.0.0.1")


def test_tls_and_plain_ports_are_mixed_up(broker, certificates):
    trusted = Credentials(USER, PASSWORD, ca_file=str(certificates / "ca.pem"))
    notice(broker.url("a", broker.port, "mqtts"), "does not use TLS|closes TLS", trusted)
    notice(broker.url("a", broker.tls_port), "mqtts://")


def test_a_port_without_a_broker():
    notice(f"mqtt://127.0.0.1:{free_port()}/a", "connection is refused")
    notice("mqtt://no-such-host.invalid/a", "no host 'no-such-host.invalid'", Credentials())


def test_a_port_with_another_service():
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            notice(
                f"mqtt://127.0.0.1:{server.server_port}/a",
                "not MQTT|closed the connection|does not answer",
            )
        finally:
            server.shutdown()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        notice(f"mqtt://127.0.0.1:{silent.getsockname()[1]}/a", "does not answer")


@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x20\x01\xff", b"\x20\x03\x00\x00\x7f", b"\x90\x00"]
)
def test_a_service_that_sends_something_else_first(greeting):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as client:
                        client.sendall(greeting)
                        client.recv(4096)

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        notice(
            f"mqtt://127.0.0.1:{server.getsockname()[1]}/a",
            "MQTT|closed the connection|does not answer",
        )
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_a_broker_that_always_hangs_up_is_asked_less_and_less_often(monkeypatch):
    monkeypatch.setattr(mqtt, "_SHORT", math.inf)  # also on a busy machine
    moments = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up():
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as client:
                        moments.append(time.monotonic())
                        client.recv(4096)
                        client.sendall(bytes([0x20, 3, 0, 0, 0]))  # accepted
                        client.recv(4096)

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        url = f"mqtt://127.0.0.1:{server.getsockname()[1]}/a"
        sink = open_sink(Endpoint.parse(url, policy=RetryPolicy(0.01, 1.0)))
        sink.write([{"n": 1}])
        wait_until(lambda: len(moments) > 6)
        sink.close(finished=False)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
    assert moments[6] - moments[0] >= 0.01 * (2**6 - 1)  # the pauses alone


def test_invalid_certificate_files_are_refused(tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(InvalidInputError, match="ca_file must hold certificates"):
        open_source(
            "mqtts://h/a", columns=["n"], credentials=Credentials(ca_file=str(tmp_path / "ca.pem"))
        )
