"""Fleets whose caller is a process of its own, and whose files are in an object store."""

import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from baryflow.distributed import follow
from baryflow.distributed.cluster import connect
from tests.distributed import fleets

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
TABLES = {str(i): fleets.rows_of(i, 600) for i in range(4)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.bary"
    fleets.fit().save(path)
    return path


def command(model, source, folder, *more):
    return [
        sys.executable, "-m", "baryflow", "run", str(model), str(source), "--dask", "local",
        "--workers", "1", "--key", "machine", "--time", "when", "-o", str(folder / "out"),
        "--checkpoint", str(folder / "state"), *more,
    ]  # fmt: skip


def call(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, timeout=120)


def start_and(number, arguments, states, n_states):
    """Begin, send a signal to all of its processes once so many machines have a state, and return it."""
    process = subprocess.Popen(
        command(*arguments), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while process.poll() is None and len(list(states.glob("*/*.bary"))) < n_states:
        time.sleep(0.01)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    _, words = process.communicate(timeout=60)
    return process.returncode, words


def test_a_caller_that_is_stopped_or_killed_can_be_called_again(model, tmp_path):
    source = fleets.by_folder(tmp_path / "in", tables=TABLES)
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    undisturbed = call(model, source, calm)
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert "2,400 rows of 4 machines = 2,400 predicted + 0 quarantined" in undisturbed.stderr
    code, words = start_and(signal.SIGINT, (model, source, wild), wild / "state/targets", 1)
    assert (code, words.splitlines()) == (
        130,
        ["interrupted; what is done is kept, call it again to go on"],
    )
    code, _ = start_and(signal.SIGKILL, (model, source, wild), wild / "state/targets", 3)
    assert code == -signal.SIGKILL
    done = fleets.content(wild / "state/targets")
    assert 3 <= len(done) < len(fleets.content(calm / "state/targets"))
    assert call(model, source, wild).returncode == 0
    for name in ("out", "state/targets"):
        assert fleets.content(wild / name) == fleets.content(calm / name)
    assert done.items() <= fleets.content(wild / "state/targets").items()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--tail",), "--tail is not for --dask: call it again when more files have come"),
        (("--save", "m.bary"), "--save is not for --dask: there are many models"),
        (("--dask", "tcp://127.0.0.1:1"), "the number of workers is for 'local'"),
    ],
)
def test_what_makes_no_sense_on_a_cluster_is_refused(model, tmp_path, more, words):
    found = call(model, tmp_path, tmp_path, *more)
    assert found.returncode == 1
    assert words in found.stderr


def test_an_object_store_holds_all_of_it(tmp_path, monkeypatch):
    import s3fs

    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {"endpoint_url": f"http://{host}:{port}"}
        store = s3fs.S3FileSystem(**options)
        store.mkdir("plant")
        store.put(str(fleets.by_folder(tmp_path / "in")), "plant/", recursive=True)
        here = {"key": "machine", "epoch_rows": 24}
        there = here | {
            "output": "s3://plant/out",
            "state": "s3://plant/state",
            "storage_options": options,
        }
        with connect("local", 1) as client:
            follow(
                fleets.fit(), tmp_path / "in", output=tmp_path / "out", state=tmp_path / "state",
                client=client, **here,
            )  # fmt: skip
            first = follow(fleets.fit(), "s3://plant/in", client=client, **there)
            # What is lost is done again, from the state before.
            store.rm("plant/state/targets/target=10/000004.bary")
            store.rm("plant/out/target=10/000004.parquet")
            assert follow(fleets.fit(), "s3://plant/in", client=client, **there) == first
        store.get("plant/out/", str(tmp_path / "fetched"), recursive=True)
    finally:
        server.stop()
    assert first.predicted == sum(fleets.ROWS)
    assert fleets.content(tmp_path / "fetched") == fleets.content(tmp_path / "out")
    assert pq.read_table(tmp_path / "fetched").num_rows == first.predicted
