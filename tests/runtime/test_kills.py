"""The real command, really killed."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.datasets import make_domains
from tests.runtime.ends import transactions
from tests.waiting import ask_to_end, wait_until

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
FILES = ("predictions.ndjson", "events.ndjson", "quarantine.ndjson")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, a file to follow with bad lines in it, and what an undisturbed run makes of it."""
    folder = tmp_path_factory.mktemp("kills")
    problem = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=200, random_state=0)
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(problem.X, problem.y, sample_domain=problem.domain)
    columns = [f"x{j}" for j in range(4)]
    model.feature_names_in_ = np.array(columns, dtype=object)
    model.save(folder / "model.bary")
    lines = [",".join(f"{v:.6f}" for v in row) for row in problem.X_target]
    for number in range(7, len(lines), 50):
        lines[number] = lines[number].replace(".", "x", 1)
    (folder / "rows.csv").write_text("\n".join([",".join(columns), *lines, ""]))
    numbers = [*range(599, 0, -17), 8]  # in any order; row 8 cannot be used
    labels = [f"{number},{problem.y_target[number - 1]}" for number in numbers]
    (folder / "labels.csv").write_text("\n".join(["position,label", *labels, ""]))
    finish(folder, "undisturbed")
    return folder


def arguments(folder, name):
    out = folder / name
    out.mkdir(exist_ok=True)
    return [
        "run", str(folder / "model.bary"), str(folder / "rows.csv"), "-o", str(out / FILES[0]),
        "--events", str(out / FILES[1]), "--quarantine", str(out / FILES[2]),
        "--checkpoint", str(out / "checkpoint"), "--batch-size", "8",
        "--labels", str(folder / "labels.csv"), "--labels-certify",
    ]  # fmt: skip


def finish(folder, name):
    """Run the command to its end in this process: importing everything again takes two seconds."""
    found = CliRunner().invoke(main, arguments(folder, name))
    assert found.exit_code == 0, found.stderr
    return found.stderr


def run(folder, name):
    return subprocess.Popen(
        [sys.executable, "-m", "baryflow", *arguments(folder, name)],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    )


def written(folder, name):
    return {file: (folder / name / file).read_bytes() for file in FILES}


def is_working(folder):
    return transactions(folder / "checkpoint") > 5


def test_killed_at_work_the_output_is_that_of_an_undisturbed_run(folder):
    """Many kills at random moments are an experiment: experiments/kills."""
    process = run(folder, "killed")
    wait_until(lambda: process.poll() is not None or is_working(folder / "killed"), step=0.002)
    process.kill()
    _, words = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, words
    assert "600 rows = 588 predicted + 12 quarantined; 35 labels used" in finish(folder, "killed")
    assert written(folder, "killed") == written(folder, "undisturbed")
    assert b"row 8 was not predicted" in written(folder, "killed")["events.ndjson"]


def test_asked_to_end_it_ends_in_order_and_goes_on(folder):
    process = run(folder, "asked")
    wait_until(lambda: process.poll() is not None or is_working(folder / "asked"), step=0.002)
    ask_to_end(process)
    _, words = process.communicate(timeout=300)
    assert process.returncode == 0, words
    finish(folder, "asked")
    assert written(folder, "asked") == written(folder, "undisturbed")
