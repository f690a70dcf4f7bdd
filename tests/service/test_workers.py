"""Several worker processes: together they do what one does, whichever of them is killed."""

import os
import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from baryflow.client import Client
from baryflow.exceptions import BaryflowError
from baryflow.service import Limits, background, create_app
from baryflow.service.worker import fork
from tests.service.conftest import post
from tests.service.processes import Load, Process
from tests.service.test_routes import session
from tests.waiting import wait_until

NAMES = [f"pump-{n}" for n in range(6)]


def service(model, folder=None, workers=2, **limits):
    return background(
        create_app(
            model, state_dir=folder, limits=Limits(**limits), batch_size=8, drift="off", workers=workers
        )
    )


def children(pid):
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def send(client, start, stop, rows):
    return {
        name: post(client, name, rows[start:stop], f"{start}", "then").json()["predictions"]
        for name in NAMES
    }


def test_workers_predict_what_one_process_predicts(model, rows, tmp_path):
    with service(model, tmp_path) as url, httpx.Client(base_url=url, timeout=300) as client:
        got = [send(client, start, start + 20, rows) for start in (0, 20)]
        listed = client.get("/v1/targets").json()["targets"]
        assert [one["name"] for one in listed] == NAMES
        assert {one["rows_seen"] for one in listed} == {40}
        assert client.get("/v1/targets/pump-1").json()["rows_seen"] == 40
        assert client.get("/v1/targets/pump-1/view").json()["rows_seen"] == 40
        assert client.get("/v1/targets/pump-1/why/39").json()["position"] == 39
        assert len(client.get("/v1/targets/pump-1/query?n=3").json()["rows"]) == 3
        assert client.delete("/v1/targets/pump-0").status_code == 204
        assert client.get("/v1/targets/pump-0").status_code == 404
        metrics = client.get("/metrics").text
        assert "baryflow_rows_total 240" in metrics
        assert 'baryflow_worker_memory_bytes{worker="1"}' in metrics
        assert post(client, "pump-1", [["x"]]).status_code == 422
    expected = session(model, rows[:40])
    assert all(got[0][name] + got[1][name] == expected for name in NAMES)
    assert sorted(path.name for path in tmp_path.glob("store*.db")) == [
        "store-0-of-2.db",
        "store-1-of-2.db",
    ]


def test_targets_are_limited_over_all_workers(model, rows):
    with service(model, targets=2) as url, httpx.Client(base_url=url, timeout=300) as client:
        codes = [post(client, name, rows[:1]).status_code for name in NAMES]
    assert codes == [200, 200, 409, 409, 409, 409]


def test_the_number_of_workers_may_change(model, rows, tmp_path):
    expected, got = session(model, rows[:10]), {name: [] for name in NAMES}
    for start, workers in ((0, 1), (20, 3), (40, 2)):
        with (
            service(model, tmp_path, workers, snapshot_every=4) as url,
            httpx.Client(base_url=url, timeout=300) as client,
        ):
            for name, predictions in send(client, start, start + 10, rows).items():
                got[name] += predictions
            assert post(client, NAMES[0], rows[start : start + 10], f"{start}", "then").json()[
                "repeated"
            ]
            for name in NAMES:
                post(client, name, rows[start + 10 : start + 20], time="then")
    for name in NAMES:
        assert got[name][:10] == expected[:10]
    assert sorted(path.name for path in tmp_path.glob("store*.db")) == [
        "store-0-of-2.db",
        "store-1-of-2.db",
    ]
    with service(model, tmp_path, 1) as url, httpx.Client(base_url=url, timeout=300) as client:
        assert {one["rows_seen"] for one in client.get("/v1/targets").json()["targets"]} == {60}
    assert [path.name for path in tmp_path.glob("store*.db")] == ["store.db"]


@pytest.mark.parametrize("before", [1, 2])
def test_a_kill_while_targets_are_shared_out_loses_nothing(model, rows, tmp_path, monkeypatch, before):
    with service(model, tmp_path, before) as url, httpx.Client(base_url=url, timeout=300) as client:
        send(client, 0, 20, rows)

    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    for victim in ("container.sync", "_copy", "_delete_others"):
        with monkeypatch.context() as patch:
            patch.setattr(f"baryflow.service.layout.{victim}", kill)
            with pytest.raises(Killed):
                create_app(model, state_dir=tmp_path, batch_size=8, drift="off", workers=3 - before)
    for workers in (before, 3 - before):
        with (
            service(model, tmp_path, workers) as url,
            httpx.Client(base_url=url, timeout=300) as client,
        ):
            listed = client.get("/v1/targets").json()["targets"]
            assert {one["name"]: one["rows_seen"] for one in listed} == dict.fromkeys(NAMES, 20)


def test_a_worker_that_ends_stops_the_service(model, rows, tmp_path):
    before = set(children(os.getpid()))
    with (  # noqa: PT012
        pytest.raises(BaryflowError, match="no acknowledged row is lost"),
        service(model, tmp_path) as url,
    ):
        with httpx.Client(base_url=url, timeout=300) as client:
            assert post(client, "a", rows[:10], "one").status_code == 200
        os.kill((set(children(os.getpid())) - before).pop(), signal.SIGKILL)
        wait_until(lambda: not set(children(os.getpid())) - before)
    with service(model, tmp_path) as url, httpx.Client(base_url=url, timeout=300) as client:
        assert post(client, "a", rows[:10], "one").json()["repeated"]
        assert post(client, "a", rows[10:12]).json()["first"] == 11


@pytest.mark.parametrize(
    ("frozen", "expected"),
    [(0, ["collect", "freeze", "unfreeze"]), (9, ["collect", "freeze"])],
    ids=["nothing frozen", "frozen by the caller"],
)
def test_what_the_caller_has_frozen_stays_frozen(monkeypatch, frozen, expected):
    called = []
    functions = {name: partial(called.append, name) for name in ("collect", "freeze", "unfreeze")}
    collector = SimpleNamespace(get_freeze_count=lambda: frozen, **functions)
    monkeypatch.setattr("baryflow.service.worker.gc", collector)
    fork(0, None)
    assert called == expected


@pytest.mark.parametrize("victim", ["service", "worker"])
def test_killed_under_load_no_acknowledged_row_is_lost_and_none_counts_twice(
    model_file, model, rows, tmp_path, victim
):
    options = ("--batch-size", "8", "--drift", "off", "--snapshot-every", "6", "--workers", "2")
    process = Process(model_file, tmp_path, *options)
    with Load(process, rows, NAMES) as load:
        load.wait_for_more()
        if victim == "service":
            process.end(signal.SIGKILL)
        else:
            os.kill(children(process.process.pid)[0], signal.SIGKILL)
            process.end(0)  # it ends by itself
            assert process.code == 1
        process.restart()
        load.wait_for_more()
    process.end(signal.SIGTERM)
    assert process.code == 0, process.words
    with service(model, tmp_path, 1) as url, Client(url) as client:
        assert {one["name"]: one["rows_seen"] for one in client.targets()} == load.sent
