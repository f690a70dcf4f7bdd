"""What was acknowledged is there, whatever happens."""

import contextlib
import errno
import json
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.exceptions import BaryflowError, FileFormatError, InvalidInputError, TransportError
from baryflow.runtime import Loop, Runner, Session, SessionConfig, Sessions, Store
from baryflow.service import background, create_app
from baryflow.service.targets import Targets
from tests.runtime.ends import Rows, full_disk
from tests.service.conftest import kill_at_end, post, worker
from tests.service.processes import Load, Process
from tests.service.test_routes import session


def test_without_a_last_snapshot_the_log_is_replayed(serving, model, rows, tmp_path):
    with serving(tmp_path) as client:
        for n in range(5):
            post(client, "a", rows[10 * n : 10 * n + 10], f"batch-{n}")
        post(client, "b", rows[:3])
        client.delete("/v1/targets/b")
        kill_at_end(worker(client))
    with serving(tmp_path) as client:
        assert worker(client).totals["replayed"] == 7
        assert client.get("/v1/targets/a").json()["rows_seen"] == 50
        assert client.get("/v1/targets/b").status_code == 404
        assert post(client, "a", rows[40:50], "batch-4").json()["repeated"]
        got = post(client, "a", rows[50:60], time="then").json()["predictions"]
    assert got == session(model, rows[:60])[50:]


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_id_that_is_used_for_other_rows_or_labels_is_refused(serving, rows, tmp_path, is_killed):
    def label(client, name):
        content = {"labels": [{"position": 1, "label": name}], "id": "two"}
        return client.post("/v1/targets/a/labels", json=content)

    def check(client):
        for some, time in ((rows[10:20], None), (rows[:9], None), (rows[:10], "noon")):
            refused = post(client, "a", some, "one", time)
            assert refused.status_code == 422
            assert "'one'" in refused.json()["error"]
        assert post(client, "a", rows[:10], "one").json()["repeated"]
        assert label(client, "2").status_code == 422
        assert label(client, "1").json()["repeated"]
        assert client.get("/v1/targets/a").json()["rows_seen"] == 10

    with serving(tmp_path) as client:
        post(client, "a", rows[:10], "one")
        label(client, "1")
        check(client)
        post(client, "b", rows[10:20], "one")  # ids are those of a target
        if is_killed:
            kill_at_end(worker(client))
    with serving(tmp_path) as client:
        check(client)


def test_snapshots_while_rows_come_lose_nothing_and_count_nothing_twice(serving, model, rows, tmp_path):
    with serving(tmp_path, in_memory=4, snapshot_every=5) as client:

        def work(n):
            for i in range(8):
                assert post(client, f"t{n}", rows[5 * i : 5 * i + 5], f"{i}").status_code == 200

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert worker(client).totals["snapshots"] >= 1
        kill_at_end(worker(client))
        # Requests that came together have shared trips to the disk.
        assert worker(client).totals["batches"] == 32
        assert worker(client).totals["commits"] <= 32
    with serving(tmp_path) as client:
        assert worker(client).totals["replayed"] < 32
        for n in range(4):
            assert client.get(f"/v1/targets/t{n}").json()["rows_seen"] == 40
            got = post(client, f"t{n}", rows[40:50], time="then").json()["predictions"]
            assert got == session(model, rows[:50])[40:]


def test_however_many_targets_have_changed_a_request_waits_for_few_of_them(
    serving, rows, tmp_path, monkeypatch
):
    """How long that is with 10,000 targets is an experiment: experiments/service/many.py."""
    write, written = Sessions.write, []

    def count(self, keys):
        written.append(len(keys))
        write(self, keys)

    with serving(tmp_path, snapshot_every=30) as client:
        monkeypatch.setattr(Sessions, "write", count)
        for n in range(60):
            post(client, f"t{n}", rows[:3])
        found = list(written)
    assert sum(found) >= 30
    assert max(found) <= 4


def test_a_full_disk_refuses_and_takes_nothing(serving, rows, tmp_path, monkeypatch):
    with serving(tmp_path) as client:
        post(client, "a", rows[:10])

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Store, "append", full)
            refused = post(client, "a", rows[10:20], "two")
            assert client.delete("/v1/targets/a").status_code == 507
        assert client.get("/v1/targets/a").json()["rows_seen"] == 10
        assert not post(client, "a", rows[10:20], "two").json()["repeated"]
    assert refused.status_code == 507
    assert "nothing was changed" in refused.json()["error"]


