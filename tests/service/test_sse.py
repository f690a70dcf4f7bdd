"""Server-sent events for clients of any speed."""

import asyncio
import contextlib
import json

from baryflow.service import sse
from baryflow.service.errors import RequestError
from tests.service.conftest import post
from tests.waiting import wait_until


@contextlib.contextmanager
def listening(client, path):
    with client.stream("GET", path) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines).startswith("retry:")
        yield events(lines)


def events(lines):
    kind = None
    for line in lines:
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            yield kind, json.loads(line[6:])
        elif line.startswith(":"):
            yield "comment", line


def test_the_stream_of_a_target_has_its_predictions_and_events(serving, rows):
    with serving() as client:
        post(client, "a", rows[:4])
        with listening(client, "/v1/targets/a/live") as received:
            post(client, "b", rows[:4])
            answer = post(client, "a", rows[4:12]).json()
            kind, content = next(received)
            assert kind == "batch"
            assert content["records"] == answer["predictions"]
            assert content["events"] == answer["events"]
            assert content["summary"]["rows_seen"] == 12
            assert content["summary"].keys() == client.get("/v1/targets/a").json().keys() - {"report"}
            client.delete("/v1/targets/a")
            assert next(received) == ("gone", {"name": "a"})
        with client.stream("GET", "/v1/targets/nobody/live") as answer:
            assert answer.status_code == 404


def test_the_stream_of_all_targets_has_those_that_change(serving, rows):
    with serving() as client, listening(client, "/v1/live") as received:
        post(client, "a", rows[:4])
        kind, content = next(received)
        assert kind == "targets"
        assert [line["name"] for line in content["targets"]] == ["a"]
        client.delete("/v1/targets/a")
        assert next(received)[1]["gone"] == ["a"]


def test_frequent_updates_are_combined(serving, rows):
    with serving() as client:
        post(client, "a", rows[:1])
        with listening(client, "/v1/targets/a/live") as received:
            for n in range(30):
                post(client, "a", rows[n : n + 1])
            messages = []
            for _, content in received:
                messages.append(content)
                if content["summary"]["rows_seen"] == 31:
                    break
        assert len(messages) < 30
        assert len(messages[-1]["records"]) <= 20


def test_clients_of_one_target_share_its_description_and_an_error_ends_a_stream(serving, rows, caplog):
    async def fail(*_):
        raise RequestError(429, "too many views")

    def views(client):
        state, found, view = client.app.state.service, [], client.app.state.service.view

        async def counted(*arguments):
            found.append(arguments)
            await asyncio.sleep(0.2)  # so that all ask meanwhile
            return await view(*arguments)

        state.view = counted
        return found

    with serving() as client, contextlib.ExitStack() as stack:
        post(client, "a", rows[:4])
        asked = views(client)
        streams = [stack.enter_context(listening(client, "/v1/targets/a/live")) for _ in range(45)]
        post(client, "a", rows[4:8])
        assert [next(one)[1]["summary"]["rows_seen"] for one in streams] == [8] * 45
        assert len(asked) < 32  # what a worker prepares at once
        client.app.state.service.view = fail
        post(client, "a", rows[8:12])
        assert [list(one) for one in streams] == [[]] * 45
    assert "Traceback" not in caplog.text


def test_idle_streams_have_a_heartbeat_and_clients_are_limited(serving, monkeypatch):
    monkeypatch.setattr(sse, "HEARTBEAT", 0.05)
    with serving(listeners=1) as client:
        with listening(client, "/v1/live") as received:
            assert next(received)[0] == "comment"
            refused = client.get("/v1/live")
            assert refused.status_code == 429
            assert refused.headers["retry-after"]
        wait_until(lambda: not len(client.app.state.service.hub))  # the service notices the disconnect
        with listening(client, "/v1/live"):
            pass


def test_open_streams_do_not_delay_shutdown(serving, rows):
    with serving() as client, listening(client, "/v1/live") as received:
        client.app.state.service.hub.close()
        assert all(content["targets"] == [] for _, content in received)


def test_memory_for_a_client_that_never_reads_is_bounded():
    slot = sse._Slot()
    for n in range(1000):
        slot.add(f"t{n}", {"predictions": [{"position": n}] * 50, "events": [{"event": "batch"}] * 50})
    assert len(slot.records) == len(slot.events) == 20
    assert len(slot.names) <= 201
