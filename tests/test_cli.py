import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from baryflow import Mixture, __version__
from baryflow import demo as demonstration
from baryflow.cli import main, tep
from baryflow.datasets import load_tep
from baryflow.tep.plant.simulation import Progress


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


def test_the_demo_adapts_and_draws(run, tmp_path):
    done = run("demo", "--figure", tmp_path / "demo.png")
    assert done.exit_code == 0, done.output
    accuracy = {
        line[:36].strip(): float(line[36:].strip(" %")) for line in done.stdout.splitlines()[1:5]
    }
    assert accuracy["adapting, while the stream flows"] > accuracy["source-only"] + 1
    assert accuracy["adapted, after the stream"] > accuracy["source-only"] + 2
    assert accuracy["adapted, after the stream"] > accuracy["trained on the target's labels"] - 2.5
    assert "Decision:" in done.stdout
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "learning modes 2 to 6" in done.stderr


@pytest.fixture
def small(monkeypatch):
    """Make the demo short."""
    monkeypatch.setattr(demonstration, "problem", lambda: load_tep(runs=3, faults=[0, 1, 2]))


@pytest.fixture
def never(monkeypatch):
    """Make sure that what is wrong is found before the demo begins."""

    def begin():
        raise AssertionError("the demo began")

    monkeypatch.setattr(demonstration, "problem", begin)


@pytest.mark.parametrize("seed", ["-1", "x", "1.5"])
def test_the_demo_says_what_a_seed_is(run, never, seed):
    done = run("demo", "--seed", seed)
    assert done.exit_code == 2
    assert "'--seed': expected a whole number, 0 or larger, got " + seed in done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/demo.png", "there is no folder {folder}/none for demo.png; make it first."),
        ("", "{folder} is a folder; name a file in it."),
        ("demo.nonsense", "a name that ends in .png, .svg or .pdf, got '{folder}/demo.nonsense'"),
        ("demo", "a name that ends in .png, .svg or .pdf, got '{folder}/demo'"),
    ],
)
def test_a_figure_that_cannot_be_written_is_told_before_the_run(run, never, tmp_path, name, message):
    done = run("demo", "--figure", tmp_path / name)
    assert done.exit_code == 2
    assert message.format(folder=tmp_path) in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_must_not_be_written_is_told_before_the_run(run, never, tmp_path, monkeypatch):
    def refuse(path, mode):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)  # whoever runs the tests might be allowed everything
    done = run("demo", "--figure", tmp_path / "demo.png")
    assert done.exit_code == 2
    assert f"cannot write {tmp_path / 'demo.png'}: Permission denied; choose another" in done.stderr


