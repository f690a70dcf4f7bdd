"""The real command, really killed."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from tests.waiting import wait_until

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
FILES = ("predictions.ndjson", "events.ndjson", "quarantine.ndjson")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, a file to follow with bad lines in it, and what an undisturbed run makes of it."""
    folder = tmp_path_factory.mktemp("kills")
    problem = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=300, random_state=0)
    model = OnlineDaDiL(rehearse=False, keep_sources=False, random_state=0)
    model.fit(problem.X, problem.y, sample_domain=problem.domain)
    columns = [f"x{j}" for j in range(4)]
    model.feature_names_in_ = np.array(columns, dtype=object)
    model.save(folder / "model.bary")
    lines = [",".join(f"{v:.6f}" for v in row) for row in problem.X_target]
    for number in range(7, len(lines), 50):
        lines[number] = lines[number].replace(".", "x", 1)
    (folder / "rows.csv").write_text("\n".join([",".join(columns), *lines, ""]))
    run(folder, "undisturbed").communicate(timeout=300)
    return folder


def run(folder, name):
    out = folder / name
    out.mkdir(exist_ok=True)
    arguments = [str(folder / "model.bary"), str(folder / "rows.csv"), "-o", str(out / FILES[0])]
    arguments += ["--events", str(out / FILES[1]), "--quarantine", str(out / FILES[2])]
    arguments += ["--checkpoint", str(out / "checkpoint"), "--batch", "8"]
    return subprocess.Popen(
        [sys.executable, "-m", "baryflow", "run", *arguments],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    )


def written(folder, name):
    return {file: (folder / name / file).read_bytes() for file in FILES}


def journals(folder):
    total = 0
    for path in Path(folder).glob("checkpoint/*.log"):
        with contextlib.suppress(FileNotFoundError):  # it may go while we look
            total += path.stat().st_size
    return total


def test_killed_at_random_moments_the_output_is_that_of_an_undisturbed_run(folder):
    rng, name = random.Random(0), "killed"
    kills = 0
    while True:
        process = run(folder, name)
        before = journals(folder / name)
        # Importing takes longer than learning: wait until it has begun to write, then a little longer.
        wait_until(
            lambda p=process, b=before: p.poll() is not None or journals(folder / name) != b, step=0.002
        )
        time.sleep(rng.random() * 0.4)
        if process.poll() is None and kills < 5:
            process.send_signal(signal.SIGKILL)
            kills += 1
        _, words = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, words
    assert kills >= 3
    assert written(folder, name) == written(folder, "undisturbed")
    assert "900 rows = 882 predicted + 18 quarantined" in words


def test_asked_to_end_it_ends_in_order_and_goes_on(folder):
    process = run(folder, "asked")
    while process.poll() is None and journals(folder / "asked") == 0:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, words = process.communicate(timeout=300)
    assert process.returncode == 0, words
    again = run(folder, "asked")
    again.communicate(timeout=300)
    assert again.returncode == 0
    assert written(folder, "asked") == written(folder, "undisturbed")
