import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from baryflow import container
from baryflow.cli import main
from baryflow.exceptions import BaryflowError, FileFormatError, InvalidInputError
from baryflow.tep import (
    Plan,
    iterate_signals,
    read_commissioning,
    read_manifest,
    read_signals,
    simulate,
)
from baryflow.tep.plant.simulation import MAX_DRAWS, draw, noise_seed

SMALL = Plan(modes=(1, 4), faults=(0, 6), runs=2, hours=1.0, lead=0.5, commissioning=1)


@pytest.fixture
def interpreted(monkeypatch):
    """Let processes interpret the plant: compiling takes four seconds, an interpreted hour a tenth."""
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")


@pytest.fixture
def in_process(monkeypatch):
    """Simulate in this process: another one takes a second to start."""

    def work_here(work, tasks, *, start, **_):
        start()
        yield from map(work, tasks)

    monkeypatch.setattr("baryflow.tep.plant.simulation.in_parallel", work_here)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_DISABLE_JIT", "1")  # as `interpreted`
        simulate(folder, SMALL, jobs=2)
    return folder


def test_signals_come_back_with_their_labels(folder):
    signals = read_signals(folder)
    assert signals.X.shape == (8, 20, 34)
    assert signals.X.dtype == np.float32
    assert sorted(zip(signals.domain, signals.y, signals.run, strict=True)) == [
        (mode, fault, run) for mode in (1, 4) for fault in (0, 6) for run in (0, 1)
    ]
    assert len(read_signals(folder, modes=[4], runs=1)) == 2
    assert read_commissioning(folder, 1).shape == (1, 20, 34)
    assert sum(len(part) for part in iterate_signals(folder)) == len(signals)


@pytest.mark.usefixtures("interpreted")
def test_the_same_bits_whatever_the_number_of_processes(folder, tmp_path):
    simulate(tmp_path, SMALL, jobs=1)
    for path in sorted(folder.glob("mode*/*.bary")):
        assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes()


@pytest.mark.usefixtures("in_process")
def test_a_simulation_is_continued_and_extended_without_touching_what_is_there(folder, tmp_path):
    import shutil

    other = tmp_path / "copy"
    shutil.copytree(folder, other)
    lost = other / "mode4" / "run001.bary"
    kept = other / "mode1" / "run000.bary"
    lost.unlink()
    before = kept.stat().st_mtime_ns
    seen = []
    done = simulate(other, Plan(**{**vars(SMALL), "runs": 3}), jobs=1, progress=seen.append)
    assert (done.done, done.total, done.found) == (8, 8, 5)
    assert [p.done for p in seen] == [5, 6, 7, 8]
    assert kept.stat().st_mtime_ns == before
    assert lost.read_bytes() == (folder / "mode4" / "run001.bary").read_bytes()
    assert read_manifest(other)["runs"] == {"mode1": 3, "mode4": 3}


def test_the_manifest_holds_every_parameter(folder):
    manifest = read_manifest(folder)
    assert manifest["complete"]
    assert manifest["plan"]["magnitudes"]["4:6"] == 0.5
    assert manifest["plan"]["seed"] == 2024
    assert len(manifest["variables"]) == 34
    assert manifest["setpoints"]["3"]["percent_g"] == 90.09
    assert set(manifest["versions"]) >= {"tep-studio", "numba", "baryflow"}


def test_a_folder_with_another_simulation_is_refused(folder):
    with pytest.raises(
        InvalidInputError, match=r"another simulation: it has .*'seed': 2024.*another folder"
    ):
        simulate(folder, Plan(**{**vars(SMALL), "seed": 1}))


@pytest.mark.usefixtures("interpreted")
def test_what_a_kill_leaves_behind_is_complete_and_goes_on(tmp_path, folder, request):
    program = (
        "from baryflow.tep import Plan, simulate\n"
        "if __name__ == '__main__':\n"
        f"    simulate({str(tmp_path)!r}, Plan((1, 4), 40, (0, 6), hours=1.0, lead=0.5, "
        "commissioning=1), jobs=1)\n"
    )
    script = tmp_path / "run.py"
    script.write_text(program)
    process = subprocess.Popen([sys.executable, str(script)])
    while len(list(tmp_path.glob("mode*/*.bary"))) < 4 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = list(tmp_path.glob("mode*/*.bary"))
    assert there
    for path in there:
        container.read(path)
    assert not read_manifest(tmp_path)["complete"]
    request.getfixturevalue("in_process")
    done = simulate(tmp_path, SMALL, jobs=1)
    assert done.done == done.total
    for path in sorted(folder.glob("mode*/*.bary")):
        assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.usefixtures("interpreted")
