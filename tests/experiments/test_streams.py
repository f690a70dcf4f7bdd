"""Streams of machines with their own calibration."""

from copy import copy
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import pages
from experiments import results
from experiments.streams import __main__ as streams
from experiments.streams import methods, problems, tables


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


def test_a_fault_stays_on_after_a_mixed_beginning():
    y = np.repeat(np.arange(5), 90)
    rows = problems.lasting_fault(y, "lasting fault 3", np.random.default_rng(0))
    assert len(np.unique(y[rows[: problems.MIXED]])) == 5
    assert (y[rows[problems.MIXED :]] == 3).all()
    assert len(rows) == problems.MIXED + problems.LASTING


def test_a_baseline_is_of_the_most_frequent_class_and_not_in_the_stream(target):
    rows, label = target.baseline("95 % one class", 10)
    stream = target.streams["95 % one class"]
    assert len(rows) == 10
    assert (target.y[stream] == label).mean() > 0.9
    where = [int(np.flatnonzero((row == target.X).all(axis=1))[0]) for row in rows]
    assert (target.y[where] == label).all()
    assert not np.isin(where, stream).any()


def test_a_baseline_takes_rows_of_the_stream_if_there_are_no_others():
    y = np.repeat([0, 1], [20, 40])
    target = problems.Target("a", (), np.arange(60.0)[:, None], y, {"as it is": np.arange(60)})
    rows, label = target.baseline("as it is", 30)
    assert (len(rows), label) == (30, 1)


def test_a_wrong_prior_is_the_right_one_of_the_neighbouring_class():
    y = np.array([0, 0, 0, 0, 2])
    right, wrong = (streams.class_prior(name, y, 3) for name in ("right prior", "wrong prior"))
    assert right == pytest.approx([5 / 8, 1 / 8, 2 / 8])
    assert wrong == pytest.approx([2 / 8, 5 / 8, 1 / 8])
    assert streams.class_prior("normal prior", y, 3) == pytest.approx([0.85, 0.075, 0.075])


def test_it_runs_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(methods, "OnlineDaDiL", Model)
    arguments = ["--out", str(tmp_path), "--sets", "fleet 0", "cstr7", "--targets", "1"]
    assert streams.main(arguments) == 0
    assert "cstr7: left out" in capsys.readouterr().err
    rows = results.read(tmp_path / "ours.csv")
    given, priors = ("none", "1 label", "3 labels", "5 labels"), ("right prior", "wrong prior")
    wanted = [(kind, knowledge) for kind in problems.KINDS for knowledge in given]
    wanted += [(kind, "none") for kind in problems.FAULTS]
    wanted += [(kind, knowledge) for kind in problems.KINDS for knowledge in priors]
    wanted += [(kind, "normal prior") for kind in problems.FAULTS]
    assert [(row["kind"], row["knowledge"]) for row in rows] == wanted
    assert {row["last"] for row in rows if row["kind"] in problems.FAULTS} == {"0.0"}
    assert streams.main(arguments) == 0
    assert results.read(tmp_path / "ours.csv") == rows


def test_what_was_done_is_not_done_again(target):
    done = {(kind, "none") for kind in target.streams if kind != "one class"}
    found = streams.judge(Plain, target, done)
    assert [(row["kind"], row["knowledge"]) for row in found] == [("one class", "none")]


def test_a_baseline_is_given_before_the_stream_to_models_that_can_use_it(target):
    class WithBaseline(Model):
        def set_baseline(self, X, label):
            assert len(X) == streams.BASELINE
            self.answer = label

    found = streams.judge(WithBaseline, target)
    (row,) = [row for row in found if (row["kind"], row["knowledge"]) == ("one class", "baseline")]
    assert row["flowing"] == row["end"] == 1.0
    assert row["not_adapting"] < 1.0


def test_balanced_accuracy_counts_classes_alike():
    found = streams.at_end(Model(), np.zeros((10, 2)), np.repeat([0, 1], [9, 1]))
    assert found == {"end": 0.9, "balanced": 0.5, "claimed": 0.6}


def test_a_plain_classifier_is_standardised_with_the_rows_so_far(target):
    X, y = target.X, target.y
    raw, own = (methods.Plain(per_domain=own).fit(*target.sources) for own in (False, True))
    assert np.array_equal(raw.spawn().partial_fit(X + 5.0).predict(X), raw.predict(X))
    assert (own.spawn().partial_fit(X).predict(X) == y).mean() > 0.85
    assert (own.predict(X) == y).mean() < 0.85


def test_the_picked_classifier_decides_how_rows_are_standardised(target, monkeypatch):
    member = ("MLP", "per domain")
    taught = SimpleNamespace(fitted={member: "a classifier"}, pick=lambda: member)
    monkeypatch.setattr(methods, "teach", lambda *_: taught)
    model = methods.Picked().fit(*target.sources)
    assert model.per_domain
    assert model.classifier == "a classifier"


