"""Labels over HTTP: each counts once, survives kills, and changes what is predicted."""

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from baryflow import codec
from baryflow.client import Client
from baryflow.exceptions import InvalidInputError
from baryflow.runtime import Label, SessionConfig
from baryflow.runtime import Rows as Raw
from baryflow.service import worker_targets
from tests.service.conftest import kill_at_end, post, serve, worker
from tests.service.processes import Process
from tests.waiting import wait_until


def send(client, name, labels, **more):
    return client.post(f"/v1/targets/{name}/labels", json={"labels": labels, **more})


def by_position(problem, positions, **more):
    return [{"position": n, "label": int(problem.y_target[n - 1]), **more} for n in positions]


@pytest.fixture(scope="module")
def service(model, rows):
    with serve(model, rows=100, body=20_000) as client:
        post(client, "a", rows[:20])
        yield client


def test_labels_are_learned_pending_or_rejected_with_the_reason(serving, model, problem, rows):
    with serving() as client:
        post(client, "a", rows[:20], time="then")  # rows 17 to 20 wait
        labels = [
            *by_position(problem, [1, 2, 18]),
            {"values": rows[2].tolist(), "label": "7"},
            {"position": 99, "label": 1},
            {"time": "then", "label": 1},
            {"position": 3, "label": "leak"},
        ]
        answer = send(client, "a", labels).json()
        found = client.get("/v1/targets/a").json()
        post(client, "a", rows[20:24])
        later = post(client, "a", rows[24:30]).json()
    assert (answer["learned"], answer["pending"], answer["repeated"]) == (3, 1, False)
    assert answer["classes"] == ["0", "1", "2", "7"]
    assert [one["position"] for one in answer["rejected"]] == [99, None, 3]
    for one, word in zip(answer["rejected"], ("row 99", "20 rows", "numbers"), strict=True):
        assert word in one["reason"]
    assert (found["n_labels"], found["new_classes"], found["rows_seen"]) == (4, ["7"], 20)
    assert found["proportions"]["7"] is None
    session = SessionConfig(model, 8, "report").begin()
    session.apply(Raw(rows[:20], np.arange(1, 21), ["then"] * 20, [""] * 20))
    session.label([Label(int(problem.y_target[n - 1]), n) for n in (1, 2, 18)])
    # The order in one request is kept: labels learned at once are learned together.
    assert session.model.n_labels_ == 2
    assert {record["rows_seen"] for record in later["predictions"]} == {24}


def test_a_session_without_a_service_learns_the_same(serving, model, problem, rows):
    labels = by_position(problem, [1, 5, 9, 18])
    with serving() as client:
        post(client, "a", rows[:20])
        send(client, "a", labels, certify=True)
        got = post(client, "a", rows[20:40], time="then").json()["predictions"]
    session = SessionConfig(model, 8, "report").begin()
    session.apply(Raw(rows[:20], np.arange(1, 21), ["then"] * 20, [""] * 20))
    session.label([Label(one["label"], one["position"], certify=True) for one in labels])
    assert got == session.apply(Raw(rows[20:40], np.arange(21, 41), ["then"] * 20, [""] * 20)).records


