"""Alarms over HTTP: listed, acknowledged, streamed, sent, and the same after a kill."""

import json

import httpx
import numpy as np
import pytest

from baryflow.alarms import AlarmConfig
from baryflow.client import Client
from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.runtime import SessionConfig, Store
from baryflow.runtime.outbox import Outbox
from baryflow.service import Limits, background, create_app
from baryflow.service.parsing import Posted
from baryflow.service.worker_targets import WorkerTargets
from baryflow.streams.webhook import Webhook
from tests.runtime.receiver import SECRET, Receiver
from tests.service.conftest import kill_at_end, post
from tests.waiting import wait_until

CONFIG = AlarmConfig.from_table(
    {
        "normal": ["0"],
        "on-delay": 2,
        "off-delay": 2,
        "probability": 0.5,
        "classes": {"1": {"priority": "high"}},
    }
)


@pytest.fixture(scope="module")
def stream(problem):
    """Rows of the target: normal, then classes 1 and 2, normal again."""
    parts = [problem.X_target[problem.y_target == code][:8] for code in (0, 1, 2)]
    return np.concatenate([*parts, problem.X_target[problem.y_target == 0][8:24]])


def serve(model, state_dir=None, output=None, token=None):
    return background(
        create_app(
            model, state_dir=state_dir, batch_size=8, alarms=CONFIG, alarm_output=output, token=token
        )
    )


def test_alarms_are_listed_acknowledged_shelved_and_summarised(model, stream):
    with serve(model) as url, Client(url) as client:
        answer = client.send("a", stream[:16])
        raised = [one for one in answer["events"] if one["event"] == "alarm"]
        assert [(one["change"], one["alarm"]) for one in raised] == [("raised", "1")]
        (alarm,) = client.alarms("a")
        assert (alarm["state"], alarm["priority"], alarm["number"]) == ("unacknowledged", "high", 1)
        assert alarm["evidence"]["columns"][0]["name"] in ("flow", "heat", "speed", "noise")
        found = client.command("a", "acknowledge", "1", number=1, by="ada", comment="seen")
        assert found["alarms"][0]["state"] == "acknowledged"
        assert found["events"][0]["by"] == "ada"
        assert client.command("a", "acknowledge", "1")["events"] == []  # again: nothing changes
        found = client.command("a", "shelve", "2", duration="1h")
        assert "3600 s" in json.dumps(found["alarms"])
        client.send("a", stream[16:24])
        summary = client.target("a")["alarms"]
        assert (summary["active"], summary["unacknowledged"], summary["shelved"]) == (0, 0, 1)
        found = client.command("a", "unshelve", "2")
        assert [one["change"] for one in found["events"]] == ["unshelved", "raised"]
        client.send("a", stream[24:])
        states = {one["alarm"]: one["state"] for one in client.alarms("a")}
        assert states == {"1": "normal", "2": "returned"}
        client.command("a", "suppress", "2")
        assert client.targets()[0]["alarms"]["suppressed"] == 1
        for action, alarm, word in (
            ("acknowledge", "2", "suppressed"),
            ("acknowledge", "0", "no alarms"),
            ("shelve", "1", "how long"),
        ):
            with pytest.raises(InvalidInputError, match=word):
                client.command("a", action, alarm)
        with pytest.raises(InvalidInputError, match="no target"):
            client.command("b", "acknowledge", "1")
        with pytest.raises(InvalidInputError, match="no action"):
            client.command("a", "explode", "1")
        metrics = httpx.get(f"{url}/metrics").text
        assert "baryflow_alarms_total 2.0" in metrics


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ([], "alarm"),
        ({"alarm": "1", "who": "ada"}, "who"),
        ({"alarm": "1", "number": 1.5}, "number"),
        ({"alarm": "1", "for": "soon"}, "for: "),
        ({"alarm": "1", "by": 7}, "by"),
        ({"alarm": "1", "comment": "x" * 1001}, "comment"),
    ],
)
def test_invalid_commands_are_refused(service, body, word):
    response = service.post("/v1/targets/a/alarms/shelve", json=body)
    assert response.status_code == 422
    assert word in response.json()["error"]


