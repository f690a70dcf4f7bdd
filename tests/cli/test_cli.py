import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from baryflow import (
    DaDiL,
    Mixture,
    MixtureClassifier,
    OnlineDaDiL,
    OnlineGaussianMixture,
    __version__,
    container,
    persistence,
)
from baryflow import demo as demonstration
from baryflow.cli import console, inspect, main, tep
from baryflow.cli.console import Line
from baryflow.datasets import load_tep, make_domains
from baryflow.tep.plant.simulation import Progress


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


def test_the_demo_adapts_and_draws(run, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstration, "problem", lambda: load_tep(runs=10, faults=range(10)))
    done = run("demo", "--figure", tmp_path / "demo.png")
    assert done.exit_code == 0, done.output
    accuracy = {
        line[:36].strip(): float(line[36:].strip(" %")) for line in done.stdout.splitlines()[1:5]
    }
    assert accuracy["adapting, during the stream"] > accuracy["source-only"] + 0.5
    assert accuracy["adapted, after the stream"] > accuracy["source-only"] + 0.5
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
def test_the_demo_refuses_a_wrong_seed(run, never, seed):
    done = run("demo", "--seed", seed)
    assert done.exit_code == 2
    assert "--seed" in done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/demo.png", "{folder}/none does not exist"),
        ("", "{folder} is a folder"),
        ("demo.nonsense", ".svg"),
        ("demo", ".svg"),
    ],
)
def test_a_figure_that_cannot_be_written_is_refused_before_the_run(run, never, tmp_path, name, message):
    done = run("demo", "--figure", tmp_path / name)
    assert done.exit_code == 2
    assert message.format(folder=tmp_path) in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_figure_without_write_permission_is_refused_before_the_run(run, never, tmp_path, monkeypatch):
    def refuse(path, mode):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)  # root may write everywhere
    done = run("demo", "--figure", tmp_path / "demo.png")
    assert done.exit_code == 2
    assert "Permission denied" in done.stderr


