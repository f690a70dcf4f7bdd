"""Many targets: each for itself, most of them on disk."""

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from baryflow.service import background, create_app
from baryflow.service.worker import VIEWS
from tests.service.conftest import post, worker
from tests.service.test_routes import session
from tests.waiting import PATIENCE


def test_targets_that_are_written_out_go_on_as_if_they_had_stayed(serving, model, rows, tmp_path):
    names = [f"pump-{n}" for n in range(6)]
    got = {name: [] for name in names}
    with serving(tmp_path, in_memory=2) as client:
        for start in range(0, 40, 10):
            for name in names:
                answer = post(client, name, rows[start : start + 10], time="then")
                got[name] += answer.json()["predictions"]
        states = [line["state"] for line in client.get("/v1/targets").json()["targets"]]
    assert sorted(states) == ["in memory"] * 2 + ["on disk"] * 4
    assert all(got[name] == session(model, rows[:40]) for name in names)


def test_what_is_said_of_a_target(serving, rows):
    with serving() as client:
        post(client, "a", rows[:40])
        line = client.get("/v1/targets").json()["targets"][0]
        whole = client.get("/v1/targets/a").json()
    assert line["rows_seen"] == 40
    assert line["rows_learned"] == 40
    assert line["nearest"] in whole["sources"]
    assert set(line) | {
        "resemblance",
        "proportions",
        "classes",
        "sources",
        "columns",
        "report",
        "certificate",
    } == set(whole)
    assert whole["columns"] == ["flow", "heat", "speed", "noise"]
    assert "40 target rows" in whole["report"]


def test_a_deleted_target_is_gone_for_good(serving, rows, tmp_path):
    with serving(tmp_path) as client:
        post(client, "a", rows[:20], "one")
        post(client, "b", rows[:20])
        assert client.delete("/v1/targets/a").status_code == 204
        assert client.delete("/v1/targets/a").status_code == 404
        assert client.get("/v1/targets/a").status_code == 404
    with serving(tmp_path) as client:
        assert [line["name"] for line in client.get("/v1/targets").json()["targets"]] == ["b"]
        assert not post(client, "a", rows[:5], "one").json()["repeated"]
        assert client.get("/v1/targets/a").json()["rows_seen"] == 5


def test_there_is_a_limit_to_targets(serving, rows):
    with serving(targets=2) as client:
        assert post(client, "a", rows[:1]).status_code == 200
        assert post(client, "b", rows[:1]).status_code == 200
        refused = post(client, "c", rows[:1])
        assert refused.status_code == 409
        assert "no room for 'c'" in refused.json()["error"]
        assert post(client, "a", rows[:1]).status_code == 200
        client.delete("/v1/targets/a")
        assert post(client, "c", rows[:1]).status_code == 200


def test_deletes_and_rows_at_once_leave_no_trace_of_each_other(serving, rows, tmp_path):
    def work(n):
        if n % 3 == 0:
            return client.delete("/v1/targets/a").status_code
        return post(client, "a", rows[n : n + 9], f"batch-{n}").status_code

    with serving(tmp_path, snapshot_every=4) as client:
        with ThreadPoolExecutor(6) as pool:
            codes = list(pool.map(work, range(60)))
        assert set(codes) <= {200, 204, 404}
        before = client.get("/v1/targets").json()["targets"]
    with serving(tmp_path) as client:
        after = client.get("/v1/targets").json()["targets"]
    counts = [[(line["name"], line["rows_seen"]) for line in lines] for lines in (before, after)]
    assert counts[0] == counts[1]
    assert all(seen % 9 == 0 for _, seen in counts[0])


def test_too_many_requests_are_told_to_come_back(serving, rows):
    gate = threading.Event()
    with serving(requests=3, waiting=2) as client, ThreadPoolExecutor(8) as pool:
        loop = worker(client).targets.loop
        apply = loop.apply

        def slowly(entry):
            gate.wait(30)
            return apply(entry)

        loop.apply = slowly
        inside = [pool.submit(post, client, "a", rows[:1]) for _ in range(2)]
        while client.app.state.service.n_waiting < 2:
            pass
        per_target = post(client, "a", rows[:1])
        third = pool.submit(post, client, "b", rows[:1])
        while client.app.state.service.n_waiting < 3:
            pass
        in_all = post(client, "c", rows[:1])
        gate.set()
        assert [found.result().status_code for found in (*inside, third)] == [200] * 3
    assert per_target.status_code == in_all.status_code == 429
    assert "for a are waiting" in per_target.json()["error"]
    assert int(in_all.headers["retry-after"]) >= 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_slow_view_does_not_delay_rows(model, rows, monkeypatch, workers):
    """With processes, the views are patched before they are forked."""
    begun, release = multiprocessing.Event(), multiprocessing.Event()

    def slow(_):
        begun.set()
        assert release.wait(PATIENCE)
        return {"slow": True}

    monkeypatch.setitem(VIEWS, "picture", slow)
    with (
        background(create_app(model, batch_size=8, workers=workers)) as url,
        httpx.Client(base_url=url, timeout=PATIENCE) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        post(client, "a", rows[:10])
        drawn = pool.submit(client.get, "/v1/targets/a/view")
        try:
            assert begun.wait(PATIENCE)
            # While the picture is drawn, rows of the same target are answered, and so is everything
            # that needs no worker.
            assert post(client, "a", rows[10:30]).json()["last"] == 30
            assert client.get("/metrics").status_code == 200
            assert client.get("/v1/targets").json()["targets"][0]["rows_seen"] == 30
            assert not drawn.done()
        finally:
            release.set()
        assert drawn.result().json() == {"slow": True}


def test_a_view_shows_the_target_as_it_is_and_changes_nothing(serving, model, rows):
    with serving() as client:
        for start in range(0, 40, 10):
            for path in ("", "/view", "/query?n=3", f"/why/{start}"):
                client.get(f"/v1/targets/a{path}")
            got = post(client, "a", rows[start : start + 10], time="then").json()["predictions"]
            assert got == session(model, rows[: start + 10])[start:]
