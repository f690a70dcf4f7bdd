"""Baselines over HTTP: each counts once, survives restarts, and says how a target is calibrated."""

import numpy as np
import pytest

from baryflow.client import Client
from baryflow.exceptions import InvalidInputError
from baryflow.runtime import Label, Rows, SessionConfig
from tests.service.conftest import post, serve, worker


def send(client, name, **content):
    return client.post(f"/v1/targets/{name}/baseline", json=content)


@pytest.fixture(scope="module")
def service(model, rows):
    with serve(model, rows=50) as client:
        post(client, "a", rows[:20])
        yield client


def test_a_session_without_a_service_learns_the_same(serving, model, rows):
    with serving() as client:
        post(client, "a", rows[:20])
        answer = send(client, "a", label=0, positions=[1, 5, 18]).json()
        later = post(client, "a", rows[20:40], time="then").json()["predictions"]
        found = client.get("/v1/targets/a").json()
    assert (answer["learned"], answer["pending"], answer["rejected"]) == (3, 0, [])
    assert found["n_labels"] == 0
    session = SessionConfig(model, 8, "report").begin()
    session.apply(Rows(rows[:20], np.arange(1, 21), ["then"] * 20, [""] * 20))
    session.label([Label(0, n, baseline=True) for n in (1, 5, 18)])
    assert later == session.apply(Rows(rows[20:40], np.arange(21, 41), ["then"] * 20, [""] * 20)).records


def test_rows_or_a_span_of_time(serving, rows):
    with serving() as client:
        for minute in (0, 30, 50):
            post(client, "a", rows[minute : minute + 8], time=f"2026-11-18T09:{minute:02d}:00Z")
        span = {"from": "2026-11-18T09:00:00Z", "until": "2026-11-18T09:30:00Z"}
        assert send(client, "a", label="0", **span).json()["learned"] == 16
        late = send(client, "a", label="0", **{"from": "2026-11-19", "until": "2026-11-20"}).json()
        assert "not among the last" in late["rejected"][0]["reason"]
        assert send(client, "a", label=0, rows=rows[20:23].tolist()).json()["learned"] == 3
        known = send(client, "a", label=0, rows=rows[20:23].tolist(), id="again").json()
        assert (known["learned"], known["rejected"]) == (0, [])


def test_a_repeated_baseline_counts_once_also_after_a_restart(serving, rows, tmp_path):
    content = {"label": 0, "positions": [1, 2, 3], "id": "one"}
    with serving(tmp_path) as client:
        post(client, "a", rows[:16])
        first = send(client, "a", **content).json()
    with serving(tmp_path) as client:
        again = send(client, "a", **content).json()
        other = send(client, "a", **content | {"positions": [4]})
        state = worker(client).targets.sessions.read("a").model.state_
    assert again == first | {"repeated": True}
    assert (other.status_code, "used before" in other.json()["error"]) == (422, True)
    assert state.baselines[0].n_rows == 3


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"positions": [1]}, "label"),
        ({"label": 0}, "either"),
        ({"label": 0, "positions": [1], "rows": [[0.0] * 4]}, "either"),
        ({"label": 0, "from": "2026-11-18"}, "either"),
        ({"label": 0, "positions": []}, "no rows"),
        ({"label": 0, "positions": 3}, "array"),
        ({"label": 0, "positions": [0]}, ">= 1"),
        ({"label": 0, "rows": [[1.0]]}, "4 numbers"),
        ({"label": "", "positions": [1]}, "regex"),
        ({"label": 0, "positions": [1], "certify": True}, "unknown field"),
    ],
)
def test_an_invalid_baseline_is_refused(service, content, word):
    answer = send(service, "a", **content)
    assert answer.status_code == 422
    assert word in answer.json()["error"]


def test_a_target_that_does_not_exist(service):
    assert send(service, "none", label=0, positions=[1]).status_code == 404


def test_a_class_that_no_source_has_is_rejected(service):
    answer = send(service, "a", label=7, positions=[1]).json()
    assert "no source has" in answer["rejected"][0]["reason"]


def test_the_client_names_the_normal_class_only_if_the_model_does_not(service, model, rows):
    with Client(str(service.base_url)) as client:
        assert client.baseline("a", 0, rows=rows[:2])["learned"] == 2
        with pytest.raises(InvalidInputError, match="normal class"):
            client.baseline("a", positions=[1])
    remembering = type(model).from_bytes(model.to_bytes())
    remembering.normal_class_ = 1
    remembering = type(model).from_bytes(remembering.to_bytes())
    with serve(remembering) as found, Client(str(found.base_url)) as client:
        post(found, "a", rows[:16])
        assert client.baseline("a", positions=[1, 2])["learned"] == 2
        (baseline,) = worker(found).targets.sessions.read("a").model.state_.baselines
    assert baseline.code == 1