def test_labels_that_are_sent_again_count_once_also_after_a_restart(
    serving, problem, rows, tmp_path, monkeypatch
):
    monkeypatch.setattr(worker_targets, "BATCHES", 8)  # of 128
    with serving(tmp_path) as client:
        post(client, "a", rows[:20])
        first = send(client, "a", by_position(problem, [1, 2, 99]), id="one").json()
        again = send(client, "a", by_position(problem, [1, 2, 99]), id="one").json()
        header = {"Idempotency-Key": "two"}
        body = {"labels": by_position(problem, [3]), "certify": True}
        client.post("/v1/targets/a/labels", json=body, headers=header)
        kill_at_end(worker(client))
    with serving(tmp_path) as client:
        assert worker(client).totals["replayed"] == 3
        last = client.post("/v1/targets/a/labels", json=body, headers=header).json()
        older = send(client, "a", by_position(problem, [1, 2, 99]), id="one").json()
        found = client.get("/v1/targets/a").json()
        assert worker(client).targets.sessions.read("a").model.n_labels_ == 3
        for n in range(8 + 1):
            send(client, "a", by_position(problem, [4]), id=f"more-{n}")
        assert not send(client, "a", by_position(problem, [1]), id="one").json()["repeated"]
    assert again == first | {"repeated": True}
    assert (last["repeated"], last["learned"], last["certificate"]["labels"]) == (True, 1, 1)
    assert (older["repeated"], older["learned"], older["pending"]) == (True, 2, 0)
    assert (found["n_labels"], found["certificate"]["labels"]) == (3, 1)
    assert found["certificate"]["sentences"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        ({"labels": []}, 422),
        ([], 422),
        ({"labels": {}}, 422),
        ({"labels": [{"position": 1, "label": 1}], "extra": 1}, 422),
        ({"labels": [{"position": 1, "label": 1}], "certify": "yes"}, 422),
        ({"labels": [{"position": 1, "label": 1}], "id": 3}, 422),
        ({"labels": [{"position": 1, "label": 1}], "id": "a b"}, 422),
        ({"labels": [{"label": 1}]}, 422),
        ({"labels": [{"position": 1}]}, 422),
        ({"labels": [{"position": 1, "label": None}]}, 422),
        ({"labels": [{"position": 1, "label": ""}]}, 422),
        ({"labels": [{"position": 1, "label": " "}]}, 422),
        ({"labels": [{"position": 1, "label": [1]}]}, 422),
        ({"labels": [{"position": 1, "label": 1, "offset": "1"}]}, 422),
        ({"labels": [{"position": 0, "label": 1}]}, 422),
        ({"labels": [{"position": True, "label": 1}]}, 422),
        ({"labels": [{"position": 10**40, "label": 1}]}, 422),
        ({"labels": [{"time": "x" * 65, "label": 1}]}, 422),
        ({"labels": [{"time": 3, "label": 1}]}, 422),
        ({"labels": [{"values": [1, 2], "label": 1}]}, 422),
        ({"labels": [{"values": [1, 2, 3, "4"], "label": 1}]}, 422),
        ({"labels": [{"values": [1, 2, 3, 1e200], "label": 1}]}, 422),
        ({"labels": [{"values": 3, "label": 1}]}, 422),
        ({"labels": [{"position": 1, "label": 10**200}]}, 422),
        ({"labels": [{"position": 1, "label": 1}] * 101}, 413),
        ({"labels": [{"position": 1, "label": "x" * 30_000}]}, 413),
    ],
)
def test_a_malformed_body_is_refused_and_nothing_is_stored(service, body, status):
    before = service.get("/v1/targets/a").json()["n_labels"]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    answer = service.post("/v1/targets/a/labels", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]
    assert service.get("/v1/targets/a").json()["n_labels"] == before


def test_unknown_targets_and_other_content_types_are_refused(service):
    label = {"labels": [{"position": 1, "label": 1}]}
    assert send(service, "nobody", label["labels"]).status_code == 404
    assert send(service, "no body", label["labels"]).status_code == 422
    assert service.get("/v1/targets/nobody/query").status_code == 404
    text = service.post("/v1/targets/a/labels", content="x", headers={"Content-Type": "text/csv"})
    lines = {"Content-Type": "application/x-ndjson"}
    assert text.status_code == 415
    assert service.post("/v1/targets/a/labels", content="{}", headers=lines).status_code == 415
    assert "nobody" not in {one["name"] for one in service.get("/v1/targets").json()["targets"]}


def test_a_read_only_token_may_ask_but_not_label(serving, problem, rows):
    with serving(token="t" * 16, read_token="r" * 16) as client:
        post(client, "a", rows[:20])
        reader = {"Authorization": f"Bearer {'r' * 16}"}
        body = {"labels": by_position(problem, [1])}
        assert client.post("/v1/targets/a/labels", json=body, headers=reader).status_code == 403
        assert len(client.get("/v1/targets/a/query?n=3", headers=reader).json()["rows"]) == 3


def test_a_query_has_recent_rows_without_labels(service, rows):
    found = service.get("/v1/targets/a/query?n=5").json()["rows"]
    assert len(found) == 5
    for row in found:
        assert row.keys() == {"position", "time", "label", "probability", "novelty", "values"}
        np.testing.assert_array_equal(row["values"], rows[row["position"] - 1])
    assert service.get("/v1/targets/a/query?n=5").json()["rows"] == found
    assert len(service.get("/v1/targets/a/query").json()["rows"]) == 10
    for n in ("0", "101", "-1", "x", "1" * 30):
        assert service.get(f"/v1/targets/a/query?n={n}").status_code == 422


def test_before_the_first_batch_there_is_nothing_to_ask(serving, problem, rows):
    with serving() as client:
        post(client, "a", rows[:3])
        assert client.get("/v1/targets/a/query").json() == {"rows": []}
        assert send(client, "a", by_position(problem, [2])).json()["pending"] == 1


def test_a_label_changes_the_picture_and_what_is_predicted_for_its_row(serving, rows):
    with serving() as client:
        post(client, "a", rows[:24])
        before = client.get("/v1/targets/a/view").json()["recent"]
        like = [{"position": n, "label": 9} for n in range(1, 9)]
        send(client, "a", like)
        drawn = client.get("/v1/targets/a/view").json()
        why = client.get("/v1/targets/a/why/1").json()
    assert all("given" not in row for row in before)
    assert [row.get("given") for row in drawn["recent"]] == [9] * 8 + [None] * 16
    assert [row["label"] for row in drawn["recent"]] == [row["label"] for row in before]
    assert 9 in [row["now"] for row in drawn["recent"][:8]]
    assert drawn["new_classes"] == ["9"]
    assert drawn["proportions"]["9"] is None
    assert why["given"] == 9
    assert "9" in {one["class"] for one in why["probabilities"]}


