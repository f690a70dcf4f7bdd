"""``baryflow run`` in a group: partitions, with the models of their targets, change hands."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from tests.streams.kafka_cluster import Cluster

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
COLUMNS = ["a", "b", "c", "d"]
TARGETS, ROUNDS = 8, 90


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.bary"
    fitted = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
        P.X, P.y, P.domain
    )
    fitted.feature_names_in_ = np.array(COLUMNS, dtype=object)
    fitted.save(path)
    return path


def rows(start, stop):
    for number in range(start, stop):
        value = dict(zip(COLUMNS, P.X_target[number % len(P.X_target)].tolist(), strict=True))
        for target in range(TARGETS):
            yield f"target {target}", json.dumps(value).encode()


def written(folder):
    """Return the complete records."""
    found = []
    for path in folder.glob("out-*.ndjson"):
        found += [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    return found


def wait_for(folder, n, *processes):
    deadline = time.monotonic() + 240
    while len(written(folder)) < n:
        assert time.monotonic() < deadline, f"{len(written(folder))} of {n} rows after four minutes"
        assert all(process.poll() is None for process in processes), "a process has ended"
        time.sleep(0.2)


def test_the_targets_of_a_killed_process_are_taken_over(model, tmp_path):
    with Cluster() as cluster:
        cluster.send("rows", rows(0, 1))
        command = [
            sys.executable, "-m", "baryflow", "run", model, cluster.url("rows", "?group=g&session=6"),
            "--key", "@key", "-o", tmp_path / "out.ndjson", "--checkpoint", tmp_path / "kept",
        ]  # fmt: skip
        first, second = (subprocess.Popen(list(map(str, command))) for _ in range(2))
        try:
            cluster.send("rows", rows(1, 45))
            wait_for(tmp_path, TARGETS * 20, first, second)
            first.kill()
            first.wait()
            cluster.send("rows", rows(45, ROUNDS))
            wait_for(tmp_path, TARGETS * ROUNDS, second)
            second.terminate()
            assert second.wait(60) == 0
        finally:
            for process in (first, second):
                process.kill()
                process.wait()
    found = written(tmp_path)
    assert len(found) == TARGETS * ROUNDS == len({record["offset"] for record in found})
    alone = OnlineDaDiL.from_bytes(model.read_bytes())
    del alone.feature_names_in_  # rows here have none
    labels = []
    for start in range(0, ROUNDS, 32):
        batch = P.X_target[start : min(start + 32, ROUNDS)]
        labels += alone.predict(batch).tolist()
        alone.partial_fit(batch)
    for target in range(TARGETS):  # each as if it were alone, in whichever process
        own = [r for r in found if r["key"] == f"target {target}"]
        assert [r["label"] for r in sorted(own, key=lambda r: int(r["offset"].split(":")[1]))] == labels