def test_a_reference_is_a_module_whose_explanations_are_weighed(tmp_path):
    path = tmp_path / "some_reference.py"
    path.write_text(REFERENCE)
    model = methods.Reference(methods.read_module(path))
    model.fit(np.zeros((4, 2)), np.array([3, 3, 7, 7]), np.array([1, 1, 2, 2]))
    X = np.zeros((6, 2))
    assert set(model.predict(X)) == {7}  # not adapting
    model.partial_fit(X)
    assert set(model.predict(X)) == {3}  # as expected, which has more weight
    assert set(model.spawn().feedback(X[:1], np.array([7])).predict(X)) == {7}
    assert set(model.predict(X)) == {3}


REFERENCE = """
import numpy as np

class Target:
    def __init__(self, sources, X):
        pass

    def standardise(self, q):
        return None, 0.0, 1.0

class Sources:
    used, prior, mean, std = slice(None), np.array([0.5, 0.5]), 0.0, 1.0
    standardised, raw = [0.9, 0.1], [0.2, 0.8]

    def logs(self, classifier, Z):
        return np.log(np.tile(classifier, (len(Z), 1)))

def fit(X, y, domain, n_classes):
    return Sources(), np.array([1.0])

def explanations(sources, X):
    q = sources.prior
    return [(q, None, np.array([1.0])), (q, None, np.array([0.0]))]

def weigh(found, coefficients, labelled=None):
    weights = np.array([features @ coefficients for *_, features in found])
    if labelled is not None:
        weights = weights + [logs[labelled].sum() for _, logs, _ in found]
    return weights - np.log(np.exp(weights).sum())
"""


def make_row(problem, kind, knowledge="none", method="ours", **figures):
    empty = dict.fromkeys(streams.FIELDS, "")
    about = {"method": method, "problem": problem, "target": "5", "kind": kind, "knowledge": knowledge}
    return empty | about | {name: str(value) for name, value in figures.items()}


ROWS = [
    make_row("fleet 0", "one class", not_adapting=0.9, flowing=0.8, end=0.5, balanced=0.5, claimed=0.7),
    make_row("fleet 1", "one class", not_adapting=0.9, flowing=0.8, end=0.9, balanced=0.9, claimed=0.8),
    make_row("fleet 0", "one class", "baseline", end=0.9),
    make_row("fleet 0", "one class", "3 labels", end=0.85),
    make_row("fleet 0", "lasting fault 1", last=0.4, last_not_learning=1.0),
    make_row("fleet 0", "lasting fault 2", last=0.2, last_not_learning=0.3),
    make_row("fleet 0", "one class", method="raw", end=0.3),
]


def test_tables_show_means_with_standard_errors_and_gains_on_the_same_streams():
    text = tables.accuracy(ROWS)
    assert "| ours | end |  |  |  |  | 70.0 ± 20.0 |" in text
    assert "| ours | baseline |  |  |  |  | 90.0 (+40.0) |" in text
    assert "| raw | end |  |  |  |  | 30.0 |" in text
    assert "1 of 2" in tables.claims(ROWS)
    assert "| ours | no | 30.0 ± 10.0 | 65.0 ± 35.0 | 1 of 1 |" in tables.faults(ROWS)


def test_bars_are_only_those_of_which_there_are_figures():
    text = tables.bars(ROWS)
    assert "One class, after 3 labels (wanted: 88 or more): ours 85.0." in text
    assert "below not adapting (wanted: at most 1 of 10): ours 1 of 2." in text
    assert "found without (wanted: all): ours 0 of 1." in text
    assert "80 %" not in text
    assert tables.bars([]) == ""


@pytest.mark.parametrize("part", tables.PARTS)
def test_the_page_shows_the_committed_results(part):
    """If this fails, run ``python -m experiments.streams --tables`` and commit what it writes."""
    page, made = tables.PARTS[part]
    text = (pages.ROOT / page).read_text()
    assert pages.filled(text, part, made(streams.read(streams.RESULTS))) == text


@pytest.fixture(scope="module")
def target():
    return next(problems.targets("fleet 0", n=1))


class Plain:
    """Predicts class 0."""

    classes_, answer = np.arange(5), 0

    def fit(self, *_):
        return self

    def spawn(self):
        return copy(self)

    partial_fit = fit

    def predict(self, X):
        return np.full(len(X), self.answer)


class Model(Plain):
    """Predicts class 0, whatever is known."""

    feedback = Plain.fit

    def __init__(self, class_prior=None, **_):
        self.class_prior = class_prior

    def predict_proba(self, X):
        proba = np.full((len(X), 5), 0.1)
        proba[:, self.answer] = 0.6
        return proba