def test_without_matplotlib_a_figure_that_was_asked_for_is_refused_before_the_run(
    run, never, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    (tmp_path / "demo.png").write_bytes(b"of before")
    done = run("demo", "--figure", tmp_path / "demo.png")
    assert done.exit_code == 2
    assert "pip install 'baryflow[plot]'" in done.stderr
    assert (tmp_path / "demo.png").read_bytes() == b"of before"


def test_without_matplotlib_the_demo_warns_and_draws_no_figure(run, small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.chdir(tmp_path)
    done = run("demo")
    assert done.exit_code == 0
    first, second = done.stderr.splitlines()[:2]
    assert first.startswith("no figure will be drawn: pictures need matplotlib")
    assert second.startswith("learning modes")
    assert done.stdout.startswith("accuracy on mode 1")
    assert list(tmp_path.iterdir()) == []


def test_the_demo_shows_how_far_it_is_while_it_learns_and_while_it_flows(run, small, monkeypatch):
    shown = []
    monkeypatch.setattr(Line, "show", lambda _, words, **__: shown.append(words))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run("demo").exit_code == 0
    steps = [re.match(r"fit \S+ (\d+)%  (fitting|predicting)", words) for words in shown]
    learning = [int(match[1]) for match in steps if match]
    assert learning == sorted(learning)
    assert learning[-1] == 100
    assert all(" rows " in words for words in shown[len(learning) :])
    assert len(shown) > len(learning)


def test_a_full_disk_is_reported_after_the_results(run, small, tmp_path, monkeypatch):
    def fail(outcome, path):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(demonstration, "draw", fail)
    done = run("demo", "--figure", tmp_path / "demo.png")
    assert done.exit_code == 1
    assert f"Error: {tmp_path / 'demo.png'}: No space left on device\n" in done.stderr
    assert done.stdout.startswith("accuracy on mode 1")


def test_ctrl_c_in_the_demo_exits_with_130(run, tmp_path, monkeypatch):
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


@pytest.fixture
def described(run, tmp_path):
    """Save an object and return the description that inspect prints, by name."""

    def inspect(save):
        save(tmp_path / "it.bary")
        done = run("inspect", tmp_path / "it.bary")
        assert done.exit_code == 0, done.output
        lines = dict(re.split(" {2,}", line, maxsplit=1) for line in done.stdout.splitlines())
        assert re.fullmatch(r"[\d.]+ (bytes|kB|MB)", lines.pop("size"))
        written = datetime.fromisoformat(lines.pop("date"))
        assert timedelta() <= datetime.now(UTC) - written < timedelta(minutes=10)
        assert lines.pop("release") == f"baryflow {__version__}"
        return lines

    return inspect


@pytest.fixture(scope="module")
def rows():
    """Return sources and a target with names: X, y, source."""
    p = make_domains(n_sources=3, n_classes=2, n_features=3, n_per_class=20, random_state=0)
    X = pd.DataFrame(p.X, columns=["pressure", "level", "flow"])
    return X, np.array(["good", "bad"])[p.y], np.array(["", "A", "B", "C"])[p.domain]


def test_inspect_describes_a_mixture(described):
    one = Mixture([1.0], [[0.0, 1.0]], [[1.0, 1.0]], [[1.0, 0.0, 0.0]], mass=1042)
    assert described(one.save) == {
        "holds": "a Gaussian mixture",
        "kind": "mixture",
        "components": "1",
        "classes": "3, without names",
        "columns": "2, without names",
        "mass": "1,042 rows",
    }
    assert described(one.with_labels(None).save)["classes"] == "unlabelled"


def test_inspect_describes_estimators_of_mixtures(described, rows):
    X, y, _ = rows
    shown = {"columns": "3: pressure, level, flow", "mass": "120 rows"}
    assert (
        described(OnlineGaussianMixture(5).fit(X).save)
        == {
            "holds": "a Gaussian mixture of a stream (OnlineGaussianMixture)",
            "kind": "online_mixture",
            "components": "5",
            "classes": "unlabelled",
            "rows seen": "120",
        }
        | shown
    )
    assert (
        described(MixtureClassifier().fit(X, y).save)
        == {
            "holds": "a classifier with a mixture for each class (MixtureClassifier)",
            "kind": "mixture_classifier",
            "components": "2",
            "classes": "2: bad, good",
        }
        | shown
    )


def test_inspect_describes_classifiers_that_adapt(described, rows, tmp_path):
    X, y, source = rows
    shown = {
        "classes": "2: bad, good",
        "columns": "3: pressure, level, flow",
        "decision": "adapt",
        "more": f"'baryflow report {tmp_path / 'it.bary'}' prints what was learned and decided",
    }
    offline = DaDiL(classifier="linear", validate=False, random_state=0).fit(X, y, source, target="B")
    assert (
        described(offline.save)
        == {
            "holds": "a classifier adapted to a fixed target (DaDiL)",
            "kind": "dadil",
            "sources": "2: A, C",
            "rows seen": "40 of the target",
        }
        | shown
    )
    online = (
        OnlineDaDiL(classifier="linear", validate=False, keep_sources=True, random_state=0)
        .fit(X, y, source)
        .partial_fit(X[:20])
    )
    assert (
        described(online.save)
        == {
            "holds": "a classifier that follows a stream (OnlineDaDiL)",
            "kind": "online_dadil",
            "sources": "3: A, B, C",
            "rows seen": "20 of the target",
            "inside": "the labelled rows of the sources, for 'baryflow add-source'",
        }
        | shown
    )
    alone = OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(X, y, source)
    assert "inside" not in described(alone.save)


def test_inspect_describes_files_of_the_plant(described):
    lines = described(load_tep(runs=2, faults=[0, 3]).save)
    assert lines.pop("encoder").startswith("encoder fcn, random_state 0")
    assert lines == {
        "holds": "encoded signals of the Tennessee Eastman plant",
        "kind": "tep-features",
        "target": "mode 1, unseen by the encoder",
        "classes": "2: 0, 3",
        "columns": "128, without names",
        "modes": "6: 1, 2, 3, 4, 5, 6",
        "runs": "24",
    }
    signals = {"signals": np.zeros((2, 5, 34), dtype=np.float32)}
    values = {"mode": 4, "cases": [[0, 7], [12, 7]]}
    lines = described(lambda path: container.write(path, "tep-signals", values, signals))
    assert lines.pop("columns").startswith("34: XMEAS1 A feed, XMEAS2 D feed, ")
    assert lines == {
        "holds": "simulated signals of the Tennessee Eastman plant",
        "kind": "tep-signals",
        "classes": "2: 0, 12",
        "mode": "4",
        "runs": "2, of 5 points in time each",
    }
    arrays = {f"state{mode}": np.zeros(3) for mode in (0, 1, 5)}
    assert described(lambda path: container.write(path, "tep-settled", {"seed": 1.0}, arrays)) == {
        "holds": "the Tennessee Eastman plant at rest in its modes",
        "kind": "tep-settled",
        "modes": "3: 0, 1, 5",
    }


def test_inspect_of_a_kind_that_is_not_known(run, tmp_path):
    container.write(tmp_path / "it.bary", "teapot", {}, {"x": np.zeros(1)})
    done = run("inspect", tmp_path / "it.bary")
    assert done.exit_code == 1
    assert "it.bary holds a 'teapot', which this release does not know" in done.stderr


def test_inspect_knows_all_that_can_be_loaded():
    assert persistence.KINDS.keys() < inspect.KINDS.keys()


@pytest.mark.parametrize("command", [["inspect"], ["report"], ["plot", "-o", "x.png"]])
def test_a_table_where_a_model_should_be(run, tmp_path, command):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    first, *options = command
    done = run(first, tmp_path / "rows.csv", *options)
    assert done.exit_code == 1
    assert ".bary" in done.stderr
    assert "baryflow fit" in done.stderr
    assert "damaged" not in done.stderr


def test_inspect_of_what_is_not_there_or_foreign(run, tmp_path):
    (tmp_path / "x.bary").write_text("hello")
    for name, message in (("none.bary", "no such file"), ("x.bary", "not a readable .bary file")):
        done = run("inspect", tmp_path / name)
        assert done.exit_code == 1
        assert message in done.stderr


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--modes", "5-2"), "reversed"),
        (("--modes", "a"), "1,3-5"),
        (("--magnitude", "4"), "MODE:FAULT=SHARE"),
        (("--modes", "1-99999999999"), "'--modes': expected 1 to 6, got '1-99999999999'"),
        (("--faults", "40"), "'--faults': expected 0 to 28, got '40'"),
        (("--runs", "0"), "--runs"),
        (("--jobs", "two"), "--jobs"),
        (("--hours", "nan"), "hours must be a number"),
    ],
)
def test_tep_simulate_refuses_what_makes_no_sense(run, tmp_path, option, message):
    done = run("tep", "simulate", tmp_path, *option)
    assert done.exit_code in (1, 2)
    assert message in done.stderr


def test_tep_simulate_names_a_folder_that_cannot_be_created(run, tmp_path):
    (tmp_path / "file").touch()
    done = run("tep", "simulate", tmp_path / "file" / "plant")
    assert done.exit_code == 1
    assert done.stderr == f"Error: {tmp_path / 'file' / 'plant'}: Not a directory\n"


def test_tep_apply_finds_out_before_it_encodes_whether_it_can_write(run, tmp_path):
    (tmp_path / "e.onnx").write_text("no encoder, but that is found later")
    done = run("tep", "apply", tmp_path / "e.onnx", tmp_path, tmp_path / "none" / "out.bary")
    assert done.exit_code == 2
    assert f"{tmp_path / 'none'} does not exist" in done.stderr


def test_the_time_left_does_not_count_files_that_were_there(monkeypatch):
    class Kept:
        def show(self, words, **_):
            self.words = words

    now, line = [0.0], Kept()
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tell = tep.make_progress(line)

    def described(time, done):
        now[0] = time
        tell(Progress(done, 12, 2, ()))
        return line.words

    assert "2 of 12 files" in described(0, 2)
    assert described(60, 3).endswith(", 9 min left")  # a minute a file; what was found took no time
    assert described(240, 6).endswith(", 6 min left")
