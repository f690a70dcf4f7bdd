"""Records for receivers that may be away: none lost, none twice, and nothing waits for them."""

import contextlib
import resource
import socket
import threading

import pytest

from baryflow.exceptions import InvalidInputError, RefusedError, UnreachableError
from baryflow.runtime.outbox import Outbox, SinkSender
from baryflow.streams.webhook import Webhook
from tests.runtime.receiver import SECRET, Receiver
from tests.waiting import wait_until

FAST = (0.01, 0.05)


class Away:
    """A receiver that is away until it is opened."""

    name = "away"

    def __init__(self):
        self.open, self.sent, self.tries = threading.Event(), [], 0

    def send(self, _, record):
        self.tries += 1
        if not self.open.is_set():
            raise UnreachableError("nobody is there")
        if record.get("bad"):
            raise RefusedError("no", 422)
        self.sent.append(record)

    def stop_when(self, stop):
        pass

    def close(self):
        pass


def records(start, stop):
    return [{"sequence": n, "time": "12:00"} for n in range(start, stop)]


def test_records_arrive_in_order_once_the_receiver_is_back():
    sender = Away()
    box = Outbox(sender, pauses=FAST)
    box.write(records(0, 3))
    wait_until(lambda: sender.tries >= 3)
    assert (len(box), sender.sent) == (3, [])
    sender.open.set()
    box.write([{"bad": True}, *records(3, 4)])
    wait_until(lambda: not len(box))
    box.close()
    assert sender.sent == records(0, 4)


def test_what_is_not_sent_survives_a_kill_and_a_replay_sends_nothing_twice(tmp_path):
    path, first, second = tmp_path / "box.ndjson", Away(), Away()
    box = Outbox(first, path, pauses=FAST)
    first.open.set()
    box.write(records(0, 2))
    wait_until(lambda: not len(box))
    first.open.clear()
    box.write(records(2, 4))
    wait_until(lambda: first.tries >= 3)
    with path.open("ab") as file:
        file.write(b'{"id": "cut o')  # as a kill leaves it
    second.open.set()
    again = Outbox(second, path, pauses=FAST)
    again.write(records(1, 5))  # replayed from the journal
    wait_until(lambda: not len(again))
    again.close()
    assert second.sent == records(2, 5)
    box.close(finished=False)


def test_the_oldest_are_dropped_if_too_many_wait_and_the_file_stays_small(tmp_path):
    sender, path = Away(), tmp_path / "box.ndjson"
    box = Outbox(sender, path, most=5, pauses=FAST)
    box.write(records(0, 200))
    assert len(box) == 5
    assert len(path.read_bytes().splitlines()) <= 50
    box.close(finished=False)
    sender.open.set()
    box = Outbox(sender, path, most=5, pauses=FAST)
    wait_until(lambda: not len(box))
    box.close()
    assert sender.sent == records(195, 200)


@contextlib.contextmanager
def full_disk(size):
    """Let no file grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path):
    path, first, second = tmp_path / "box.ndjson", Away(), Away()
    box = Outbox(first, path, pauses=FAST)
    box.write(records(0, 1))
    with full_disk(path.stat().st_size + 10):  # a part of the next line fits
        with pytest.raises(OSError, match="large"):
            box.write(records(1, 3))
        with pytest.raises(OSError, match="large"):
            box.write(records(1, 3))
        first.open.set()
        wait_until(lambda: not len(box))  # sent all the same
    assert first.sent == records(0, 3)
    first.open.clear()
    box.write(records(1, 5))
    box.close(finished=False)
    second.open.set()
    again = Outbox(second, path, pauses=FAST)
    wait_until(lambda: not len(again))
    again.close()
    assert second.sent == records(3, 5)


def test_a_webhook_is_signed_and_retried():
    with Receiver([500, 302, 429]) as receiver:
        box = Outbox(Webhook(receiver.url, SECRET), pauses=FAST)
        box.write(records(0, 2))
        wait_until(lambda: not len(box))
        box.close()
        assert receiver.messages == records(0, 2)
        assert len(set(receiver.ids)) == 2
    webhook = Webhook(receiver.url, SECRET)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1"):
        webhook.send("a", {})
    with Receiver([422]) as receiver, pytest.raises(RefusedError):
        Webhook(receiver.url, SECRET).send("a", {})


def test_a_receiver_that_answers_byte_by_byte_is_given_up():
    def trickle():
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            while not done.wait(0.02):
                connection.sendall(b"H")

    done, thread = threading.Event(), threading.Thread(target=trickle)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread.start()
        try:
            webhook = Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/", SECRET, timeout=0.5)
            with pytest.raises(UnreachableError):
                webhook.send("a", {})
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize(
    ("url", "secret", "word"),
    [
        ("http://plant.example/hook", SECRET, "https"),
        ("ftp://127.0.0.1/hook", SECRET, "https"),
        ("https://user:secret@plant.example/", SECRET, "password"),
        ("https://[::1/", SECRET, "address"),
        ("https://plant.example/a b", SECRET, "address"),
        ("https://plant.example/caf\u00e9", SECRET, "address"),
        ("https://caf\u00e9.example/", SECRET, "address"),
        ("https://plant.example/a\nb", SECRET, "address"),
        ("https://plant.example/", "short", "16"),
        ("https://plant.example/", "whsec_!!!", "Base64"),
    ],
)
def test_addresses_and_secrets_are_checked(url, secret, word):
    with pytest.raises(InvalidInputError, match=word) as error:
        Webhook(url, secret)
    assert "user:secret" not in str(error.value)


class Fragile:
    """A sink that fails at its second record."""

    def __init__(self):
        self.records, self.closed = [], False

    def write(self, records):
        if self.records:
            raise UnreachableError("the broker is gone")
        self.records += records

    def flush(self):
        pass

    def stop_when(self, stop):
        pass

    def close(self, **_):
        self.closed = True


def test_a_sink_is_opened_again_after_an_error():
    opened = []

    def open_next():
        opened.append(Fragile())
        return opened[-1]

    box = Outbox(SinkSender("broker", open_next), pauses=FAST)
    box.write(records(0, 3))
    wait_until(lambda: not len(box))
    box.close()
    assert [one for sink in opened for one in sink.records] == records(0, 3)
    assert all(sink.closed for sink in opened)
