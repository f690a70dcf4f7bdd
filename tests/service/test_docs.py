"""Commands and limits in docs/howto/serve.md and figures in docs/method/service.md are correct."""

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.service import Limits
from baryflow.service import worker_targets as notes
from tests.service.conftest import serve

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "serve.md").read_text(encoding="utf-8")
FIGURES = (ROOT / "docs" / "method" / "service.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pumps():
    """Return a model with the columns of the pumps that is fitted quickly."""
    header = (ROOT / "examples" / "pumps" / "pump_e.csv").read_text(encoding="utf-8").splitlines()[0]
    columns = [name for name in header.split(",") if name not in ("time", "shift")]
    data = make_domains(2, 2, len(columns), 40, random_state=0)
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(data.X, data.y, sample_domain=data.domain)
    model.feature_names_in_ = np.array(columns, dtype=object)
    return model


def test_the_curl_examples_work(pumps):
    if shutil.which("curl") is None and "CI" not in os.environ:
        pytest.skip("curl is not installed")
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [line for line in lines if line.startswith("curl ")]
    assert len(commands) == 7
    with serve(pumps) as client:
        answers = []
        for command in commands:
            arguments = shlex.split(
                command.replace("http://127.0.0.1:8000", str(client.base_url).rstrip("/"))
            )
            done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=300)
            answers.append(done.stdout)
        posted, listed, detail = map(json.loads, answers[:3])
        _, labelled, asked = map(json.loads, answers[4:])
        assert [one["name"] for one in client.get("/v1/targets").json()["targets"]] == ["pump-8"]
    assert posted["batch_id"] == "monday-1"
    assert len(posted["predictions"]) == 1
    assert listed["targets"][0]["rows_seen"] == detail["rows_seen"] == 1
    assert answers[3] == ""
    assert (labelled["id"], labelled["pending"], labelled["rejected"]) == ("shift-3", 1, [])
    assert asked == {"rows": []}  # it has not learned from a batch yet


def test_the_limits_are_the_defaults():
    for figure in (
        f"{Limits.rows:,}", f"{Limits.targets:,}", f"{Limits.body // 2**20} MiB",
        f"{Limits.buffered // 2**20} MiB", f"{Limits.requests}, {Limits.waiting}",
        f"{Limits.snapshot_every:,} batches (`--snapshot-every`), or {Limits.snapshot_seconds:g} s",
        f"{Limits.in_memory} targets are in memory", f"last {notes.BATCHES} batches",
        f"last\n{notes.RECENT} rows",
    ):  # fmt: skip
        assert figure in PAGE, figure


def read(name):
    with (ROOT / "experiments" / "service" / "results" / f"{name}.csv").open(newline="") as file:
        return list(csv.reader(file))


def test_the_figures_are_the_committed_ones():
    kills = read("kills")
    found = {row[0]: row[1] for row in kills}
    for name, value in found.items():
        if any(word in name for word in ("lost", "twice", "do not fit", "differs")):
            assert value == "0", name
    assert {"labels lost", "labels counted twice"} < found.keys()
    assert all(f"{int(found[name]):,} {name}" in FIGURES for name in ("rows", "labels"))
    n_kills = sum(row[0].isdecimal() for row in kills)
    assert f"{n_kills} times" in FIGURES
    assert f"{int(found['targets'])} targets" in FIGURES
    for classes, what, bodies, name, value in read("load")[1:]:
        assert name != "errors" or value == "0"
        if name in ("rows_per_second", "p50_ms", "p99_ms"):
            assert f"{float(value):,.0f}" in FIGURES, (classes, what, bodies, name)
    many = {what: (seconds, cpu) for what, seconds, cpu in read("many")[1:]}
    assert many["all rows are there after a restart"][0] == "yes"
    for what in ("start", "longest journal", "median journal", "longest commit", "median commit"):
        seconds, cpu = map(float, many[what])
        assert f"| {seconds:.3f} | {cpu:.3f} |" in FIGURES, what
    for what in ("targets", "requests", "memory in MB", "disk in MB"):
        assert f"{int(many[what][0]):,}" in FIGURES, what