def test_without_matplotlib_a_figure_that_was_asked_for_is_refused_before_the_run(
    run, never, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    (tmp_path / "demo.png").write_bytes(b"of before")
    done = run("demo", "--figure", tmp_path / "demo.png")
    assert done.exit_code == 2
    assert "figures need Matplotlib: pip install 'baryflow[plot]'" in done.stderr
    assert (tmp_path / "demo.png").read_bytes() == b"of before"


def test_without_matplotlib_the_demo_runs_without_a_figure_and_says_so_first(
    run, small, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.chdir(tmp_path)
    done = run("demo")
    assert done.exit_code == 0
    first, second = done.stderr.splitlines()[:2]
    assert first.startswith("no figure will be drawn: figures need Matplotlib")
    assert second.startswith("learning modes")
    assert done.stdout.startswith("accuracy on mode 1")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_during_the_run_is_told_after_the_results(
    run, small, tmp_path, monkeypatch
):
    def fail(outcome, path):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(demonstration, "draw", fail)
    done = run("demo", "--figure", tmp_path / "demo.png")
    assert done.exit_code == 1
    assert f"Error: {tmp_path / 'demo.png'}: No space left on device\n" in done.stderr
    assert done.stdout.startswith("accuracy on mode 1")


def test_ctrl_c_in_the_demo_is_no_error_but_the_shell_is_told(run, tmp_path, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(demonstration, "problem", interrupt)
    done = run("demo", "--figure", tmp_path / "demo.png")
    assert done.exit_code == 130
    assert done.stderr == "interrupted.\n"


def test_the_package_is_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "baryflow", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"python -m baryflow, version {__version__}\n"


def test_inspect_says_what_is_inside(run, tmp_path):
    Mixture([1.0], [[0.0, 1.0]], [[1.0, 1.0]], [[1.0, 0.0, 0.0]], mass=42).save(tmp_path / "m.bary")
    done = run("inspect", tmp_path / "m.bary")
    assert done.stdout == (
        "a Gaussian mixture: 1 components in 2 features, 3 classes, standing for 42 samples\n"
    )


def test_inspect_describes_models(run, tmp_path):
    from baryflow import OnlineDaDiL, OnlineGaussianMixture
    from baryflow.datasets import make_domains

    p = make_domains(n_per_class=10, random_state=0)
    OnlineGaussianMixture(5).fit(p.X).save(tmp_path / "o.bary")
    assert "an online mixture: 320 rows seen" in run("inspect", tmp_path / "o.bary").stdout
    model = OnlineDaDiL(predictor="map", random_state=0).fit(p.X, p.y, p.domain)
    model.partial_fit(p.X_target[:20]).save(tmp_path / "d.bary")
    assert "20 target rows seen" in run("inspect", tmp_path / "d.bary").stdout


def test_inspect_of_what_is_not_there_or_foreign(run, tmp_path):
    (tmp_path / "x.bary").write_text("hello")
    for name, message in (("none.bary", "no such file"), ("x.bary", "not a readable .bary file")):
        done = run("inspect", tmp_path / name)
        assert done.exit_code == 1
        assert message in done.stderr


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--modes", "5-2"), "runs backwards"),
        (("--modes", "a"), "not a list of numbers"),
        (("--magnitude", "4"), "MODE:FAULT=SHARE"),
        (("--modes", "1-99999999999"), "'--modes': expected 1 to 6, got '1-99999999999'"),
        (("--faults", "40"), "'--faults': expected 0 to 28, got '40'"),
        (("--runs", "0"), "'--runs': expected a whole number, 1 or larger, got 0"),
        (("--jobs", "two"), "'--jobs': expected a whole number, 1 or larger, got two"),
        (("--hours", "nan"), "hours must be a number"),
    ],
)
def test_tep_simulate_refuses_what_makes_no_sense(run, tmp_path, option, message):
    done = run("tep", "simulate", tmp_path, *option)
    assert done.exit_code in (1, 2)
    assert message in done.stderr


def test_tep_simulate_says_which_folder_cannot_be_made(run, tmp_path):
    (tmp_path / "file").touch()
    done = run("tep", "simulate", tmp_path / "file" / "plant")
    assert done.exit_code == 1
    assert done.stderr == f"Error: {tmp_path / 'file' / 'plant'}: Not a directory\n"


def test_tep_apply_finds_out_before_it_encodes_whether_it_can_write(run, tmp_path):
    (tmp_path / "e.onnx").write_text("no encoder, but that is found later")
    done = run("tep", "apply", tmp_path / "e.onnx", tmp_path, tmp_path / "none" / "out.bary")
    assert done.exit_code == 2
    assert f"there is no folder {tmp_path / 'none'} for out.bary" in done.stderr


def test_the_time_left_does_not_count_the_settling_of_the_plant(monkeypatch):
    class Kept:
        def show(self, words):
            self.words = words

    now, line = [0.0], Kept()
    monkeypatch.setattr(tep, "monotonic", lambda: now[0])
    tell = tep._teller(line)

    def told(time, done, *, is_settled=True):
        now[0] = time
        tell(Progress(done, 12, 2, (), settled=is_settled))
        return line.words.split("  ")[-1]

    assert told(0, 2, is_settled=False) == "settling the plant in its modes"
    assert told(100_000, 2) == "making the first of them"
    assert told(100_060, 3) == "9 min left"  # a minute a file; what was found took no time
    assert told(100_240, 6) == "6 min left"