@pytest.fixture(scope="module")
def service(model, stream):
    with serve(model) as url, httpx.Client(base_url=url) as client:
        post(client, "a", stream[:16])
        yield client


def test_a_read_only_token_may_look_but_not_acknowledge(model, stream):
    tokens = {"token": "write", "read_token": "read"}
    app = create_app(model, batch_size=8, alarms=CONFIG, **tokens)
    with background(app) as url:
        with Client(url, "write") as client:
            client.send("a", stream[:16])
        headers = {"Authorization": "Bearer read"}
        with httpx.Client(base_url=url, headers=headers) as client:
            assert client.get("/v1/targets/a/alarms").json()["alarms"]
            assert client.post("/v1/targets/a/alarms/acknowledge", json={}).status_code == 403


def test_live_clients_get_alarms(service, stream):
    with service.stream("GET", "/v1/targets/a/live") as live:
        lines = live.iter_lines()
        next(lines)
        post(service, "a", stream[16:24])
        found = []
        while not found or found[-1] != "event: batch":
            found.append(next(lines))
    assert "event: alarm" in found


def test_without_alarms_there_are_none(serving, rows):
    with serving() as client:
        post(client, "a", rows[:20])
        found = client.get("/v1/targets/a/alarms").json()
        assert found == {"enabled": False, "summary": None, "alarms": []}
        response = client.post("/v1/targets/a/alarms/acknowledge", json={"alarm": "1"})
        assert response.status_code == 409
        assert "[alarms]" in response.json()["error"]


def test_alarms_survive_a_kill_and_are_sent_once(model, stream, tmp_path):
    state, found = tmp_path / "state", []
    with Receiver() as receiver:
        for life, part in enumerate((stream[:12], stream[12:20], stream[20:])):
            box = Outbox([Webhook(receiver.url, SECRET)], pauses=(0.01, 0.1))
            app = create_app(model, state_dir=state, batch_size=8, alarms=CONFIG, alarm_output=box)
            worker = app.state.service.channels[0].worker
            with background(app) as url, Client(url) as client:
                kill_at_end(worker)
                client.send("a", part)
                assert bool(worker.totals["replayed"]) == (life > 0)
                if life == 0:
                    client.command("a", "acknowledge", "1", by="ada")
                found = client.alarms("a")
            wait_until(lambda box=box: not len(box))
    with serve(model) as url, Client(url) as client:
        client.send("a", stream[:12])
        client.command("a", "acknowledge", "1", by="ada")
        client.send("a", stream[12:20])
        client.send("a", stream[20:])
        expected = client.alarms("a")
    for one in (*found, *expected):  # times of arrival
        del one["since"], one["cleared"]
    assert found == expected
    changes = [(one["sequence"], one["change"]) for one in receiver.messages]
    assert changes == sorted(set(changes))
    assert [sequence for sequence, _ in changes] == [*range(1, len(changes) + 1)]
    assert "acknowledged" in dict(changes).values()


@pytest.mark.parametrize("later", [1, 2, 3])
def test_several_workers_have_the_same_alarms(model, stream, tmp_path, later):
    """Also if the number of workers changes, and with a snapshot after every batch."""
    state, received = tmp_path / "state", {}
    limits = Limits(snapshot_every=1)
    with Receiver() as receiver:
        for workers, part in ((2, stream[:16]), (later, stream[16:])):
            box = Outbox([Webhook(receiver.url, SECRET)], pauses=(0.01, 0.1))
            app = create_app(
                model,
                state_dir=state,
                batch_size=8,
                limits=limits,
                alarms=CONFIG,
                alarm_output=box,
                workers=workers,
            )
            with background(app) as url, Client(url) as client:
                for name in ("a", "b", "c"):
                    for start in range(0, len(part), 4):
                        client.send(name, part[start : start + 4])
                found = [client.alarms(name) for name in ("a", "b", "c")]
            wait_until(lambda box=box: not len(box))
    assert found[0]
    assert all(len(one) == len(found[0]) for one in found)
    for one in receiver.messages:
        received.setdefault(one["key"], []).append((one["sequence"], one["change"]))
    assert received["a"] == received["b"] == received["c"]
    assert [sequence for sequence, _ in received["a"]] == [*range(1, len(received["a"]) + 1)]


