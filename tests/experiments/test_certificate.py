import numpy as np
import pytest

from benchmarks import pages
from experiments import results
from experiments.certificate import __main__ as certificate
from experiments.certificate import simulation, streams


@pytest.fixture(scope="module")
def committed():
    return results.read(certificate.RESULTS / "certificate.csv")


def test_it_runs_at_reduced_size_and_resumes(tmp_path, monkeypatch, capsys):
    quick = {"classifier": "linear", "validate": False, "label_shift": False}
    monkeypatch.setattr(streams, "MODELS", {"default": quick})
    monkeypatch.setattr(streams, "STREAMS", (("80 %", "shuffled"),))
    monkeypatch.setattr(streams, "SPLITS", (0,))
    monkeypatch.setattr(simulation, "SEEDS", 2)
    given = ["--sets", "make_domains", "--models", "default", "--out", str(tmp_path)]
    certificate.main(given)
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(files) == ["certificate.csv", "streams.csv"]
    rows = results.read(tmp_path / "certificate.csv")
    assert [r["rate"] for r in rows] == ["0.05", "0.2", "1.0"]
    assert "| shuffled | 100% | 1 | 1 |" in capsys.readouterr().out
    certificate.main(given)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_outcomes_are_recorded_row_by_row():
    right = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert streams.encoded(right) == "0123"
    np.testing.assert_array_equal(streams.decoded("0123"), right)


def test_harm_makes_predictions_fall_back():
    rng = np.random.default_rng(0)
    outcomes = (rng.random((960, 2)) < [0.5, 0.9]).astype(int)
    found = simulation.simulate(outcomes, 1.0)
    assert (found["harm"], found["false_harm"], found["lifted"]) == (1, 0, 0)
    assert found["with_fallback"] > 0.85


def test_the_page_shows_the_committed_results(committed):
    text = (pages.ROOT / certificate.PAGE).read_text()
    for name, make in certificate.TABLES.items():
        assert pages.filled(text, name, make(committed)) == text


@pytest.mark.parametrize("order", ["shuffled", "runs", "class"])
@pytest.mark.parametrize("statement", certificate.STATEMENTS)
def test_the_committed_certificates_are_false_in_at_most_5_percent(committed, statement, order):
    some = [r for r in committed if r["order"] == order]
    runs = certificate.total(some, "runs")
    assert runs >= 1000
    assert certificate.total(some, f"false_{statement}") <= 0.05 * runs
    assert certificate.total(some, f"false_{statement}_rows") <= 0.05 * runs


def test_harm_is_found_in_the_committed_results_where_it_is_real(committed):
    worse = [r for r in committed if certificate.gap(r) < -10.0 and float(r["labels"]) >= 50]
    assert certificate.total(worse, "harm") >= 0.95 * certificate.total(worse, "runs") >= 500
