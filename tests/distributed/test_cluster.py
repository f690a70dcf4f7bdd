"""Fits on worker processes, with killed workers and killed callers."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import dask.dataframe as dd
import distributed as dask_distributed
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL, distributed, load
from baryflow.cli import main
from baryflow.distributed import tasks
from baryflow.distributed.tasks import TaskRunner
from baryflow.exceptions import UnreachableError
from tests.distributed import histories
from tests.distributed.test_tasks import COLUMNS, Partitions


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
    model = OnlineDaDiL(classifier="linear", keep_sources=False, random_state=0)
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
    assert {path.parent.name.split("-")[0] for path in here.rglob("*.bary")} == {
        "counts", "sample", "target",
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


def test_target_is_absorbed_and_predicted_on_workers(client, source, undisturbed, tmp_path):
    model = OnlineDaDiL.from_bytes(undisturbed)
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

    as_current = nullcontext


def test_cluster_without_workers_raises(monkeypatch):
    finished = SimpleNamespace(done=lambda: True)
    monkeypatch.setattr(dask_distributed, "wait", lambda *_, **__: None)
    watch = tasks.Watch(FakeClient(1, 0, 1))
    for _ in range(3):
        assert watch.wait([finished]) == [finished]  # workers may come back
    monkeypatch.setattr(tasks, "_NO_WORKER_TIMEOUT", -1.0)
    with pytest.raises(UnreachableError, match="no workers"):
        tasks.Watch(FakeClient(0)).wait([finished])


def test_lost_scheduler_raises_unreachable_error(monkeypatch):
    def lose(*_):
        raise dask_distributed.client.FutureCancelledError("key", "gone")

    def close(*_):
        raise dask_distributed.client.ClosedClientError("closed")

    monkeypatch.setattr(dask_distributed, "wait", lambda *_, **__: None)
    client = FakeClient(1)
    client.compute = lambda tasks: [SimpleNamespace(done=lambda: True, result=lose) for _ in tasks]
    client.cancel = close
    with pytest.raises(UnreachableError, match="scheduler is gone"):
        TaskRunner(client).reduce("counting", int, range(20), abs, sum)


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
        while process.poll() is None and not list(kept.glob("*/sample*/*.bary")):
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
