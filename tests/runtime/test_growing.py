"""Files that grow, files that cannot: the real command."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL, load
from baryflow.cli import main
from baryflow.datasets import make_domains
from baryflow.runtime import Outputs, Runner, SessionConfig, Store
from baryflow.streams import open_sink, open_source
from tests.waiting import ask_to_end, wait_until

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
COLUMNS = [f"x{j}" for j in range(4)]
LINES = [",".join(f"{v:.6f}" for v in row) for row in P.X_target]


@pytest.fixture
def folder(tmp_path):
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(P.X, P.y, sample_domain=P.domain)
    model.feature_names_in_ = np.array(COLUMNS, dtype=object)
    model.save(tmp_path / "model.bary")
    return tmp_path


def start(folder, *arguments):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "baryflow", "run", folder / "model.bary", *arguments]
    return subprocess.Popen(
        [str(part) for part in command], env=environment, stderr=subprocess.PIPE, text=True
    )


def call(folder, rows, output, checkpoint):
    """Run the command in this process."""
    arguments = [
        folder / "model.bary",
        rows,
        "-o",
        output,
        "--checkpoint",
        checkpoint,
        "--batch-size",
        16,
    ]
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


def count(path):
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def test_a_growing_file_is_followed_through_rotation_until_told_to_stop(folder):
    rows, out = folder / "rows.csv", folder / "out.ndjson"
    header = ",".join(COLUMNS)
    rows.write_text("\n".join([header, *LINES[:40], ""]))
    process = start(
        folder, rows, "--tail", "-o", out, "--batch-size", 16, "--max-latency", 0.3,
        "--checkpoint", folder / "checkpoint",
    )  # fmt: skip
    wait_until(lambda: count(out) == 40)  # what was predicted is there to be read
    with rows.open("a") as file:
        file.write("\n".join(LINES[40:60]) + "\n" + LINES[60][:9])  # half a line
    rows.rename(folder / "rows.csv.1")
    with (folder / "rows.csv.1").open("a") as file:
        file.write(LINES[60][9:] + "\n")
    rows.write_text("\n".join([header, *LINES[61:100], ""]))
    wait_until(lambda: count(out) == 100)
    ask_to_end(process)
    _, words = process.communicate(timeout=300)
    assert process.returncode == 0, words
    assert "100 rows = 100 predicted + 0 quarantined" in words
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["position"] for r in records] == list(range(1, 101))


def test_labels_that_are_written_while_rows_come_are_learned(folder):
    rows, labels, events = folder / "rows.csv", folder / "labels.ndjson", folder / "events.ndjson"
    rows.write_text("\n".join([",".join(COLUMNS), *LINES[:40], ""]))
    process = start(
        folder, rows, "--tail", "-o", folder / "out.ndjson", "--events", events, "--batch-size", 16,
        "--max-latency", 0.3, "--checkpoint", folder / "checkpoint", "--labels", labels,
    )  # fmt: skip

    def learned():
        lines = events.read_bytes().split(b"\n")[:-1] if events.exists() else []
        return sum(event.get("learned", 0) for event in map(json.loads, lines))

    wait_until(lambda: count(folder / "out.ndjson") == 40)
    # Of rows that were learned from, that wait for a full batch, and that have not come.
    lines = [json.dumps({"position": n, "label": int(P.y_target[n - 1])}) for n in (3, 4, 38, 47, 48)]
    labels.write_text("\n".join(lines) + "\n")
    wait_until(lambda: learned() == 2)
    with rows.open("a") as file:
        file.write("\n".join(LINES[40:60]) + "\n")
    wait_until(lambda: learned() == 5)
    ask_to_end(process)
    _, words = process.communicate(timeout=300)
    assert process.returncode == 0, words
    assert "60 rows = 60 predicted + 0 quarantined; 5 labels used" in words


def test_what_happened_to_the_file_is_an_event_also_after_a_restart(folder):
    rows, state, events = folder / "rows.csv", folder / "state", folder / "events.ndjson"

    def follow(until):
        with contextlib.ExitStack() as stack:
            source = open_source(rows, columns=COLUMNS, tail=True, idle=0.01)
            stack.callback(source.close)
            checkpoint = stack.enter_context(contextlib.closing(Store(state)))
            sink = open_sink(events, resume=not checkpoint.is_new)
            stack.callback(sink.close)
            config = SessionConfig(load(folder / "model.bary"), 16)
            runner = Runner(config, source, Outputs(events=sink), timeout=0.0, store=checkpoint)
            runner.run(lambda: runner.totals.read >= until)
        found = [json.loads(line) for line in events.read_text().splitlines()]
        return [event["message"] for event in found if event["event"] == "warning"]

    rows.write_text("\n".join([",".join(COLUMNS), *LINES[:40], ""]))
    assert follow(40) == []
    rows.rename(folder / "rows.csv.2")  # rows.csv.1 is lost
    rows.write_text("\n".join([",".join(COLUMNS), *LINES[50:60], ""]))
    (missing,) = follow(50)
    assert "rows.csv.1" in missing
    rows.write_text("\n".join([",".join(COLUMNS), *LINES[60:65], ""]))
    assert follow(55)[0] == missing
    assert "cut" in follow(55)[1]


@pytest.mark.skipif(os.geteuid() != 0 if hasattr(os, "geteuid") else True, reason="needs to mount")
def test_a_full_disk_is_told_and_nothing_is_lost(folder):
    rows, small = folder / "rows.csv", folder / "small"
    rows.write_text("\n".join([",".join(COLUMNS), *LINES * 8, ""]))
    small.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=320k", "none", small]
    if subprocess.run(mounting, check=False).returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        found = call(folder, rows, small / "out.ndjson", small / "checkpoint")
        assert found.exit_code == 1, found.stderr
        assert "no space left on the disk" in found.stderr
        assert "nothing is lost" in found.stderr
        larger = folder / "larger"
        shutil.copytree(small, larger)
    finally:
        subprocess.run(["umount", str(small)], check=True)  # noqa: S607
    again = call(folder, rows, larger / "out.ndjson", larger / "checkpoint")
    assert again.exit_code == 0, again.stderr
    call(folder, rows, folder / "out.ndjson", folder / "checkpoint")
    assert (larger / "out.ndjson").read_bytes() == (folder / "out.ndjson").read_bytes()
    assert count(Path(larger / "out.ndjson")) == 8 * len(LINES)
