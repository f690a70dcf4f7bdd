import sys

import pytest
from click.testing import CliRunner

from baryflow import Mixture
from baryflow import demo as demonstration
from baryflow.cli import main
from baryflow.datasets import load_tep


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


def test_the_demo_says_why_a_figure_cannot_be_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstration, "problem", lambda: load_tep(runs=3, faults=[0, 1, 2]))
    done = run("demo", "--figure", tmp_path / "demo.nonsense")
    assert done.exit_code == 1
    assert "cannot write the figure" in done.stderr
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = run("demo", "--figure", tmp_path / "demo.png")
    assert done.exit_code == 0
    assert "pip install 'baryflow[plot]'" in done.stderr


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
        (("--faults", "40"), "faults must be different numbers from 0 to 28"),
    ],
)
def test_tep_simulate_refuses_what_makes_no_sense(run, tmp_path, option, message):
    done = run("tep", "simulate", tmp_path, *option)
    assert done.exit_code in (1, 2)
    assert message in done.stderr