class Away:
    """A receiver of alarms that may be away."""

    name = "away"

    def __init__(self, is_away):
        self.is_away, self.records = is_away, []

    def send(self, _, record):
        if self.is_away:
            raise UnreachableError("nobody is there")
        self.records.append(record)

    def stop_when(self, stop):
        pass

    def close(self):
        pass


@pytest.mark.parametrize("workers", [(1, 1, 1), (1, 2, 2), (2, 2, 1)])
def test_alarms_that_nobody_has_received_survive_kills_and_commits(model, stream, tmp_path, workers):
    for life, n in enumerate((*workers, workers[-1])):
        away = Away(is_away=life < 2)
        app = create_app(
            model,
            state_dir=tmp_path,
            batch_size=8,
            alarms=CONFIG,
            alarm_output=Outbox([away], pauses=(0.01, 0.02)),
            workers=n,
        )
        with background(app) as url, Client(url) as client:
            if life == 0:
                for name in ("a", "b", "c"):
                    client.send(name, stream[:16])
            assert len(client.targets()) == 3
        sent = sorted((one["key"], one["sequence"]) for one in away.records)
        assert sent == ([("a", 1), ("b", 1), ("c", 1)] if life == 2 else [])


def test_alarms_of_a_target_that_is_deleted_and_created_again_are_sent(model, stream, tmp_path):
    """They are the same, but not those of the same target."""
    here = Away(is_away=False)
    app = create_app(model, state_dir=tmp_path, batch_size=8, alarms=CONFIG, alarm_output=Outbox([here]))
    with background(app) as url, Client(url) as client:
        times = [f"2026-01-01T00:{n:02d}:00Z" for n in range(16)]
        for _ in range(2):
            client.send("a", stream[:16], times=times)
            client.delete("a")
    assert len(here.records) == 2
    assert here.records[0] == here.records[1]


@pytest.mark.parametrize("again", [0, 4, 16])
@pytest.mark.parametrize("committed", [0, 1, None])
def test_a_deleted_target_and_a_new_one_of_the_same_name_are_not_confused(
    model, stream, tmp_path, again, committed
):
    """Some sessions may be committed when the process is killed, and others not."""
    config = SessionConfig(model, 8, "off", CONFIG)

    def opened():
        store = Store(tmp_path)
        targets = WorkerTargets(config, store, 10)
        return store, targets, targets.recover()

    def apply(entry):
        (received,) = targets.loop.receive([entry])
        targets.loop.apply(received)

    def send(name, rows):
        posted = Posted(rows, [str(n) for n in range(len(rows))], None)
        apply(targets.entry_of_rows(name, posted))

    store, targets, _ = opened()
    send("b", stream[:3])
    send("a", stream[:6])
    targets.loop.commit()
    send("b", stream[3:5])
    send("a", stream[6:14])
    apply(targets.entry_of_deletion("a"))
    if again:
        send("a", stream[:again])
    if committed != 0:
        targets.loop.commit(committed)
    store.close()
    store, targets, n_replayed = opened()
    assert n_replayed == {0: 3 + bool(again), 1: 2 + bool(again), None: 0}[committed]
    assert ("a" in targets.summaries) == bool(again)
    if again:
        assert targets.summaries["a"]["rows_seen"] == again
    assert targets.summaries["b"]["rows_seen"] == 5
    assert not store.pending
    store.close()
