"""Rows in, predictions out; each batch counts once."""

import json

import numpy as np
import pytest

from baryflow.runtime import Rows as Raw
from baryflow.runtime import SessionConfig
from tests.service.conftest import COLUMNS, post, serve


@pytest.fixture(scope="module")
def service(model):
    with serve(model, rows=100) as client:
        yield client


def session(model, rows):
    """Return the predictions of a session without a service."""
    raw = Raw(rows, np.arange(1, len(rows) + 1), ["then"] * len(rows), [""] * len(rows))
    return SessionConfig(model, 8, "report").begin().apply(raw).records


def test_predictions_do_not_depend_on_how_rows_are_split_into_requests(serving, model, rows):
    with serving() as client:
        got = []
        for start, end in ((0, 5), (5, 30), (30, 31), (31, 60)):
            answer = post(client, "a", rows[start:end], time="then").json()
            assert (answer["first"], answer["last"]) == (start + 1, end)
            got += answer["predictions"]
        assert client.get("/v1/targets/a").json()["rows_seen"] == 60
    assert got == session(model, rows[:60])


def test_rows_may_be_objects_and_values_may_be_missing(serving, model, rows):
    some = rows[:12].copy()
    some[3, 1] = some[7, 0] = np.nan
    objects = [
        {name: v for name, v in zip(COLUMNS, row, strict=True) if not np.isnan(v)}
        for row in some.tolist()
    ]
    objects[3]["heat"] = None
    objects[0]["time"] = "then"
    with serving() as client:
        found = client.post("/v1/targets/a/rows", json={"rows": objects}).json()["predictions"]
    assert found[0]["time"] == "then"
    assert all(record["time"].endswith("Z") for record in found[1:])  # the time of arrival
    wanted = session(model, some)
    assert [r["probability"] for r in found] == [r["probability"] for r in wanted]


def test_ndjson_with_the_batch_id_in_a_header(serving, rows):
    lines = "\n".join(json.dumps(row) for row in rows[:5].tolist()) + "\n\n"
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": "first"}
    with serving() as client:
        answers = [
            client.post("/v1/targets/a/rows", content=lines, headers=headers).json() for _ in range(2)
        ]
        assert client.get("/v1/targets/a").json()["rows_seen"] == 5
    assert [answer["repeated"] for answer in answers] == [False, True]
    assert answers[0] | {"repeated": True} == answers[1]


def test_a_batch_that_is_sent_again_counts_once_also_after_a_restart(serving, rows, tmp_path):
    with serving(tmp_path) as client:
        first = post(client, "a", rows[:20], "one").json()
        again = post(client, "a", rows[:20], "one").json()
        post(client, "a", rows[20:40], "two")
        post(client, "b", rows[:4], "one")  # another target, another batch
    with serving(tmp_path) as client:
        last = post(client, "a", rows[20:40], "two").json()
        older = post(client, "a", rows[:20], "one").json()
        seen = {line["name"]: line["rows_seen"] for line in client.get("/v1/targets").json()["targets"]}
    assert again == first | {"repeated": True}
    assert last["repeated"]
    assert [record["position"] for record in last["predictions"]] == list(range(21, 41))
    assert older["repeated"]
    assert (older["first"], older["last"]) == (1, 20)
    assert seen == {"a": 40, "b": 4}


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        ({"rows": [[1, 2, 3, 4], [1, 2, 3]]}, 422, "row 2: expected 4 numbers, got 3"),
        ({"rows": [[1, 2, 3, "4"]]}, 422, "row 1, column 'noise': expected `float | null`, got `str`"),
        ({"rows": [[1, 2, 3, True]]}, 422, "got `bool`"),
        ({"rows": [[1, 2, 3, 1e200]]}, 422, "row 1: column 'noise' is 1e+200"),
        ({"rows": [[1, 2, 3, 10**400]]}, 422, "row 1"),
        ({"rows": [{"flow": 1, "heft": 2}]}, 422, "unknown field `heft`; the columns are flow"),
        ({"rows": [{"flow": 1, "time": 7}]}, 422, "row 1, time: expected `str`, got `int`"),
        ({"rows": [7]}, 422, "row 1: expected `object | array`, got `int`"),
        ({"rows": []}, 422, "no rows"),
        ({"rows": {}}, 422, "Expected `array`, got `object` - at `$.rows`"),
        ({}, 422, "missing required field `rows`"),
        ([1], 422, "Expected `object`"),
        ({"rows": [[1, 2, 3, 4]], "labels": [1]}, 422, "unknown field `labels`"),
        ({"rows": [[1, 2, 3, 4]], "batch_id": 7}, 422, "`$.batch_id`"),
        ({"rows": [[1, 2, 3, 4]], "batch_id": "a b"}, 422, "batch_id must match"),
        ({"rows": [{"values": [1, 2, 3]}]}, 422, "row 1: expected 4 numbers, got 3"),
        ({"rows": [{"values": [1, 2, 3, 4], "flow": 1}]}, 422, "both values and columns"),
        ({"rows": [{"values": [1, 2, 3, 4], "time": "\ud800"}]}, 400, "not JSON"),
        ({"rows": [[1, 2, 3, 4]] * 101}, 413, "at most 100 rows, got 101"),
        (b'{"rows": [[1, 2, 3, NaN]]}', 400, "send null"),
        (b'{"rows": [[1, 2, 3', 400, "not JSON"),
        (b'{"rows": [[1, 2, 3, 1e999]]}', 422, "out of range"),
        (b'{"rows": ' + b"[" * 5_000, 422, "got `array`"),
        (b'{"rows": [[1, 2, 3, ' + b"9" * 10_000 + b"]]}", 422, "out of range"),
        (b"\xff\xfe{}", 400, "not JSON"),
        (b"", 400, "not JSON"),
    ],
)  # fmt: skip
def test_invalid_rows_are_refused_with_a_reason_and_nothing_is_stored(service, content, status, reason):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    answer = service.post(
        "/v1/targets/a/rows", content=body, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, reason in answer.json()["error"]) == (status, True), answer.text
    assert service.get("/v1/targets").json()["targets"] == []


def test_other_content_types_are_refused(serving):
    with serving() as client:
        url = "/v1/targets/a/rows"
        assert client.post(url, content=b"1,2,3,4").status_code == 415
        packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        assert client.post(url, content=b"{}", headers=packed).status_code == 415
        both = client.post(
            url, json={"rows": [[1, 2, 3, 4]], "batch_id": "a"}, headers={"Idempotency-Key": "b"}
        )
        assert both.json()["batch_id"] == "a"