def test_a_service_starts_on_a_full_disk_and_refuses_rows(serving, rows, tmp_path, monkeypatch):
    with serving(tmp_path) as client:
        post(client, "a", rows[:10], "one")
        kill_at_end(worker(client))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        for name in ("append", "write_session", "put_message", "set"):
            patch.setattr(Store, name, full)
        with serving(tmp_path) as client:
            assert client.get("/v1/targets/a").json()["rows_seen"] == 10
            assert post(client, "a", rows[10:20], "two").status_code == 507
    with serving(tmp_path) as client:
        assert post(client, "a", rows[:10], "one").json()["repeated"]
        assert post(client, "a", rows[10:20], "two").json()["first"] == 11


def test_a_damaged_store_is_reported_and_the_service_does_not_start(serving, rows, tmp_path):
    with serving(tmp_path) as client:
        post(client, "a", rows[:10], "one")
    content = bytearray((tmp_path / "store.db").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "store.db").write_bytes(content)
    with pytest.raises(FileFormatError, match="is damaged"), serving(tmp_path):
        pass
    assert (tmp_path / "store.db").read_bytes() == content


def test_a_folder_that_cannot_be_used_is_refused_before_anybody_connects(model, tmp_path):
    app = create_app(model, state_dir=tmp_path)
    with background(app), pytest.raises(InvalidInputError, match="in use"):
        create_app(model, state_dir=tmp_path)


def test_the_folder_of_a_run_is_refused(model, tmp_path):
    store = Store(tmp_path)
    Runner(SessionConfig(model), Rows(np.empty((0, 4))), store=store).run()
    store.close()
    app = create_app(model, state_dir=tmp_path)
    with pytest.raises(InvalidInputError, match="'baryflow run'"), background(app):
        pass


def test_killed_under_load_no_acknowledged_row_is_lost_and_none_counts_twice(
    model_file, serving, rows, tmp_path
):
    """Many kills are an experiment: experiments/service."""
    options = (
        "--batch-size",
        "8",
        "--in-memory",
        "2",
        "--snapshot-every",
        "6",
    )  # the batches of `serving`
    process = Process(model_file, tmp_path, *options)
    with Load(process, rows, [f"t{n}" for n in range(4)], patience=600) as load:
        load.wait_for_more()
        process.end(signal.SIGKILL)
        process.restart()
        load.wait_for_more()
    process.end(signal.SIGTERM)  # it finishes what runs, then ends
    assert process.code == 0, process.words
    with serving(tmp_path) as client:
        for name, n in load.sent.items():
            assert client.get(f"/v1/targets/{name}").json()["rows_seen"] == n > 0