def test_ctrl_c_ends_with_a_sentence_and_what_was_finished_is_kept(tmp_path):
    folder = tmp_path / "plant"
    options = ("--faults", "0,6", "--modes", "1,4", "--runs", "1000", "--hours", "1", "--jobs", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "baryflow", "tep", "simulate", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as a terminal does: what it sends goes to the workers, too
    )
    while not (folder / "mode1/commissioning.bary").is_file() and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    try:
        out, err = process.communicate(timeout=300)  # all of it would take much longer
    finally:
        process.kill()
    assert process.returncode == 130
    assert out == ""
    assert re.fullmatch("interrupted; .* resume.\n", err)
    assert not read_manifest(folder)["complete"]
    for path in folder.glob("mode*/*.bary"):
        container.read(path)


def test_a_run_that_trips_is_drawn_again_and_told(plant, settled):
    # Reaction kinetics drift in mode 2: now and then the pressure runs away.
    plan = Plan(modes=(2,), faults=(13,), runs=1)
    signal_, redrawn = draw(plant, settled[2], plan, 2, 13, 0)
    assert signal_.shape == (600, 34)
    assert [trip.reason for trip in redrawn] == ["High Reactor Pressure!!  Shutting down."]


def test_a_fault_that_always_trips_is_an_error_that_says_what_to_do(plant, settled):
    plan = Plan(magnitudes={}, hours=8.0, lead=0.5)
    with pytest.raises(
        BaryflowError, match=f"{MAX_DRAWS} times out of {MAX_DRAWS} in mode 4.*lower its magnitude"
    ):
        draw(plant, settled[4], plan, 4, 6, 0)


def test_seeds_are_eight_times_odd_and_differ():
    seeds = {
        noise_seed(2024, mode, fault, run)
        for mode in range(1, 7)
        for fault in range(29)
        for run in range(20)
    }
    assert len(seeds) == 6 * 29 * 20
    assert all((seed / 8) % 2 == 1 and seed < 2**32 for seed in seeds)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"modes": (0,)}, "modes must be different numbers from 1 to 6"),
        ({"modes": ()}, "modes must be"),
        ({"faults": (1, 1)}, "faults must be different"),
        ({"faults": (29,)}, "from 0 to 28"),
        ({"runs": 0}, "runs must be an integer >= 1"),
        ({"runs": 2000}, "at most 1000"),
        ({"hours": -1.0}, "hours must be a number"),
        ({"hours": 1e300}, "hours must be a number"),
        ({"magnitudes": {(1, 6): 1.5}}, "share in"),
    ],
)
def test_a_wrong_plan_is_refused(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        Plan(**wrong)


def test_what_is_missing_or_foreign_is_told(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="baryflow tep simulate"):
        read_signals(tmp_path)
    with pytest.raises(InvalidInputError, match=r"expected 9 runs of mode 1 .* found 2: continue"):
        read_signals(folder, runs=9)
    with pytest.raises(FileNotFoundError, match="no simulation"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"plan": 3}))
    with pytest.raises(FileFormatError, match="not the manifest"):
        read_manifest(tmp_path)
    (tmp_path / "mode1").mkdir()
    container.write(tmp_path / "mode1" / "run000.bary", "mixture", {}, {"signals": np.zeros((1, 2, 34))})
    with pytest.raises(FileFormatError, match="does not hold simulated signals"):
        read_signals(tmp_path)


def test_without_the_extra_the_message_says_what_to_install(tmp_path):
    program = (
        "import sys; sys.modules['tep_studio'] = None\n"
        "from baryflow.cli import main\n"
        f"main(['tep', 'simulate', {os.fspath(tmp_path / 'x')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'baryflow[tep]'" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("in_process")
def test_the_command_says_what_it_did(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    options = ("--modes", "1", "--faults", "0,6", "--runs", 1, "--hours", 0.5, "--lead", 0, "--jobs", 1)
    done = run("tep", "simulate", tmp_path / "plant", *options)
    assert done.exit_code == 0, done.output
    assert "2 files in" in done.stderr
    again = run("tep", "simulate", tmp_path / "plant", *options)
    assert "0 of them new" in again.stderr
    other = run("tep", "simulate", tmp_path / "plant", *options, "--magnitude", "1:6=0.5")
    assert other.exit_code == 1
    assert "holds another simulation" in other.stderr
