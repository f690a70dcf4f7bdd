"""Processes that end with the one that began them."""

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import os, sys, time
from pathlib import Path
from baryflow.tep.workers import in_parallel

def work(task):
    if task < 2:
        (Path(__file__).parent / f"{os.getpid()}.pid").touch()
        time.sleep(600)
    return task

if __name__ == "__main__":
    try:
        for done in in_parallel(work, TASKS, jobs=JOBS):
            break
    except KeyboardInterrupt:
        print("heard", flush=True)
        sys.exit(130)
    print("went on", flush=True)
"""


@pytest.fixture
def begin(tmp_path):
    """Start a program whose workers sleep for ten minutes; leave none of them behind."""
    begun = []

    def begin(tasks, jobs=2):
        script = tmp_path / "run.py"
        script.write_text(PROGRAM.replace("TASKS", tasks).replace("JOBS", str(jobs)))
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # as a terminal does: what it sends goes to the workers, too
        )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def _pids(folder, process, n):
    while len(pids := [int(path.stem) for path in folder.glob("*.pid")]) < n and process.poll() is None:
        time.sleep(0.02)
    return pids


def _is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("whole_group", [True, False], ids=["terminal", "this process alone"])
def test_an_interruption_ends_workers_in_the_midst_of_their_work_and_without_their_words(
    tmp_path, begin, whole_group
):
    jobs = 2 if whole_group else 1  # each takes two seconds to start
    process = begin("[0, 1, 2, 3]", jobs)
    pids = _pids(tmp_path, process, jobs)
    assert len(pids) == jobs
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=300)  # the work itself would take ten minutes
    assert (process.returncode, out, err) == (130, "heard\n", "")
    assert not any(_is_alive(pid) for pid in pids)


def test_workers_end_when_nobody_waits_for_their_results(tmp_path, begin):
    process = begin("[0, 5]")  # one is done at once, and the loop is left
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, "went on\n", "")
    assert not any(_is_alive(pid) for pid in _pids(tmp_path, process, 1))
