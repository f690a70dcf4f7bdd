"""What was acknowledged is there, whatever happens."""

import contextlib
import errno
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from baryflow.cli import main
from baryflow.client import Client
from baryflow.exceptions import InvalidInputError
from baryflow.runtime import Checkpoint, Fleet
from baryflow.service import background, create_app
from tests.service.conftest import post
from tests.service.processes import Process
from tests.service.test_rows import followed
from tests.waiting import wait_until


def test_without_a_last_snapshot_the_log_is_replayed(serving, model, rows, tmp_path):
    with serving(tmp_path) as client:
        targets = client.app.state.desk.targets
        for n in range(5):
            post(client, "a", rows[10 * n : 10 * n + 10], f"batch-{n}")
        post(client, "b", rows[:3])
        client.delete("/v1/targets/b")
        targets._since = 0  # nothing to put on disk, it believes
    with serving(tmp_path) as client:
        assert client.app.state.desk.targets.n_replayed == 7
        assert client.get("/v1/targets/a").json()["rows_seen"] == 50
        assert client.get("/v1/targets/b").status_code == 404
        assert post(client, "a", rows[40:50], "batch-4").json()["repeated"]
        got = post(client, "a", rows[50:60], time="then").json()["predictions"]
    assert got == followed(model, rows[:60])[50:]


def test_snapshots_while_rows_come_lose_nothing_and_count_nothing_twice(serving, model, rows, tmp_path):
    with serving(tmp_path, in_memory=2, snapshot_every=5) as client:
        targets = client.app.state.desk.targets

        def work(n):
            for i in range(8):
                assert post(client, f"t{n}", rows[5 * i : 5 * i + 5], f"{i}").status_code == 200

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert targets.snapshots >= 1
        targets._since = 0
        # Requests that came together have shared trips to the disk.
        assert targets.log.batches == 32
        assert targets.log.commits <= 32
    with serving(tmp_path) as client:
        assert client.app.state.desk.targets.n_replayed < 32
        for n in range(4):
            assert client.get(f"/v1/targets/t{n}").json()["rows_seen"] == 40
            got = post(client, f"t{n}", rows[40:50], time="then").json()["predictions"]
            assert got == followed(model, rows[:50])[40:]
    files = list((tmp_path / "machines").iterdir())
    assert len(files) <= 3 * 4


def test_a_damaged_snapshot_costs_only_time(serving, rows, tmp_path):
    with serving(tmp_path) as client:
        post(client, "a", rows[:10], "one")
    with serving(tmp_path) as client:
        post(client, "a", rows[10:20], "two")
    newest = max(tmp_path.glob("snapshot-*.bary"))
    newest.write_bytes(newest.read_bytes()[:-5])
    with contextlib.ExitStack() as stack:
        with pytest.warns(UserWarning, match="going on from the one before"):
            client = stack.enter_context(serving(tmp_path))
        assert client.get("/v1/targets/a").json()["rows_seen"] == 20
        assert post(client, "a", rows[10:20], "two").json()["repeated"]


def test_a_full_disk_refuses_and_takes_nothing(serving, rows, tmp_path):
    with serving(tmp_path) as client:
        post(client, "a", rows[:10])
        log = client.app.state.desk.targets.log

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        append, log._checkpoint.append = log._checkpoint.append, full
        refused = post(client, "a", rows[10:20], "two")
        assert client.delete("/v1/targets/a").status_code == 507
        log._checkpoint.append = append
        assert client.get("/v1/targets/a").json()["rows_seen"] == 10
        assert not post(client, "a", rows[10:20], "two").json()["repeated"]
    assert refused.status_code == 507
    assert "nothing was taken" in refused.json()["error"]


def test_a_folder_that_cannot_be_used_is_refused_before_anybody_connects(model, tmp_path):
    app = create_app(model, state_dir=tmp_path)
    with background(app), pytest.raises(InvalidInputError, match="in use by another run"):
        create_app(model, state_dir=tmp_path)


def test_the_folder_of_a_run_is_refused(model, tmp_path):
    from baryflow.runtime.checkpoint import Standing

    checkpoint = Checkpoint(tmp_path)
    checkpoint.keep_model(model.to_bytes())
    checkpoint.save(Standing({}, {"row": 7}))
    checkpoint.close()
    app = create_app(model, state_dir=tmp_path)
    with pytest.raises(InvalidInputError, match="belongs to 'baryflow run'"), background(app):
        pass


def test_killed_under_load_no_acknowledged_row_is_lost_and_none_counts_twice(
    model_file, serving, rows, tmp_path
):
    """Many kills are an experiment: experiments/service."""
    process = Process(model_file, tmp_path, "--in-memory", "2", "--snapshot-every", "6")
    stop, sent = threading.Event(), {f"t{n}": 0 for n in range(4)}

    def work(worker):
        with Client(process.url, patience=60) as client:
            while not stop.is_set():
                for name in (f"t{2 * worker}", f"t{2 * worker + 1}"):
                    n = sent[name]
                    answer = client.send(name, rows[n % 200 : n % 200 + 7], batch_id=f"{n}")
                    assert answer["last"] == n + 7  # neither lost nor twice, all the time
                    sent[name] = n + 7

    def wait_for_more(working):
        before = dict(sent)
        wait_until(
            lambda: (
                any(one.done() for one in working) or all(n > before[name] for name, n in sent.items())
            )
        )

    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(work, worker) for worker in range(2)]
        try:
            wait_for_more(working)
            process.end(signal.SIGKILL)
            process.restart()
            wait_for_more(working)
        finally:
            stop.set()
        for one in working:
            one.result()
    process.end(signal.SIGTERM)  # it finishes what runs, then ends
    assert process.code == 0, process.words
    with serving(tmp_path) as client:
        for name, n in sent.items():
            assert client.get(f"/v1/targets/{name}").json()["rows_seen"] == n > 0


def test_interrupted_it_says_that_everything_is_on_disk(model_file, tmp_path, monkeypatch):
    def serve_and_interrupt(app, *_):
        with background(app):
            return signal.SIGINT

    monkeypatch.setattr("baryflow.service.run", serve_and_interrupt)
    found = CliRunner().invoke(main, ["serve", str(model_file), "--state", str(tmp_path)])
    assert (found.exit_code, "everything is on disk" in found.stderr) == (130, True)


def test_rows_in_the_log_are_counted_before_others_also_if_no_target_can_be_written_out(
    serving, rows, tmp_path, monkeypatch
):
    monkeypatch.setattr("baryflow.service.targets._AGAIN", 0.01)
    write, left = Fleet._write, [3]

    def full(self, key):
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, key)

    with serving(tmp_path, in_memory=1) as client:
        targets = client.app.state.desk.targets
        assert post(client, "a", rows[:3]).status_code == 200
        monkeypatch.setattr(Fleet, "_write", full)
        assert post(client, "b", rows[:4], "first").json()["last"] == 4
        assert post(client, "b", rows[4:8], "second").json()["last"] == 8
        assert not left[0]
        targets._since = 0  # as if killed: the log is replayed
    with serving(tmp_path) as client:
        assert post(client, "b", rows[4:8], "second").json()["repeated"]
        assert client.get("/v1/targets/b").json()["rows_seen"] == 8
