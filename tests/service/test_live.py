"""Server-sent events: told as it happens, to readers of any speed."""

import contextlib
import json

from baryflow.service import sse as live
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


def test_who_listens_to_a_target_hears_what_comes_of_its_rows(serving, rows):
    with serving() as client:
        post(client, "a", rows[:4])
        with listening(client, "/v1/targets/a/live") as heard:
            post(client, "b", rows[:4])
            answer = post(client, "a", rows[4:12]).json()
            kind, content = next(heard)
            assert kind == "batch"
            assert content["records"] == answer["predictions"]
            assert content["events"] == answer["events"]
            assert content["summary"]["rows_seen"] == 12
            assert content["summary"].keys() == client.get("/v1/targets/a").json().keys() - {"report"}
            client.delete("/v1/targets/a")
            assert next(heard) == ("gone", {"name": "a"})
        with client.stream("GET", "/v1/targets/nobody/live") as answer:
            assert answer.status_code == 404


def test_who_listens_to_all_hears_which_targets_change(serving, rows):
    with serving() as client, listening(client, "/v1/live") as heard:
        post(client, "a", rows[:4])
        kind, content = next(heard)
        assert kind == "targets"
        assert [line["name"] for line in content["targets"]] == ["a"]
        client.delete("/v1/targets/a")
        assert next(heard)[1]["gone"] == ["a"]


def test_news_that_come_fast_are_told_together(serving, rows):
    with serving() as client:
        post(client, "a", rows[:1])
        with listening(client, "/v1/targets/a/live") as heard:
            for n in range(30):
                post(client, "a", rows[n : n + 1])
            told = []
            for _, content in heard:
                told.append(content)
                if content["summary"]["rows_seen"] == 31:
                    break
        assert len(told) < 30
        assert len(told[-1]["records"]) <= 20


def test_silence_has_a_heartbeat_and_readers_a_limit(serving, monkeypatch):
    monkeypatch.setattr(live, "HEARTBEAT", 0.05)
    with serving(listeners=1) as client:
        with listening(client, "/v1/live") as heard:
            assert next(heard)[0] == "comment"
            refused = client.get("/v1/live")
            assert refused.status_code == 429
            assert refused.headers["retry-after"]
        wait_until(lambda: not len(client.app.state.desk.hub))  # the service notices that nobody reads
        with listening(client, "/v1/live"):
            pass


def test_listeners_do_not_keep_the_service_from_ending(serving, rows):
    with serving() as client, listening(client, "/v1/live") as heard:
        client.app.state.desk.hub.close()
        assert all(content["targets"] == [] for _, content in heard)


def test_a_reader_who_never_reads_costs_a_slot_and_no_more(rows):
    slot = live._Slot()
    for n in range(1000):
        slot.add(f"t{n}", {"predictions": [{"position": n}] * 50, "events": [{"event": "batch"}] * 50})
    assert len(slot.records) == len(slot.events) == 20
    assert len(slot.names) <= 201