def test_live_clients_and_metrics_see_labels(serving, problem, rows):
    with serving(target_metrics=1) as client:
        post(client, "a", rows[:16])
        with client.stream("GET", "/v1/targets/a/live") as stream:
            lines = stream.iter_lines()
            next(lines)
            send(client, "a", by_position(problem, [1, 2, 99]), certify=True)
            text = next(line for line in lines if '"label"' in line and "learned" in line)
        metrics = client.get("/metrics").text
    assert '"event":"label"' in text
    for line in (
        "baryflow_labels_total 2.0",
        "baryflow_rejected_labels_total 1.0",
        'baryflow_target_labels_total{target="a"} 2.0',
        "baryflow_rows_total 16.0",
        'baryflow_target_certified_accuracy{target="a"}',
    ):
        assert line in metrics, line


def test_too_many_classes_and_long_names_are_rejected(serving, rows):
    with serving() as client:
        post(client, "a", rows[:16])
        many = [{"values": rows[n].tolist(), "label": 100 + n} for n in range(120)]
        answer = send(client, "a", many).json()
        assert (answer["learned"], len(answer["rejected"])) == (100, 20)
        long = send(client, "a", [{"position": 1, "label": "x" * 300}]).json()
    assert "characters" in long["rejected"][0]["reason"]


def test_the_client_labels_and_asks(serving, problem, rows):
    with serving() as http, Client(str(http.base_url)) as client:
        client.send("a", rows[:16], times=[f"12:{n:02d}" for n in range(16)])
        asked = client.query("a", 3)
        names = [int(problem.y_target[row["position"] - 1]) for row in asked]
        answer = client.label("a", names, positions=[row["position"] for row in asked])
        assert (answer["learned"], answer["rejected"]) == (3, [])
        assert {row["position"] for row in client.query("a", 100)}.isdisjoint(
            row["position"] for row in asked
        )
        labels = problem.y_target[:4]
        assert client.label("a", labels, times=[f"12:{n:02d}" for n in range(4)])["learned"] == 4
        found = client.label("a", labels, rows=rows[50:54], certify=True, request_id="x")
        assert found["certificate"]["labels"] == 4
        assert client.label("a", labels, rows=rows[50:54], certify=True, request_id="x")["repeated"]
        for wrong in ({}, {"positions": [1]}):
            with pytest.raises(InvalidInputError):
                client.label("a", labels, **wrong)
        with pytest.raises(InvalidInputError, match="no target"):
            client.label("b", [1], positions=[1])


def bits(session):
    """Return everything that is saved of a target."""
    values, arrays = codec.encode(session.state())
    return json.dumps(values, sort_keys=True), {key: array.tobytes() for key, array in arrays.items()}


def test_killed_under_load_no_label_is_lost_and_none_counts_twice(
    model_file, serving, problem, rows, tmp_path
):
    """Many kills are an experiment: experiments/service."""
    options = ("--batch-size", "8", "--in-memory", "1", "--snapshot-every", "5")
    process = Process(model_file, tmp_path / "killed", *options)
    stop, sent = threading.Event(), {"t0": 0, "t1": 0}

    def step(client, name, n):
        client.send(name, rows[n % 200 : n % 200 + 5], batch_id=f"{n}", times=["then"] * 5)
        known = [n + 5, n + 1, max(1, n - 7)]
        names = [int(problem.y_target[(k - 1) % 200]) for k in known]
        client.label(name, names, positions=known, certify=n % 2 == 0, request_id=f"{n}")

    def work(name):
        with Client(process.url, patience=600) as client:
            while not stop.is_set():
                step(client, name, sent[name])
                sent[name] += 5

    def wait_for_more(working):
        goal = {name: n + 10 for name, n in sent.items()}
        wait_until(
            lambda: any(one.done() for one in working) or all(sent[k] > n for k, n in goal.items())
        )

    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(work, name) for name in sent]
        try:
            wait_for_more(working)
            process.end(signal.SIGKILL)
            process.restart()
            wait_for_more(working)
        finally:
            stop.set()
        for one in working:
            one.result()
    process.end(signal.SIGTERM)
    assert process.code == 0, process.words
    with serving(tmp_path / "killed") as http, Client(str(http.base_url)) as client:
        for name, n in sent.items():
            found = client.target(name)
            assert (found["rows_seen"], found["n_labels"]) == (n, 3 * n // 5)
        killed = [bits(worker(http).targets.sessions.read(name)) for name in sent]
    with serving(tmp_path / "undisturbed") as http, Client(str(http.base_url)) as client:
        for name, n in sent.items():
            for k in range(0, n, 5):
                step(client, name, k)
        assert killed == [bits(worker(http).targets.sessions.read(name)) for name in sent]
