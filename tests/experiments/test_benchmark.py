"""The benchmark: problems, streams, methods, resuming, tables."""

import numpy as np
import pytest

from benchmarks import pages
from experiments import results
from experiments.benchmark import __main__ as benchmark
from experiments.benchmark import figure, methods, problems, scores, streams, tables
from experiments.benchmark.methods import alignment, label_shift, plain, test_time


@pytest.fixture(scope="module")
def fleet():
    return problems.load("fleet 100")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Plain classifiers that take no time."""
    names = ("logistic regression", "SVC")
    monkeypatch.setattr(plain, "CLASSIFIERS", {name: plain.CLASSIFIERS[name] for name in names})
    members = tuple((name, space) for name in names for space in plain.SPACES)
    monkeypatch.setattr(plain, "MEMBERS", members)
    plain.forget()


# -- problems and streams ----------------------------------------------------------------------------


def test_a_fleet_is_made_of_machines_that_differ_in_calibration():
    X, y, domain = problems.make_fleet(0)
    assert np.array_equal(problems.make_fleet(0)[0], X)
    assert not np.allclose(problems.make_fleet(1)[0], X)
    means = np.stack([X[domain == machine].mean(axis=0) for machine in range(6)])
    within = np.stack([X[(domain == 0) & (y == c)].std(axis=0) for c in range(5)]).mean(axis=0)
    assert (means.std(axis=0) / within).mean() > 1.0


@pytest.mark.parametrize("name", ["domains 101", "fleet 101", "plant"])
def test_a_made_problem_is_the_same_every_time(name):
    one, same = problems.load(name), problems.load(name)
    assert np.array_equal(one.X, same.X)
    X, y, domain = one.sources
    assert len(X) == len(y) == len(domain) == problems.SOURCE_ROWS
    assert set(domain) == set(range(1, domain.max() + 1))
    assert problems.group(name) == name.split()[0]


def test_sets_of_a_folder_are_read_without_the_targets_rows_as_sources(tmp_path, capsys):
    rng = np.random.default_rng(0)
    domain = np.repeat([0, 1, 2], [40, 60, 50])
    X = rng.normal(size=(150, 3)) + 100.0 * domain[:, None]
    X[0, 0] = np.nan
    np.savez(tmp_path / "cstr7.npz", X=X, y=rng.integers(4, size=150) + 3, domain=domain)
    np.savez(tmp_path / "other.npz", a=X)
    assert problems.names(tmp_path) == [*problems.MADE, "cstr7/1", "cstr7/2"]
    assert "not the file" in capsys.readouterr().err
    problem = problems.load("cstr7/1", tmp_path)
    assert np.isfinite(problem.sources[0]).all()
    assert ((problem.X > 90) & (problem.X < 110)).all()
    assert not ((problem.sources[0][:, 1] > 90) & (problem.sources[0][:, 1] < 110)).any()
    assert set(problem.y) == set(range(4))
    assert problems.group("cstr7/1") == "cstr7"


def test_songs_are_in_sources_or_in_the_target(tmp_path):
    song, domain = np.tile(np.arange(20), 3), np.repeat([0, 1, 2], 20)
    X = np.stack([song, domain], axis=1).astype(float)
    np.savez(tmp_path / "mgr.npz", X=X, y=song % 2, domain=domain, song=song)
    problem = problems.load("mgr/2", tmp_path)
    assert not set(problem.sources[0][:, 0]) & set(problem.X[:, 0])


@pytest.mark.parametrize(
    ("kind", "share"), [("80 % one class", 0.8), ("95 % one class", 0.95), ("one class", 1.0)]
)
def test_a_kind_of_stream_has_its_class_proportions(fleet, kind, share):
    found = streams.make(fleet, kind)
    assert np.bincount(found.y).max() / len(found.y) == pytest.approx(share, abs=0.01)
    assert len(found.y) <= streams.ROWS


def test_the_other_kinds_of_streams(fleet):
    made = {kind: streams.make(fleet, kind) for kind in streams.KINDS}
    same = np.sort(made["as they come"].X, axis=0)
    changes = {}
    for kind in streams.ORDERS:
        assert np.array_equal(np.sort(made[kind].X, axis=0), same)
        changes[kind] = (np.diff(made[kind].y) != 0).sum()
    assert changes["class by class"] == 4 < changes["in runs"] < 20
    assert len(np.unique(made["half absent"].y)) == 2
    fault = made["lasting fault"].y
    assert len(np.unique(fault[: streams.MIXED])) == 5
    assert len(np.unique(fault[streams.MIXED :])) == 1
    assert fault[-1] != 0
    before, after = made["as they come"].X, made["recalibrated"].X
    assert np.corrcoef(before[:, 0], after[:, 0])[0, 1] == pytest.approx(1.0)
    assert not np.allclose(before.mean(axis=0), after.mean(axis=0), atol=0.05)


def test_a_baseline_is_of_the_most_frequent_class_and_not_in_the_stream(fleet):
    for kind in streams.KINDS:
        stream = streams.make(fleet, kind)
        rows, label = stream.baseline
        assert len(rows) == streams.BASELINE
        wanted = 0 if kind == "lasting fault" else np.bincount(stream.y).argmax()
        assert label == wanted
        assert not (rows[:, None, 0] == stream.X[None, :, 0]).any()
    some = {tuple(row): c for row, c in zip(fleet.X, fleet.y, strict=True)}
    rows, label = streams.make(fleet, "95 % one class").baseline
    assert {some[tuple(row)] for row in rows} == {label}


def test_too_few_rows_are_no_stream():
    y = np.repeat([0, 1, 2], 12)
    assert streams.make(problems.Problem("a", (), np.arange(36.0)[:, None], y), "one class") is None


# -- methods -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_learns_a_stream_and_leaves_the_original_alone(fleet, name, monkeypatch):
    pytest.importorskip("skada") if name.startswith("skada") else None
    if name in tables.OWN or name == "T3A":
        pytest.skip("takes long; test_it_runs_and_resumes has a quick one")
    X, y, domain = fleet.sources
    some = slice(None, 500)
    fitted = methods.make(name).fit(X[some], y[some], domain[some])
    stream = streams.make(fleet, "as they come")
    before = fitted.predict(stream.X)
    figures = scores.flow(fitted.copy(), stream)
    assert figures["end"] > (0.3 if name == "raw" else 0.8)
    assert figures["end"] >= figures["flowing"] - 0.02
    assert np.array_equal(fitted.predict(stream.X), before)


def test_t3a_moves_the_last_layer_to_rows_of_the_target(fleet, monkeypatch):
    from sklearn.neural_network import MLPClassifier

    made = {"MLP": lambda: MLPClassifier((32,), max_iter=60, random_state=0)}
    monkeypatch.setattr(plain, "CLASSIFIERS", made)
    monkeypatch.setattr(plain, "MEMBERS", (("MLP", "raw"), ("MLP", "per domain")))
    X, y, domain = fleet.sources
    stream = streams.make(fleet, "as they come")
    figures = scores.flow(test_time.T3A().fit(X, y, domain).copy(), stream)
    assert figures["end"] > 0.8


def test_standardised_by_a_baseline_does_not_mind_class_proportions(fleet):
    stream = streams.make(fleet, "95 % one class")
    model = plain.Standardised().fit(*fleet.sources)
    told = model.copy()
    told.set_baseline(*stream.baseline)
    ends = [scores.flow(one, stream)["end"] for one in (model, told)]
    assert ends[1] > 0.9 > ends[0]


def test_labels_choose_among_the_plain_classifiers(fleet):
    stream = streams.make(fleet, "one class")
    model = plain.Picked().fit(*fleet.sources)
    model.update(stream.X)
    best = max(plain.MEMBERS, key=lambda member: _accuracy(model, member, stream))
    model.learn(stream.X[:40], stream.y[:40])
    assert _accuracy(model, model.member, stream) >= _accuracy(model, best, stream) - 0.05


def _accuracy(model, member, stream):
    one = model.copy()
    one.member = member
    return (one.predict(stream.X) == stream.y).mean()


@pytest.mark.parametrize("make", [label_shift.EM, label_shift.BBSE])
def test_label_shift_is_found_where_calibrations_are_the_same(make, monkeypatch):
    monkeypatch.setattr(plain, "MEMBERS", (("logistic regression", "raw"),))
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 4))
    y = rng.integers(3, size=900)
    X, domain = centres[y] + rng.normal(size=(900, 4)), np.repeat([1, 2, 3], 300)
    y_target = rng.choice(3, 300, p=[0.9, 0.05, 0.05])
    X_target = centres[y_target] + rng.normal(size=(300, 4))
    model = make().fit(X, y, domain)
    before = (model.predict(X_target) == y_target).mean()
    model.update(X_target)
    assert (model.predict(X_target) == y_target).mean() > before + 0.05


@pytest.mark.parametrize("make", [alignment.CORAL, alignment.LinearOT])
def test_alignment_gives_the_sources_the_moments_of_the_target(make):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3)) + 2.0
    target = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 3))
    moved, move = make().align(X, np.ones(400), target, each=False, shrinkage=0.0)
    assert np.allclose(moved.mean(axis=0), target.mean(axis=0))
    assert np.allclose(np.cov(moved.T), np.cov(target.T), atol=1e-3)
    assert np.array_equal(move(target), target)


def test_neighbours_agree():
    logs = np.log([[0.9, 0.1], [0.45, 0.55], [0.1, 0.9]])
    Z = np.array([[0.0], [0.1], [9.0]])
    assert test_time.agree(logs, Z, 1).argmax(axis=1).tolist() == [0, 0, 1]
    assert np.allclose(test_time.agree(logs, Z, 3), np.exp(logs))


# -- running -----------------------------------------------------------------------------------------


class Told(plain.Method):
    """Predicts the last class that it was told."""

    classes, answer, fits = np.arange(5), 0, 0

    def fit(self, *_):
        Told.fits += 1
        return self

    def predict_proba(self, X):
        proba = np.full((len(X), 5), 0.1)
        proba[:, self.answer] = 0.6
        return proba

    def learn(self, _, y):
        self.answer = y[-1]

    def set_baseline(self, _, label):
        self.answer = label

    def set_prior(self, proportions):
        self.answer = proportions.argmax()


class Late(Told):
    flows = False
    learn = None


del Late.learn


@pytest.fixture
def told(monkeypatch):
    made = {"OnlineDaDiL": Told, "DaDiL": Late}
    monkeypatch.setattr(methods, "make", lambda name: made[name]())
    monkeypatch.setattr(Told, "fits", 0)


def test_it_runs_and_resumes_and_a_new_method_runs_alone(tmp_path, told, capsys):
    arguments = ["--out", str(tmp_path), "--problems", "fleet 10[01]", "--methods"]
    kinds = ["--kinds", "as they come", "one class"]
    assert benchmark.main([*arguments, "OnlineDaDiL", *kinds]) == 0
    path = tmp_path / "onlinedadil.csv"
    some = path.read_text()
    assert Told.fits == 2
    assert benchmark.main([*arguments, "OnlineDaDiL"]) == 0
    assert path.read_text().startswith(some)
    assert Told.fits == 4
    rows = results.read(path)
    keys = [(row["problem"], row["kind"], row["knowledge"]) for row in rows]
    assert len(set(keys)) == len(keys) == 2 * (len(streams.KINDS) * 5 + len(scores.WITH_PRIOR))
    assert benchmark.main([*arguments, "OnlineDaDiL", "DaDiL"]) == 0
    assert results.read(path) == rows
    late = results.read(tmp_path / "dadil.csv")
    assert not {row["kind"] for row in late} & set(streams.ORDERS)
    assert {row["flowing"] for row in late} == {""}
    assert "| best rival |" in capsys.readouterr().out


def test_what_is_known_comes_before_the_stream_or_after_it(fleet, told):
    stream = streams.make(fleet, "one class")
    found = dict(scores.measure(Told(), stream, list(scores.KNOWLEDGE), 5))
    wrong = 0.0 if stream.y[0] else 1.0
    assert found["none"]["end"] == found["none"]["flowing"] == wrong
    assert found["1 label"]["end"] == 1.0
    assert "flowing" not in found["1 label"]
    assert found["baseline"]["flowing"] == found["class prior"]["flowing"] == 1.0
    assert found["none"]["claimed"] == 0.6


def test_balanced_accuracy_counts_classes_alike():
    stream = streams.Stream(np.zeros((10, 2)), np.repeat([0, 1], [9, 1]), ())
    found = scores.flow(Told(), stream)
    assert (found["end"], found["end_balanced"]) == (0.9, 0.5)


# -- tables ------------------------------------------------------------------------------------------


def make_row(method, problem, kind="one class", knowledge="none", **figures):
    empty = dict.fromkeys(benchmark.FIELDS, "")
    about = {"method": method, "problem": problem, "kind": kind, "knowledge": knowledge}
    return empty | about | {name: str(value) for name, value in figures.items()}


ROWS = [
    make_row("OnlineDaDiL", "fleet 100", end=0.5, claimed=0.7, rows=100, seconds=0.5),
    make_row("OnlineDaDiL", "fleet 101", end=0.9, claimed=0.8, rows=100, seconds=0.5),
    make_row("OnlineDaDiL", "fleet 100", knowledge="3 labels", end=0.85),
    make_row("OnlineDaDiL", "cstr7/5", end=0.1),
    make_row("raw", "cstr7/5", end=0.2),
    make_row("raw", "fleet 100", end=0.6),
    make_row("raw", "fleet 101", end=0.6),
    make_row("EM", "fleet 100", end=0.8),
    make_row("EM", "fleet 101", end=0.9),
    make_row("DaDiL", "fleet 100", end=1.0),
    make_row("DaDiL", "fleet 101", end=1.0),
    make_row("T3A", "fleet 100", end=1.0),
    make_row("OnlineDaDiL", "plant", end=0.3),
]


def test_methods_and_problems_that_are_not_finished_are_left_out():
    found = tables.comparable(ROWS)
    assert {row["problem"] for row in found} == {"fleet 100", "fleet 101"}
    assert {row["method"] for row in found} == {"OnlineDaDiL", "raw", "EM", "DaDiL"}
    assert {row["problem"] for row in tables.comparable(ROWS, made=False)} == {"cstr7/5"}


def test_tables_show_means_with_standard_errors_of_made_problems():
    assert "| 70.0 ± 20.0 |" in tables.made_end(ROWS)
    assert "| 85.0 |" in tables.knowledge(ROWS)
    assert "| 15.0 ± 5.0 | +5.0 ± 15.0 | 1 of 2 | 200 |" in tables.trust(ROWS)
    assert "cstr7" in tables.sets_each(ROWS)
    assert "10.0" in tables.sets(ROWS)


def test_losses_are_against_the_best_rival_that_is_not_ours():
    text = tables.losses(ROWS)
    assert "| one class | at the end | EM | 85.0 ± 5.0 | 70.0 ± 20.0 | -15.0 ± 15.0 |" in text
    assert "-30.0 (fleet 100)" in text


def test_the_figure_shows_points_above_not_adapting(tmp_path):
    labels, cells = figure.grid(ROWS)
    assert labels == ["OnlineDaDiL", "DaDiL", "EM"]
    assert cells[:, streams.KINDS.index("one class")] == pytest.approx([10.0, 40.0, 25.0])
    assert np.isnan(cells[0, 0])
    figure.draw(ROWS, tmp_path / "found.png")
    assert (tmp_path / "found.png").stat().st_size > 5_000
    assert figure.grid([])[0] == []


@pytest.mark.parametrize("part", tables.PARTS)
def test_the_page_shows_the_committed_results(part):
    """If this fails, run ``python -m experiments.benchmark --tables`` and commit what it writes."""
    text = (pages.ROOT / benchmark.PAGE).read_text()
    assert pages.filled(text, part, tables.PARTS[part](benchmark.read(benchmark.RESULTS))) == text
