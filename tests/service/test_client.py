"""The client retries until it is answered, and a feed resumes after a crash."""

import contextlib
import io
import shutil
from datetime import UTC, datetime

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pytest

from baryflow.client import Client, forward, open_target
from baryflow.exceptions import InvalidInputError, RefusedError, UnreachableError
from baryflow.runtime import Store
from baryflow.streams.backoff import Backoff
from tests.runtime.ends import Rows
from tests.service.conftest import COLUMNS, post


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in ("BARYFLOW_TOKEN", "BARYFLOW_CA"):
        monkeypatch.delenv(name, raising=False)


def url(client):
    return str(client.base_url).rstrip("/")


def test_rows_are_sent_and_targets_described_and_deleted(serving, rows):
    some = rows[:9].copy()
    some[2, 1] = np.nan
    with serving() as http, Client(url(http)) as client:
        answer = client.send("a", some, times=["noon"] * 9)
        assert [record["time"] for record in answer["predictions"]] == ["noon"] * 9
        client.send("b", [{"flow": 1.0, "heat": float("nan")}])
        assert client.target("a")["rows_seen"] == 9
        assert [line["name"] for line in client.targets()] == ["a", "b"]
        client.delete("a")
        with pytest.raises(InvalidInputError, match="no target 'a'"):
            client.target("a")
        with pytest.raises(InvalidInputError, match="row 1: expected 4 numbers"):
            client.send("a", [[1.0]])
        for wrong in ([[float("inf")] * 4], [1.0, 2.0], [["x"] * 4]):
            with pytest.raises(InvalidInputError):
                client.send("a", wrong)
        with pytest.raises(InvalidInputError, match="invalid target name"):
            client.send("a b", some)


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy"])
def test_columns_of_a_frame_are_matched_by_name(serving, rows, kind):
    names = ["noise", "flow", "speed", "heat"]  # another order than that of the model
    table = {name: rows[:9, COLUMNS.index(name)].tolist() for name in names}
    table["heat"][3] = None

    def frame(of):
        if kind == "pandas":
            return pd.DataFrame(of).convert_dtypes()
        return pl.DataFrame(of) if kind == "polars" else pl.LazyFrame(of)

    expected = rows[:9].copy()
    expected[3, COLUMNS.index("heat")] = np.nan
    with serving() as http, Client(url(http)) as client:
        answer = client.send("named", frame(table), times=["noon"] * 9)
        assert answer["predictions"] == client.send("plain", expected, times=["noon"] * 9)["predictions"]
        del table["speed"]
        with pytest.raises(InvalidInputError, match=r"missing columns: 'speed'"):
            client.send("named", frame(table))
        with pytest.raises(InvalidInputError, match=r"unknown columns: 'other'"):
            client.send("named", frame(table | {"speed": [0.0] * 9, "other": [0.0] * 9}))
        assert client.target("named")["rows_seen"] == 9


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    "times",
    [
        ["noon", "one"],
        np.array(["2026-01-01"] * 2, dtype="M8[us]"),
        [datetime(2026, 1, 1, tzinfo=UTC)] * 2,
    ],
)
def test_a_time_column_of_a_frame_is_named_with_what_to_do(rows, kind, times):
    frame = kind({"when": times} | {name: rows[:2, j] for j, name in enumerate(COLUMNS)})
    with (
        Client("http://127.0.0.1:1") as client,
        pytest.raises(InvalidInputError, match=r"'when'.*times="),
    ):
        client.send("a", frame)


def test_a_lost_answer_is_requested_again_with_the_same_batch_id(serving, rows):
    lost = []

    class Lossy(httpx.HTTPTransport):
        """Delivers every request, and every second answer."""

        def handle_request(self, request):
            response = super().handle_request(request)
            response.read()
            lost.append(len(lost) % 2 == 0)
            if lost[-1]:
                raise httpx.ReadError("gone", request=request)
            return response

    with serving() as http, Client(url(http), transport=Lossy()) as client:
        answers = [client.send("a", rows[n : n + 5]) for n in range(0, 20, 5)]
        assert client.target("a")["rows_seen"] == 20
    assert all(answer["repeated"] for answer in answers)
    assert [len(answer["predictions"]) for answer in answers] == [5] * 4
    assert any(lost)


def test_retry_after_is_respected_and_the_client_gives_up_in_the_end(monkeypatch):
    waited, answers = [], [429, 503, 200]
    monkeypatch.setattr(Backoff, "sleep", lambda _, seconds: waited.append(seconds))

    def answer(request):
        assert request.headers["authorization"] == "Bearer from-the-environment"
        return httpx.Response(answers.pop(0), json={"targets": []}, headers={"Retry-After": "3"})

    monkeypatch.setenv("BARYFLOW_TOKEN", "from-the-environment")
    with Client("http://host", transport=httpx.MockTransport(answer)) as client:
        assert client.targets() == []
    assert waited == [3.0, 3.0]
    refuse = httpx.MockTransport(
        lambda _: httpx.Response(503, json={"error": "the service is stopping"})
    )
    with (
        Client("http://host", transport=refuse, patience=0.01) as client,
        pytest.raises(UnreachableError, match="the service is stopping"),
    ):
        client.targets()
    with Client("http://127.0.0.1:9", patience=0.01) as client, pytest.raises(UnreachableError):
        client.targets()


def test_a_wrong_token_is_an_error_without_retries(serving):
    with (
        serving(token="x" * 20) as http,
        Client(url(http), "wrong") as client,
        pytest.raises(UnreachableError, match="denies access"),
    ):
        client.targets()