def test_a_service_starts_while_the_receiver_of_its_webhook_is_away(model_file, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr("baryflow.service.run", lambda app, *_, **__: started.append(app))
    (tmp_path / "config.toml").write_text("[alarms]\nnormal = ['0']\n")
    webhook = ["--alarm-webhook", "http://127.0.0.1:1/hook"]
    arguments = [
        "--config",
        str(tmp_path / "config.toml"),
        "serve",
        str(model_file),
        "--workers",
        "1",
        *webhook,
    ]
    done = CliRunner().invoke(main, arguments, env={"BARYFLOW_WEBHOOK_SECRET": "0123456789abcdef"})
    assert done.exit_code == 0, done.output
    (app,) = started
    app.state.service.outbox.close()


def test_interrupted_service_has_saved_its_targets(model_file, tmp_path, monkeypatch):
    def serve_and_interrupt(app, *_, **__):
        with background(app):
            return signal.SIGINT

    monkeypatch.setattr("baryflow.service.run", serve_and_interrupt)
    found = CliRunner().invoke(main, ["serve", str(model_file), "--checkpoint", str(tmp_path)])
    assert (found.exit_code, "saved" in found.stderr) == (130, True)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_507_wherever_it_strikes(serving, rows, tmp_path, monkeypatch, caplog, code):
    write_session, is_full = Store.write_session, False

    def maybe(self, *given):
        if is_full:
            raise OSError(code, os.strerror(code))
        write_session(self, *given)

    monkeypatch.setattr(Store, "write_session", maybe)
    with serving(tmp_path, in_memory=1) as client:
        post(client, "a", rows[:3])
        post(client, "b", rows[:3])  # "a" is written out
        is_full = True
        answers = {
            "new target": post(client, "c", rows[:4], "first"),
            "known target": post(client, "a", rows[3:5], "second"),
        }
        assert {what: answer.status_code for what, answer in answers.items()} == dict.fromkeys(
            answers, 507
        )
        assert {answer.headers["retry-after"] for answer in answers.values()} == {"10"}
        for view in ("", "/view", "/why/1"):  # they need no room
            assert client.get(f"/v1/targets/a{view}").status_code == 200
        assert len(worker(client).targets.sessions.in_memory) == 1
        assert post(client, "b", rows[3:5]).json()["last"] == 5  # in memory: the journal has room
        assert client.get("/v1/targets/c").status_code == 404
        is_full = False
        assert post(client, "c", rows[:4], "first").json()["last"] == 4
        assert not post(client, "a", rows[3:5], "second").json()["repeated"]
        kill_at_end(worker(client))
    assert not any(record.exc_info for record in caplog.records)  # no traceback
    with serving(tmp_path) as client:
        lines = {line["name"]: line["rows_seen"] for line in client.get("/v1/targets").json()["targets"]}
    assert lines == {"a": 5, "b": 5, "c": 4}


def test_a_disk_that_is_full_at_50_moments_changes_nothing(serving, model, rows, tmp_path):
    """At each moment files can grow by a number of bytes drawn at random, then by none."""
    rng, found, refused = random.Random(0), [], 0
    log = tmp_path / "store.db-wal"
    with serving(tmp_path, snapshot_every=3) as client:
        for moment in range(50):
            some, key = rows[3 * moment : 3 * moment + 3], f"batch-{moment}"
            with full_disk(log.stat().st_size * (moment % 3 > 0) + rng.randrange(60_000)):
                answer = post(client, "a", some, key, time="then")
            if answer.status_code != 200:
                assert answer.status_code == 507
                assert answer.headers["retry-after"]
                answer, refused = post(client, "a", some, key, time="then"), refused + 1
            assert not answer.json()["repeated"]
            found += answer.json()["predictions"]
        kill_at_end(worker(client))
    assert found == session(model, rows[:150])
    assert 10 < refused < 40
    with serving(tmp_path) as client:
        assert client.get("/v1/targets/a").json()["rows_seen"] == 150
        got = post(client, "a", rows[150:160], time="then").json()["predictions"]
    assert got == session(model, rows[:160])[150:]


def test_a_full_disk_at_the_end_costs_only_the_snapshot(serving, rows, tmp_path, monkeypatch, caplog):
    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with serving(tmp_path) as client:
        post(client, "a", rows[:3])
        monkeypatch.setattr(Loop, "commit", full)
    assert "cannot commit" in caplog.text
    assert not any(record.exc_info for record in caplog.records)
    monkeypatch.undo()
    with serving(tmp_path) as client:
        assert client.get("/v1/targets/a").json()["rows_seen"] == 3


def test_a_full_disk_ends_live_updates_in_order(serving, rows, monkeypatch, caplog):
    async def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with serving() as client:
        post(client, "a", rows[:3])
        monkeypatch.setattr(Targets, "describe", full)
        with client.stream("GET", "/v1/targets/a/live") as stream:
            parts = stream.iter_raw()
            next(parts)
            post(client, "a", rows[3:6])
            assert b"event: batch" not in b"".join(parts)
        assert client.get("/v1/targets/a").status_code == 507
    assert not any(record.exc_info for record in caplog.records)


class Fragile:
    """Makes the models fail on rows that hold a certain value, in one of their methods."""

    def __init__(self, monkeypatch, method):
        self.monkeypatch, self.method = monkeypatch, method

    def __enter__(self):
        works = getattr(OnlineDaDiL, self.method)

        def fails(model, rows, *more, **named):
            if (rows.values == 13.0).any():
                raise ArithmeticError("a bad number")
            return works(model, rows, *more, **named)

        self.monkeypatch.setattr(OnlineDaDiL, self.method, fails)

    def __exit__(self, *_):
        self.monkeypatch.undo()


def described(client, name):
    found = client.get(f"/v1/targets/{name}").json()
    return {key: found[key] for key in found if "second" not in key}


def test_rows_on_which_the_model_fails_are_quarantined_and_the_others_predicted(
    serving, rows, tmp_path, monkeypatch
):
    bad = np.concatenate([rows[:11], np.full((1, 4), 13.0), rows[11:16]])
    with Fragile(monkeypatch, "assess"):
        with serving(tmp_path) as client:
            answers = [post(client, "a", bad, "bad").json() for _ in range(2)]  # the second is a repeat
            for answer in answers:
                assert (answer["rows"], answer["quarantined"], len(answer["predictions"])) == (17, 1, 16)
                (event,) = [one for one in answer["events"] if one["event"] == "quarantine"]
                assert event["position"] == 12
                assert "ArithmeticError: a bad number" in event["message"]
            assert post(client, "b", rows[:9]).json()["quarantined"] == 0
            assert post(client, "a", rows[20:44], "after").json()["first"] == 18
            before = described(client, "a")
            assert before["rows_seen"] == 41
            assert before["rows_learned"] == 40
            assert "baryflow_quarantined_rows_total 1" in client.get("/metrics").text
            kill_at_end(worker(client))
        with serving(tmp_path) as client:
            assert worker(client).totals["replayed"] == 3
            assert described(client, "a") == before
    (kept,) = map(json.loads, filter(None, (tmp_path / "quarantine.ndjson").read_text().split("\n")))
    assert (kept["target"], kept["batch_id"], kept["position"]) == ("a", "bad", 12)
    assert kept["values"] == [13.0] * 4


def test_a_batch_from_which_the_model_fails_to_learn_is_reported_and_left_out(
    serving, rows, tmp_path, monkeypatch
):
    bad = np.concatenate([rows[:11], np.full((1, 4), 13.0), rows[11:16]])  # batches of 8 are learned
    with Fragile(monkeypatch, "absorb"):
        with serving(tmp_path) as client:
            answer = post(client, "a", bad).json()
            assert (answer["quarantined"], len(answer["predictions"])) == (0, 17)
            (event,) = [one for one in answer["events"] if one["event"] == "warning"]
            assert "ArithmeticError: a bad number" in event["message"]
            before = described(client, "a")
            assert before["rows_learned"] == 8
            kill_at_end(worker(client))
        with serving(tmp_path) as client:
            assert described(client, "a") == before


@pytest.mark.parametrize("method", ["assess", "absorb"])
def test_a_model_that_fails_in_a_replay_does_not_stop_the_service(
    serving, rows, tmp_path, monkeypatch, method
):
    with serving(tmp_path) as client:
        post(client, "a", rows[:10])
        post(client, "a", np.full((10, 4), 13.0), "bad")
        post(client, "b", rows[:10])
        kill_at_end(worker(client))
    with Fragile(monkeypatch, method), serving(tmp_path) as client:
        lines = {one["name"]: one["rows_seen"] for one in client.get("/v1/targets").json()["targets"]}
        assert lines == {"a": 20, "b": 10}
        assert post(client, "a", rows[10:14]).status_code == 200


def test_a_batch_that_cannot_be_applied_is_quarantined_and_the_target_continues(
    serving, rows, tmp_path, monkeypatch
):
    apply = Session.apply

    def fail(self, some):
        if (some.values == 13.0).any():
            raise ArithmeticError("a bad number")
        return apply(self, some)

    monkeypatch.setattr(Session, "apply", fail)
    with serving(tmp_path) as client:
        post(client, "a", rows[:10])
        answer = post(client, "a", np.full((5, 4), 13.0), "bad").json()
        assert (answer["rows"], answer["quarantined"], answer["predictions"]) == (5, 5, [])
        assert post(client, "a", rows[10:14]).json()["first"] == 16
        before = described(client, "a")
        kill_at_end(worker(client))
    with serving(tmp_path) as client:
        assert described(client, "a") == before
    kept = [
        json.loads(line) for line in (tmp_path / "quarantine.ndjson").read_text().split("\n") if line
    ]
    assert [one["position"] for one in kept] == list(range(11, 16))


@pytest.mark.parametrize("error", [ArithmeticError, TransportError])
def test_a_likelihood_that_cannot_be_computed_costs_only_its_point(
    serving, rows, tmp_path, monkeypatch, error
):
    def fail(*_):
        raise error("no likelihood")

    monkeypatch.setattr("baryflow.service.worker_targets.clean", fail)
    with serving(tmp_path) as client:
        answer = post(client, "a", rows[:16], "first").json()
        assert (answer["rows"], answer["quarantined"], len(answer["predictions"])) == (16, 0, 16)
        assert post(client, "a", rows[:16], "first").json()["repeated"]
        before = described(client, "a")
        kill_at_end(worker(client))
    with serving(tmp_path) as client:
        assert described(client, "a") == before


def test_a_batch_that_runs_out_of_memory_is_applied_before_any_later_one(
    serving, rows, tmp_path, monkeypatch
):
    """It is in the journal, and a replay would take it for the rows acknowledged after it."""
    apply = Session.apply

    def fail(self, some):
        if len(some) == 7:
            raise MemoryError
        return apply(self, some)

    with (  # noqa: PT012
        monkeypatch.context() as patch,
        pytest.raises(BaryflowError, match="nothing is lost"),
        serving(tmp_path) as client,
    ):
        post(client, "a", rows[7:10], "before")
        patch.setattr(Session, "apply", fail)
        assert post(client, "a", rows[:7], "large").status_code == 500
        with contextlib.suppress(httpx.TransportError):  # the service is stopping
            assert post(client, "a", rows[10:13], "small").status_code == 503
    with serving(tmp_path) as client:
        again = post(client, "a", rows[:7], "large").json()
        assert (again["repeated"], again["first"], again["last"]) == (True, 4, 10)
        assert post(client, "a", rows[10:13], "small").json()["first"] == 11
        assert described(client, "a")["rows_seen"] == 13
