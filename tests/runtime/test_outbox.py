"""Messages to receivers that may be away: none lost, and nothing waits for them."""

import contextlib
import json
import socket
import threading

import pytest

from baryflow.exceptions import InvalidInputError, RefusedError, UnreachableError
from baryflow.runtime.outbox import Outbox, SinkSender
from baryflow.runtime.store import Message
from baryflow.streams import open_sink
from baryflow.streams.webhook import Webhook
from tests.runtime.ends import full_disk
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


def messages(some, receiver="alarms"):
    return [Message("", 1, 1, n, receiver, f"name-{n}", one) for n, one in enumerate(some)]


class Notes(list):
    """What an outbox has noted: the record, who has it, and whether all have it."""

    def __call__(self, message, received, finished):
        self.append((message.record, received, finished))


def test_messages_arrive_in_order_once_the_receiver_is_back():
    sender, notes = Away(), Notes()
    box = Outbox([sender], pauses=FAST)
    box.send(messages(records(0, 3)), notes)
    wait_until(lambda: sender.tries >= 3)
    assert (len(box), sender.sent, notes) == (3, [], [])
    sender.open.set()
    box.send(messages([{"bad": True}, *records(3, 4)]), notes)
    wait_until(lambda: not len(box))
    box.close()
    assert sender.sent == records(0, 4)
    assert [one for one, *_ in notes] == [*records(0, 3), {"bad": True}, *records(3, 4)]
    assert all((received, finished) == ({"away"}, True) for _, received, finished in notes)


def test_a_receiver_that_has_a_message_does_not_get_it_again():
    one, two, notes = Away(), Away(), Notes()
    one.name, two.name = "one", "two"
    one.open.set()
    box = Outbox([one, two], pauses=FAST)
    (message,) = messages(records(0, 1))
    box.send([message], notes)
    wait_until(lambda: notes)
    assert notes == [(message.record, {"one"}, False)]
    box.close(finished=False)
    two.open.set()
    box = Outbox([one, two], pauses=FAST)
    message.received = {"one"}
    box.send([message], notes)
    wait_until(lambda: len(notes) == 2)
    box.send([Message("", 1, 1, 1, "alarms", "x", {}, {"one", "two", "three"})], notes)
    box.close()
    assert notes[1:] == [(message.record, {"one", "two"}, True), ({}, {"one", "two"}, True)]
    assert (one.sent, two.sent) == (records(0, 1), records(0, 1))


def test_that_all_receivers_have_a_message_is_noted_once_and_last():
    receivers, notes = [Away(), Away(), Away()], Notes()
    for number, receiver in enumerate(receivers):
        receiver.name = f"receiver {number}"
        receiver.open.set()
    box = Outbox(receivers)
    box.send(messages(records(0, 300)), notes)
    wait_until(lambda: len(notes) == 900)
    box.close()
    for record in records(0, 300):
        assert [len(received) for one, received, _ in notes if one == record] == [1, 2, 3]
        assert [finished for one, _, finished in notes if one == record] == [False, False, True]


def test_the_oldest_are_dropped_if_too_many_wait():
    sender, notes = Away(), Notes()
    box = Outbox([sender], most=5, pauses=FAST)
    box.send(messages(records(0, 200)), notes)
    assert len(box) == 5
    assert len(notes) == 195
    sender.open.set()
    wait_until(lambda: not len(box))
    box.close()
    assert sender.sent[-5:] == records(195, 200)


def test_a_full_disk_leaves_no_half_record_in_a_file(tmp_path):
    path = tmp_path / "alarms.ndjson"
    sender = SinkSender("file", lambda: open_sink(path, resume=path.exists()))
    box = Outbox([sender], pauses=FAST)
    box.send(messages(records(0, 2)), lambda *_: None)
    wait_until(lambda: not len(box))
    with full_disk(path.stat().st_size + 10):  # a part of the next line fits
        box.send(messages(records(2, 4)), lambda *_: None)
        wait_until(lambda: path.stat().st_size == 2 * len(path.read_bytes().splitlines()[0]) + 12)
    wait_until(lambda: not len(box))
    box.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == records(0, 4)


def test_a_webhook_is_signed_and_retried():
    with Receiver([500, 302, 429]) as receiver:
        box = Outbox([Webhook(receiver.url, SECRET)], pauses=FAST)
        box.send(messages(records(0, 2)), lambda *_: None)
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

    position = 0

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

    box = Outbox([SinkSender("broker", open_next)], pauses=FAST)
    box.send(messages(records(0, 3)), lambda *_: None)
    wait_until(lambda: not len(box))
    box.close()
    assert [one for sink in opened for one in sink.records] == records(0, 3)
    assert all(sink.closed for sink in opened)
