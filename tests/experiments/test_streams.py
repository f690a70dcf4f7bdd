"""Streams of machines with their own calibration."""

import numpy as np
import pytest

from experiments import results
from experiments.streams import __main__ as streams
from experiments.streams import problems


def test_a_fleet_is_made_of_machines_that_differ_in_calibration():
    X, y, domain = problems.make_fleet(0)
    assert np.array_equal(problems.make_fleet(0)[0], X)
    assert not np.allclose(problems.make_fleet(1)[0], X)
    means = np.stack([X[domain == machine].mean(axis=0) for machine in range(6)])
    within = np.stack([X[(domain == 0) & (y == c)].std(axis=0) for c in range(5)]).mean(axis=0)
    assert (means.std(axis=0) / within).mean() > 1.0


def test_a_recalibrated_domain_is_an_affine_map_of_its_columns():
    rng = np.random.default_rng(0)
    X, domain = rng.normal(size=(60, 3)), np.repeat([1, 2], 30)
    moved = problems.recalibrate(X, domain)
    for name in (1, 2):
        for column in range(3):
            before, after = X[domain == name, column], moved[domain == name, column]
            assert np.corrcoef(before, after)[0, 1] == pytest.approx(1.0)
    assert not np.allclose(moved[domain == 1].mean(axis=0), moved[domain == 2].mean(axis=0), atol=0.1)


@pytest.mark.parametrize(
    ("kind", "share"),
    [("as it is", 0.2), ("80 % one class", 0.8), ("95 % one class", 0.95), ("one class", 1)],
)
def test_a_kind_of_stream_has_its_class_proportions(kind, share):
    y = np.repeat(np.arange(5), 200)
    some = problems.draw(y, kind, np.random.default_rng(0))
    assert len(set(some.tolist())) == len(some)
    assert np.bincount(y[some]).max() / len(some) == pytest.approx(share, abs=0.01)


def test_half_of_the_classes_are_absent():
    y = np.repeat(np.arange(6), 20)
    assert len(np.unique(y[problems.draw(y, "half of the classes", np.random.default_rng(0))])) == 3


def test_it_runs_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(streams, "OnlineDaDiL", lambda **_: Model())
    path = tmp_path / "streams.csv"
    arguments = ["--out", str(path), "--sets", "fleet 0", "cstr7", "--targets", "1"]
    assert streams.main(arguments) == 0
    assert "cstr7: left out" in capsys.readouterr().err
    rows = results.read(path)
    assert [(row["problem"], row["target"], row["kind"]) for row in rows] == [
        ("fleet 0", "5", kind) for kind in problems.KINDS
    ]
    assert all(float(row["end"]) == float(row["labels_3"]) for row in rows if row["kind"] == "one class")
    assert streams.main(arguments) == 0
    assert results.read(path) == rows


class Model:
    """Predicts class 0, whatever it is told."""

    classes_ = np.arange(5)

    def fit(self, *_):
        return self

    spawn = partial_fit = feedback = fit

    def predict_proba(self, X):
        return np.tile([0.6, 0.1, 0.1, 0.1, 0.1], (len(X), 1))

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)
