import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from experiments import results
from experiments.ablation import __main__ as ablation


@pytest.fixture(scope="module")
def data():
    return make_domains(
        n_sources=3, n_classes=3, n_features=5, n_per_class=30, shift=1.0, random_state=0
    )


def predict(data, part):
    """Return the committee, and its predictions once it saw a few rows, most of one class."""
    changes, options = ablation.PARTS[part]
    rows = np.flatnonzero((data.y_target == 0) | (np.arange(len(data.y_target)) % 4 == 0))[:20]
    with ablation.patched(*changes):
        model = OnlineDaDiL(classifier="linear", random_state=0, **options)
        model.fit(data.X, data.y, data.domain).partial_fit(data.X_target[rows])
        return model.committee_, model.predict_proba(data.X_target)


@pytest.fixture(scope="module")
def default(data):
    return predict(data, "default")[1]


@pytest.mark.parametrize("part", [part for part in ablation.PARTS if part != "default"])
def test_switching_a_part_off_changes_predictions(data, default, part):
    assert not np.allclose(predict(data, part)[1], default, rtol=0, atol=1e-6)


def test_nothing_stays_switched_off(data, default):
    np.testing.assert_array_equal(predict(data, "default")[1], default)


def test_experts_that_are_removed_have_no_weight(data):
    committee, _ = predict(data, "no dictionary")
    removed = [ablation.is_view(name) for name in committee.experts]
    assert any(removed)
    assert not committee.weights[removed].any()
    assert committee.weights[np.logical_not(removed)].any()


def test_it_runs_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ablation, "SOURCE_ROWS", 300)
    monkeypatch.setattr(ablation, "TARGET_ROWS", 100)
    path = tmp_path / "ablation.csv"
    arguments = ["--out", str(path), "--sets", "make_domains", "mgr", "--targets", "1", "--parts"]
    assert ablation.main([*arguments, "even weights", "--mixes", "as is"]) == 0
    assert "mgr: not found" in capsys.readouterr().err
    rows = results.read(path)
    assert [(r["set"], r["target"], r["part"], r["rows"]) for r in rows] == [
        ("make_domains", "seed0", "even weights", "100")
    ]
    assert ablation.main([*arguments, "even weights", "--mixes", "as is", "half absent"]) == 0
    assert [r["mix"] for r in results.read(path)] == ["as is", "half absent"]
    assert results.read(path)[:1] == rows


def test_the_table_shows_differences_from_the_default():
    def row(part, mix, end, target="a"):
        return {"set": "s", "target": target, "part": part, "mix": mix, "flowing": "0.5", "end": end}

    rows = [
        row("default", "as is", "0.9"),
        row("default", "50 %", "0.8"),
        row("no steps", "as is", "0.85"),
    ]
    rows.append(row("no steps", "as is", "0.1", "b"))  # the default was not run there
    rows.append(row("a part that is gone", "as is", "0.7"))
    assert ablation.table(rows).splitlines()[2:] == [
        "| default | 50.0 | 90.0 | 50.0 | 80.0 | 1 |",
        "| no steps | +0.0 | -5.0 | – | – | 1 |",
        "| a part that is gone | +0.0 | -20.0 | – | – | 1 |",
    ]
