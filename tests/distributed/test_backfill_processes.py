"""Backfills called in another process, and with files in an object store."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from moto.server import ThreadedMotoServer

from baryflow import load
from baryflow.cli import console, main
from baryflow.distributed import backfill
from tests.distributed import fleets

TABLES = {str(i): fleets.rows_of(i, 300) for i in range(4)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.bary"
    fleets.fit().save(path)
    return path


def command(model, source, folder, *more):
    return [
        sys.executable, "-m", "baryflow", "backfill", str(model), str(source), "--dask", "local",
        "--workers", "1", "--key", "pump", "--time", "when", "-o", str(folder / "out"),
        "--checkpoint", str(folder / "state"), "--events", str(folder / "events"), *more,
    ]  # fmt: skip


def test_interrupted_or_killed_caller_can_resume(client, model, tmp_path):
    source = fleets.by_folder(tmp_path / "in", tables=TABLES)
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    states = wild / "state/targets"

    def do(folder, progress=None):
        return backfill(
            load(model), source, key="pump", time="when", drift="report", output=folder / "out",
            state=folder / "state", events=folder / "events", client=client, progress=progress,
        )  # fmt: skip

    def stop(*_):
        if states.exists():
            raise KeyboardInterrupt

    do(calm)
    with pytest.raises(KeyboardInterrupt):
        do(wild, stop)
    with subprocess.Popen(command(model, source, wild), stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(list(states.glob("*/*.bary"))) < 3:
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    done = fleets.content(states)
    assert 3 <= len(done) < len(fleets.content(calm / "state/targets"))
    assert do(wild).predicted == 1200
    for name in ("out", "events", "state/targets"):
        assert fleets.content(wild / name) == fleets.content(calm / name)
    assert done.items() <= fleets.content(states).items()


def test_ctrl_c_while_workers_start_reaches_the_caller_only(model, tmp_path):
    source = fleets.by_folder(tmp_path / "in")
    process = subprocess.Popen(
        command(model, source, tmp_path), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    # The first child is the resource tracker of multiprocessing, the second a worker.
    children = f"/proc/{process.pid}/task"
    while process.poll() is None and sum(
        len(path.read_text().split()) for path in Path(children).glob("*/children")
    ) < 2:  # fmt: skip
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, words = process.communicate(timeout=300)
    (line,) = words.splitlines()
    assert process.returncode == 130
    assert "resume" in line


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--dask", "tcp://127.0.0.1:1"], "number of workers"),
        (["--key", "flow"], "feature"),
        (["-o", "-"], "-o FOLDER"),
        (["--events", "-"], "--events FOLDER"),
    ],
)
def test_wrong_options_are_refused(model, tmp_path, more, words):
    found = CliRunner().invoke(main, [*command(model, tmp_path, tmp_path)[3:], *more])
    assert found.exit_code == 1
    assert words in found.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--key", "-o", "--checkpoint"])
def test_key_output_and_checkpoint_are_required(model, tmp_path, option):
    arguments = command(model, tmp_path, tmp_path)[3:]
    del arguments[(at := arguments.index(option)) : at + 2]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 2
    assert option in found.output


def test_progress_bar_shows_rate_and_time_left(monkeypatch):
    shown, now = [], iter([0.0, 10.0, 20.0])
    # Replace the clock of this module only: the cluster in the background needs the real one.
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: next(now)))
    line = SimpleNamespace(show=lambda text, **_: shown.append(text))
    bar = console.Progress(line, "backfill", "row", resumes=True)
    for done in (500, 1000, 2000):
        bar(done, 2000, "following 3 targets")
    assert shown[1].startswith("backfill ████████████░░░░░░░░░░░░ 50%  1,000 of 2,000 rows: ")
    assert shown[1].endswith(
        "following 3 targets  50/s, 20 s left"
    )  # rows of earlier calls do not count
    assert shown[2].endswith("75/s")


def test_backfill_works_in_an_object_store(client, tmp_path):
    import s3fs

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {"key": "key", "secret": "secret", "endpoint_url": f"http://{host}:{port}"}
        store = s3fs.S3FileSystem(**options)
        store.mkdir("plant")
        store.put(str(fleets.by_folder(tmp_path / "in")), "plant/", recursive=True)
        here = {"key": "pump", "epoch_rows": 24}
        there = here | {
            "output": "s3://plant/out",
            "state": "s3://plant/state",
            "events": "s3://plant/events",
            "storage_options": options,
        }
        backfill(
            fleets.fit(), tmp_path / "in", output=tmp_path / "out", state=tmp_path / "state",
            events=tmp_path / "events", client=client, **here,
        )  # fmt: skip
        first = backfill(fleets.fit(), "s3://plant/in", client=client, **there)
        # A lost epoch is computed again from the state before.
        store.rm("plant/state/targets/target=10/000004.bary")
        store.rm("plant/out/target=10/000004.parquet")
        assert backfill(fleets.fit(), "s3://plant/in", client=client, **there) == first
        store.get("plant/out/", str(tmp_path / "fetched"), recursive=True)
        store.get("plant/events/", str(tmp_path / "fetched-events"), recursive=True)
    finally:
        server.stop()
    assert first.predicted == sum(fleets.ROWS)
    assert fleets.content(tmp_path / "fetched") == fleets.content(tmp_path / "out")
    assert fleets.content(tmp_path / "fetched-events") == fleets.content(tmp_path / "events")
    assert pq.read_table(tmp_path / "fetched").num_rows == first.predicted
