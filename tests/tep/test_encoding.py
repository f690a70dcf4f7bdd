"""Scale, statistics and encoders. Training itself is tested where PyTorch is at hand."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from baryflow import container
from baryflow.cli import main
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.features.normal import FLOOR
from baryflow.features.statistics import Scale
from baryflow.tep import Encoder, encode, read_features, read_signals
from baryflow.tep.encoders.encoding import leave_one_out
from baryflow.tep.encoders.graph import Graph, Network
from baryflow.tep.encoders.statistics import LENGTH, describe, scales_of

UNIT = Scale(np.zeros(34), np.ones(34))


def runs(n=3, n_times=LENGTH, seed=0, offset=0.0):
    return (offset + np.random.default_rng(seed).normal(size=(n, n_times, 34))).astype(np.float32)


# ---------------------------------------------------------------------------------------- scale


def test_a_scale_is_the_median_and_the_spread_within_runs():
    level = np.array([0.0, 10.0, -10.0])[:, None, None].astype(np.float32)
    found = scales_of({1: runs() + level, 2: runs(seed=1)})
    assert np.abs(found[1].median).max() < 0.2
    # Levels that differ from run to run are not spread within a run.
    np.testing.assert_allclose(found[1].spread, 1.0, rtol=0.1)


def test_a_variable_that_stands_still_is_not_blown_up():
    still = runs()
    still[:, :, 4] = 50.0  # a saturated valve in mode 1 ...
    both = {1: still, 2: runs(seed=1)}
    for part in both.values():
        part[:, :, 7] = 2800.0  # ... and a variable that never moves
    found = scales_of(both)
    assert found[1].spread[4] == pytest.approx(FLOOR * found[2].spread[4])
    assert found[1].spread[7] == found[2].spread[7] == 1.0


def test_commissioning_runs_with_gaps_are_refused():
    broken = runs()
    broken[0, 3, 3] = np.nan
    with pytest.raises(InvalidInputError, match=r"finite fault-free runs .* of mode 2"):
        scales_of({1: runs(), 2: broken})


# ----------------------------------------------------------------------------------- statistics


def test_statistics_do_not_depend_on_units_or_on_company():
    X = runs(5, seed=3)
    median = np.linspace(-5, 5, 34)
    spread = np.linspace(0.5, 50, 34)
    other = (median + spread * X).astype(np.float32)
    alone = describe(X, UNIT)
    np.testing.assert_allclose(describe(other, Scale(median, spread)), alone, atol=2e-3)
    np.testing.assert_array_equal(describe(X[2:3], UNIT)[0], alone[2])
    assert np.isfinite(alone).all()


@given(variable=st.integers(0, 33), size=st.floats(1.0, 100.0))
def test_a_step_shows_in_its_variable_and_a_constant_signal_is_finite(variable, size):
    X = np.zeros((1, LENGTH, 34), dtype=np.float32)
    quiet = describe(X, UNIT)
    assert np.isfinite(quiet).all()
    X[0, 300:, variable] = size
    shown = describe(X, UNIT)
    means = shown[0, :34]
    assert means.argmax() == variable
    assert means[variable] == pytest.approx(size / 2, rel=1e-3)
    assert np.isfinite(shown).all()


def test_signals_of_another_length_or_with_gaps_are_refused():
    with pytest.raises(InvalidInputError, match=r"expected signals of shape \(n_runs, 600, 34\)"):
        describe(runs(n_times=599), UNIT)
    X = runs()
    X[1, 2, 3] = np.nan
    with pytest.raises(InvalidInputError, match="missing or infinite"):
        describe(X, UNIT)


# ------------------------------------------------------------------------- graphs and encoders


@pytest.fixture
def tiny(tmp_path):
    """An encoder in one multiplication: features are scaled means, logits are features."""
    graph = Graph()
    x = graph.node("Div", graph.node("Sub", "signals", "median"), "spread")
    x = graph.node("ReduceMean", x, graph.constant(np.array([1])), keepdims=0)
    x = graph.linear(x, np.eye(34, dtype=np.float32), np.zeros(34, dtype=np.float32), output="features")
    graph.linear(x, np.eye(34, dtype=np.float32)[:29], np.zeros(29, dtype=np.float32), output="logits")
    normal = {"median": [1.0] * 34, "spread": [2.0] * 34}
    about = {"encoder": "fcn", "target": 1, "random_state": 0, "runs": None, "normal": {"1": normal}}
    path = tmp_path / "target1.onnx"
    graph.save(path, {"signals": ["n", "times", 34], "median": [34], "spread": [34]}, about)
    return path


def test_an_encoder_computes_without_pytorch(tiny):
    X = runs(300)  # more than a batch
    found, logits = Encoder(tiny).encode(X, 1)
    np.testing.assert_allclose(found, (X.mean(axis=1) - 1) / 2, atol=1e-5)
    assert logits.shape == (300, 29)
    with pytest.raises(InvalidInputError, match="knows modes 1, got 5"):
        Encoder(tiny).encode(X, 5)
    with pytest.raises(InvalidInputError, match="expected signals of shape"):
        Encoder(tiny).encode(X[:, :, :7], 1)


def test_foreign_graphs_are_told(tmp_path, tiny):
    with pytest.raises(FileNotFoundError, match="no such file"):
        Network(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("hello")
    with pytest.raises(FileFormatError, match="not an encoder that baryflow wrote"):
        Network(tmp_path / "text.onnx")
    (tmp_path / "cut.onnx").write_bytes(tiny.read_bytes()[:-200])
    with pytest.raises(FileFormatError, match="not an encoder that baryflow wrote"):
        Network(tmp_path / "cut.onnx")


# ------------------------------------------------------------------------------------- training


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Something in the layout of a simulation: faults are steps in different variables."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    held = {f"mode{mode}": 4 for mode in range(1, 7)}
    manifest = {"plan": {"faults": [0, 1, 2], "seed": 7}, "complete": True, "runs": held}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for mode in range(1, 7):
        (folder / f"mode{mode}").mkdir()
        level = rng.normal(size=34) * 10

        def signals(faults, level=level):
            X = level + rng.normal(size=(len(faults), LENGTH, 34))
            for row, fault in zip(X, faults, strict=True):
                row[:, fault] += 3 * (fault > 0)
            return X.astype(np.float32)

        for name, cases in (
            ("commissioning", [[0, 1000 + i] for i in range(3)]),
            *((f"run{run:03d}", [[fault, run] for fault in (0, 1, 2)]) for run in range(4)),
        ):
            container.write(
                folder / f"mode{mode}" / f"{name}.bary", "tep-signals", {"mode": mode, "cases": cases},
                {"signals": signals([fault for fault, _ in cases])},
            )  # fmt: skip
    return folder


@pytest.mark.parametrize("kind", ["light", "fcn"])
def test_the_file_computes_what_the_trained_network_does(simulated, tmp_path, kind):
    torch = pytest.importorskip("torch")
    from baryflow.tep.encoders.encoding import _load

    encoder, data = _load(simulated, kind, runs=2)
    model = encoder.train(data.where(data.domain != 2), 0, None)
    encoder.save(model, tmp_path / "e.onnx", {"encoder": kind, "target": 2})
    whole = read_signals(simulated, modes=[2], runs=2)
    of_target = data.X[data.domain == 2]
    with torch.no_grad():
        if kind == "light":
            expected = model.network(torch.from_numpy(model.prepared(of_target)))
        else:
            expected = model(torch.from_numpy(of_target))
    _, logits = Encoder(tmp_path / "e.onnx").encode(whole.X, 2)
    np.testing.assert_allclose(logits, expected.numpy(), atol=2e-3)


@pytest.mark.parametrize("kind", ["light", "fcn"])
def test_an_encoder_is_trained_on_the_sources_and_kept(simulated, tmp_path, kind):
    pytest.importorskip("torch")
    done = CliRunner().invoke(
        main,
        [
            "tep",
            "encode",
            str(simulated),
            str(tmp_path),
            "--encoder",
            kind,
            "--targets",
            "2",
            "--jobs",
            "1",
        ],
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{tmp_path / 'target2.bary'}\n"
    found = read_features(tmp_path / "target2.bary")
    assert found.X.shape == (6 * 3 * 4, 128)
    assert found.about["sources"] == [1, 3, 4, 5, 6]
    if kind == "light":
        assert (found.head == found.y)[found.is_target].mean() > 0.9
    # What is there is not made again, and is not mixed with something else.
    before = (tmp_path / "target2.bary").stat().st_mtime_ns
    assert encode(simulated, tmp_path, encoder=kind, targets=[2]) == [tmp_path / "target2.bary"]
    assert (tmp_path / "target2.bary").stat().st_mtime_ns == before
    with pytest.raises(InvalidInputError, match=r"was made with .*random_state.*choose another folder"):
        encode(simulated, tmp_path, encoder=kind, targets=[2], random_state=5)


def test_runs_and_labels_of_the_target_do_not_reach_its_encoder(simulated, tmp_path):
    pytest.importorskip("torch")
    other = tmp_path / "other"
    shutil.copytree(simulated, other)
    for path in (other / "mode2").glob("run*.bary"):
        held = container.read(path)
        kind, values, arrays = held.kind, held.values, held.arrays
        values["cases"] = [[(fault + 1) % 3, run] for fault, run in values["cases"]]
        container.write(path, kind, values, {"signals": arrays["signals"][::-1] + np.float32(1.0)})
    for folder in (simulated, other):
        encode(folder, tmp_path / folder.name, encoder="light", targets=[2], jobs=1)
    found = [(tmp_path / folder.name / "target2.onnx").read_bytes() for folder in (simulated, other)]
    assert found[0] == found[1]


def test_a_simulation_that_is_not_complete_is_not_encoded(simulated, tmp_path):
    shutil.copytree(simulated, tmp_path / "cut")
    manifest = json.loads((simulated / "manifest.json").read_text())
    (tmp_path / "cut" / "manifest.json").write_text(json.dumps(manifest | {"complete": False}))
    with pytest.raises(InvalidInputError, match=r"not complete.*continue"):
        encode(tmp_path / "cut", tmp_path / "out")
    with pytest.raises(InvalidInputError, match="not complete"):
        encode(simulated, tmp_path / "out", runs=9)


def test_every_pair_of_sources_is_left_out(simulated):
    pytest.importorskip("torch")
    found = list(leave_one_out(simulated, encoder="light", runs=2))
    assert {(target, left) for target, left, _ in found} == {
        (a, b) for a in range(1, 7) for b in range(1, 7) if a != b
    }
    assert np.mean([accuracy for _, _, accuracy in found]) > 0.8


def test_without_pytorch_training_says_what_to_install(simulated, tmp_path):
    program = (
        "import sys\n"
        "from baryflow.cli import main, tep\n"
        "sys.modules['torch'] = None\n"
        f"main(['tep', 'encode', {str(simulated)!r}, {str(tmp_path)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'baryflow[encode]'" in done.stderr


def test_encode_refuses_what_makes_no_sense(tmp_path):
    with pytest.raises(InvalidInputError, match="encoder must be one of 'fcn', 'light'"):
        encode(tmp_path, tmp_path, encoder="best")
    with pytest.raises(InvalidInputError, match="targets must be modes 1 to 6"):
        encode(tmp_path, tmp_path, targets=[7])
    with pytest.raises(FileNotFoundError, match="no simulation"):
        encode(tmp_path, tmp_path)
