"""Fits on worker processes, with killed workers and killed callers."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import dask.dataframe as dd
import distributed as dask_distributed
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL, distributed, load
from baryflow.cli import main
from baryflow.distributed import cluster
from baryflow.distributed.tasks import TaskRunner, count_unfinished
from baryflow.exceptions import UnreachableError
from tests.distributed import histories
from tests.distributed.test_tasks import COLUMNS, Partitions
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def processes():
    with distributed.connect("local", 2) as present:
        yield present


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return str(histories.folder(tmp_path_factory.mktemp("histories"), n_files=6))


def read(source, **how):
    return distributed.read_parquet(source, label="fault", domain="plant", partition_bytes=1, **how)


def fit(source, client, **how):
    model = OnlineDaDiL(classifier="linear", keep_sources=False, validate=False, random_state=0)
    return distributed.fit(model, read(source), sample_rows=1500, client=client, **how)


@pytest.fixture(scope="module")
def undisturbed(source):
    import dask

    with dask.config.set(scheduler="synchronous"):
        return fit(source, None).to_bytes()


def test_processes_and_one_thread_give_the_same_bits(processes, source, undisturbed):
    reports = []
    model = fit(source, processes, progress=lambda *how: reports.append(how))
    assert model.to_bytes() == undisturbed
    assert {what for _, _, what in reports} <= {"counting rows", "sampling rows", "learning"}
    assert all(0 <= done <= total for done, total, _ in reports)


def test_tasks_of_other_clients_do_not_count_as_progress(client):
    from dask.delayed import delayed

    held = dask_distributed.Event(client=client)
    # No worker has this resource, so these tasks wait forever.
    others = client.map(abs, range(7), resources={"telescope": 1}, pure=False)
    first = delayed(lambda event: event.wait())(held)
    total = delayed(sum)([delayed(int)(delayed(pow)(first, n)) for n in range(1, 4)])
    future = client.compute(total)
    try:

        def left():
            return client.run_on_scheduler(count_unfinished, root=future.key)

        wait_until(lambda: left() == 1 + 3 + 3 + 1)
        held.set()
        assert future.result(timeout=300) == 3
        assert left() == 0
        assert client.run_on_scheduler(count_unfinished, root="nothing") is None
    finally:
        held.set()
        client.cancel(others)


def test_relative_checkpoint_is_the_same_folder_for_all_workers(processes, tmp_path, monkeypatch):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    processes.run(os.chdir, elsewhere)
    frame = dd.from_pandas(Partitions().frame.compute(scheduler="synchronous"), npartitions=3)
    parts = distributed.from_frame(frame, label="fault", domain="line")
    model = OnlineDaDiL(classifier="linear", keep_sources=False, validate=False, random_state=0)
    model = distributed.fit(model, parts, checkpoint="work", client=processes)
    distributed.absorb(
        model, distributed.from_frame(frame[COLUMNS]), checkpoint="work", client=processes
    )
    assert {path.name for path in here.rglob("*.bary")} == {
        "statistics.bary", "sample.bary", "em.bary", "learned.bary", "moments.bary", "summary.bary",
    }  # fmt: skip
    assert not list(elsewhere.iterdir())


def test_killed_worker_does_not_change_the_model(processes, source, undisturbed):
    """More kills are in experiments/distributed."""
    pids, killed = list(processes.run(os.getpid).values()), []

    def kill(*_):
        if not killed:
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    assert fit(source, processes, progress=kill).to_bytes() == undisturbed
    assert killed


def test_target_is_absorbed_and_predicted_on_workers(client, source, tmp_path):
    model = fit(source, client)
    parts = distributed.read_parquet(source, columns=histories.COLUMNS, partition_bytes=1)
    adapted = distributed.absorb(model, parts, client=client, checkpoint=str(tmp_path))
    assert adapted.n_samples_seen_ == len(histories.X)
    assert distributed.absorb(model, parts).to_bytes() == adapted.to_bytes()
    frame = dd.read_parquet(source)
    labels = distributed.predict(adapted, frame)
    right = (labels == frame["fault"]).mean()
    assert client.compute(right).result() == pytest.approx(
        (adapted.predict(frame[histories.COLUMNS].compute()) == frame["fault"].compute()).mean()
    )


class FakeClient:
    """A client of a cluster whose workers come and go."""

    def __init__(self, *counts):
        self.counts = list(counts)

    def nthreads(self):
        return {"worker": 1} if self.counts.pop(0) else {}


def test_cluster_without_workers_raises(monkeypatch):
    monkeypatch.setattr(cluster, "_CHECK_INTERVAL", 0.0)
    workers = cluster.WorkerWatch(FakeClient(1, 0, 1))
    for _ in range(3):
        workers.check()  # workers may come back
    monkeypatch.setattr(cluster, "_NO_WORKER_TIMEOUT", -1.0)
    with pytest.raises(UnreachableError, match="no workers"):
        cluster.WorkerWatch(FakeClient(0)).check()


class GoneFuture:
    """A future of a lost scheduler and a closed client."""

    def done(self):
        return True

    def result(self):
        raise dask_distributed.client.FutureCancelledError("key", "gone")

    def cancel(self):
        raise dask_distributed.client.ClosedClientError("closed")


def test_lost_scheduler_raises_unreachable_error():
    from dask.delayed import delayed

    client = SimpleNamespace(compute=lambda _: GoneFuture())
    with pytest.raises(UnreachableError, match="scheduler is gone"):
        TaskRunner(client).compute(delayed(1), "counting")


def test_task_names_say_what_they_do():
    graph = TaskRunner().reduce("count", int, range(20), abs, sum).__dask_graph__()
    assert {name.split("-")[0] for name in graph} == {"count", "merge"}
    assert sum(name.startswith("merge-count-") for name in graph) == 4


# -- the command line ------------------------------------------------------------------------------


def command(source, output, address, *more):
    return [
        "fit", source, "--label", "fault", "--domain", "plant", "--dask", address, "-o", str(output),
        "--classifier", "linear",
        *more,
    ]  # fmt: skip


def call(source, output, client, *more):
    return CliRunner().invoke(main, command(source, output, client.scheduler.address, *more))


def test_killed_caller_can_resume(client, source, tmp_path):
    calm, wild, kept = tmp_path / "calm.bary", tmp_path / "wild.bary", tmp_path / "kept"
    found = call(source, calm, client)
    assert found.exit_code == 0, found.stderr
    assert "3,600 rows in 6 partitions, 5 columns: s0, s1, s2, s3, s4" in found.stderr
    assert "left out: note: holds text" in found.stderr
    arguments = command(source, wild, "local", "--workers", "1", "--checkpoint", str(kept))
    with subprocess.Popen(
        [sys.executable, "-m", "baryflow", *arguments], stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not list(kept.glob("*/statistics.bary")):
            time.sleep(0.01)
        process.kill()
    assert not wild.exists()
    assert call(source, wild, client, "--checkpoint", str(kept)).exit_code == 0
    assert load(wild).to_bytes() == load(calm).to_bytes()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--window", "5"), "--window does not apply"),
        (("--keep-rows",), "--keep-rows does not apply"),
        (("--class-prior", "nothing=0.5"), "'nothing'"),
        (("--domain", "plnt"), "there is no column 'plnt'"),
    ],
)
def test_invalid_options_are_reported(client, source, tmp_path, more, words):
    found = call(source, tmp_path / "m.bary", client, *more)
    assert found.exit_code == 1
    assert words in found.stderr
    assert "Traceback" not in found.stderr