def test_a_feed_sends_all_good_rows_by_key(serving, rows):
    with serving() as http:
        client, name = open_target(f"{url(http)}/pump-1")
        with client:
            fed = forward(Rows(rows[:50], bad={3, 17}), client, name, read_size=8)
            assert client.target("pump-1")["rows_seen"] == 48
    assert (fed.rows, fed.rejected, fed.repeated) == (48, 2, 0)


def test_a_feed_that_was_killed_counts_nothing_twice(serving, rows, tmp_path):
    class Killed(BaseException):
        pass

    def life(client, kill_after):
        """Feed until killed: after the request, before anybody has noted that it was answered."""
        sent, checkpoint = [], Store(tmp_path)

        class Fatal:
            def send(self, *arguments, **options):
                answer = client.send(*arguments, **options)
                sent.append(answer)
                if len(sent) == kill_after:
                    raise Killed
                return answer

        try:
            return forward(Rows(rows[:200], bad={5}), Fatal(), "a", store=checkpoint, read_size=7)
        except Killed:
            return None
        finally:
            checkpoint.close()

    with serving() as http, Client(url(http)) as client:
        lives = [life(client, kill_after) for kill_after in (1, 4, 9, 15, None)]
        assert client.target("a")["rows_seen"] == 199
    assert lives[:4] == [None] * 4
    assert (lives[4].rows, lives[4].rejected) == (199, 1)
    assert lives[4].repeated > 0


def test_an_old_copy_of_a_checkpoint_ends_a_feed_and_loses_no_row(serving, rows, tmp_path):
    with serving() as http, Client(url(http)) as client:
        old = tmp_path / "old"
        with contextlib.closing(Store(tmp_path / "new")) as checkpoint:
            forward(Rows(rows[:8]), client, "a", store=checkpoint, read_size=4)
        shutil.copytree(tmp_path / "new", old)
        with contextlib.closing(Store(tmp_path / "new")) as checkpoint:
            forward(Rows(rows[:12]), client, "a", store=checkpoint, read_size=4)
        with (
            contextlib.closing(Store(old)) as checkpoint,
            pytest.raises(InvalidInputError, match="checkpoint"),
        ):
            forward(Rows(rows[20:40]), client, "a", store=checkpoint, read_size=4)
        assert client.target("a")["rows_seen"] == 12
        client.send("a", rows[:2], batch_id="mine")
        with pytest.raises(RefusedError) as refused:
            client.send("a", rows[2:4], batch_id="mine")
        assert refused.value.reused_id == "mine"
        with pytest.raises(RefusedError, match="column") as refused:
            client.send("a", rows[2:4, :3], batch_id="other")
        assert refused.value.reused_id is None


@pytest.mark.parametrize(
    "address", ["ftp://host/a", "http://host/a/b", "http://me:secret@host/a", "http://host/a?token=x"]
)
def test_other_addresses_are_refused_without_repeating_secrets(address):
    with pytest.raises(InvalidInputError) as caught:
        open_target(address)
    assert "secret" not in str(caught.value)


def test_rows_without_a_key_need_a_name(serving, rows):
    with serving() as http:
        client, name = open_target(url(http))
        with client, pytest.raises(InvalidInputError, match="name of a target"):
            forward(Rows(rows[:5]), client, name)
        assert post(http, "a", rows[:1]).status_code == 200


def damaged(_):
    return httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=b"not gzip")


def login_page(_):
    return httpx.Response(200, html="<p>Log in to the network.</p>")


def other_service(_):
    return httpx.Response(200, json=["hello"])


def proxy_error(_):
    return httpx.Response(400, html="<p>The plain HTTP request was sent to an HTTPS port</p>")


@pytest.mark.parametrize("answer", [damaged, login_page, other_service, proxy_error])
def test_rows_are_not_quarantined_if_something_else_than_the_service_answers(rows, tmp_path, answer):
    checkpoint = Store(tmp_path)
    sent = []

    def accept(request):
        sent.extend(np.load(io.BytesIO(request.content)))
        return httpx.Response(200, json={"repeated": False})

    try:
        for transport in (httpx.MockTransport(answer), httpx.MockTransport(accept)):
            with Client("http://host", transport=transport, patience=0.01) as client:
                if transport.handler is answer:
                    with pytest.raises(UnreachableError):
                        forward(Rows(rows[:8]), client, "a", store=checkpoint)
                else:
                    fed = forward(Rows(rows[:8]), client, "a", store=checkpoint)
    finally:
        checkpoint.close()
    assert len(sent) == 8
    assert (fed.rows, fed.rejected) == (8, 0)


def test_a_token_with_a_line_break_works_and_one_that_cannot_be_sent_is_not_shown(serving, rows):
    with serving(token="x" * 20) as http, Client(url(http), "x" * 20 + "\n") as client:
        assert client.send("a", rows[:2])["rows"] == 2
    for token in ("secret\nsecret", "sécret"):
        with pytest.raises(InvalidInputError, match="token") as caught:
            Client("http://host", token)
        assert "cret" not in str(caught.value)


@pytest.mark.parametrize("address", ["http://[::1", "http://host:port", "http://ho\x00st"])
def test_an_address_that_httpx_cannot_parse_is_invalid_input(address):
    with pytest.raises(InvalidInputError, match="address"):
        Client(address)


def test_too_many_threads_are_not_the_fault_of_the_rows(rows, monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    with Client("http://host", stop=lambda: False) as client, monkeypatch.context() as patch:
        patch.setattr("baryflow.client.client.threading.Thread.start", fail)
        with pytest.raises(UnreachableError, match="new thread"):
            forward(Rows(rows[:8]), client, "a")
