"""A batch on which the model fails is set aside and reported; stream and model go on without it."""

import json
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL, codec
from baryflow.cli import main
from baryflow.datasets import make_domains
from baryflow.estimators import _follow, online_dadil
from baryflow.runtime import Loop, Rows, SessionConfig

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
COLUMNS = ["a", "b", "c", "d"]
FATAL = 17.25  # a value on which the model is made to fail


@pytest.fixture(scope="module")
def model():
    fitted = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
        P.X, P.y, P.domain
    )
    fitted.feature_names_in_ = np.array(COLUMNS, dtype=object)
    return fitted


def some_rows(values):
    n = len(values)
    return Rows(values, np.arange(1, n + 1), [""] * n, [""] * n)


def content(model):
    """Return all that a model knows of its target, fit for being compared."""
    values, arrays = codec.encode(model.state_)
    return json.dumps(values, default=str), {name: array.tobytes() for name, array in arrays.items()}


def is_fatal(X):
    return bool((np.asarray(getattr(X, "values", X)) == FATAL).any())


@pytest.fixture
def fails(monkeypatch):
    """Let the model fail on rows that hold a certain value: in its prediction, or halfway an update."""

    def begin(method):
        if method == "predict":
            assess = OnlineDaDiL.assess

            def broken(self, X):
                if is_fatal(X):
                    raise ArithmeticError("cannot predict this")
                return assess(self, X)

            monkeypatch.setattr(OnlineDaDiL, "assess", broken)
        else:
            follow, adapt = online_dadil.follow, _follow.adapt

            def poisoned(*_, **__):
                raise ArithmeticError("cannot learn this")

            def update(sources, state, raw, weights, **more):  # rows are absorbed before it fails
                monkeypatch.setattr(_follow, "adapt", poisoned if is_fatal(raw) else adapt)
                return follow(sources, state, raw, weights, **more)

            monkeypatch.setattr(online_dadil, "follow", update)

    return begin


def test_an_update_that_fails_half_way_leaves_the_model_as_it_was(model, fails):
    fails("learn")
    target, undisturbed = model.spawn(), model.spawn()
    rows = P.X_target[:32].copy()
    rows[5, 1] = FATAL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in (target, undisturbed):
            one.partial_fit(P.X_target[32:64])
        with pytest.raises(ArithmeticError):
            target.partial_fit(rows)
        assert content(target) == content(undisturbed)
        assert target.n_samples_seen_ == 32
        for one in (target, undisturbed):
            one.partial_fit(P.X_target[64:96])
        assert content(target) == content(undisturbed)


@pytest.fixture
def files(model, tmp_path):
    model.save(tmp_path / "model.bary")
    rows = P.X_target[:96].copy()
    rows[40, 1] = FATAL
    texts = [",".join(map(repr, row)) for row in rows.tolist()]
    lines = ["machine,a,b,c,d", *(f"m{i % 2},{text}" for i, text in enumerate(texts))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def arguments(folder, *more):
    outputs = ["-o", "out.ndjson", "--quarantine", "bad.ndjson", "--events", "events.ndjson"]
    outputs += ["--checkpoint", "kept"]
    places = [one if one.startswith("-") else str(folder / one) for one in outputs]
    return [
        "run",
        str(folder / "model.bary"),
        str(folder / "rows.csv"),
        "--batch-size",
        "16",
        *places,
        *more,
    ]


def run(folder, *more):
    found = CliRunner().invoke(main, arguments(folder, *more))
    assert found.exit_code == 0, found.output
    names = ("out", "bad", "events")
    texts = [(folder / f"{name}.ndjson").read_text().splitlines() for name in names]
    return found.stderr, *([json.loads(line) for line in text] for text in texts)


@pytest.mark.parametrize("more", [(), ("--key", "machine")])
def test_a_row_that_cannot_be_predicted_is_quarantined(files, fails, more):
    fails("predict")
    stderr, predictions, bad, events = run(files, *more)
    assert "96 rows = 95 predicted + 1 quarantined" in stderr
    assert [row["position"] for row in bad] == [41]
    assert "cannot predict this" in bad[0]["reason"]
    assert sorted(row["position"] for row in predictions) == [*range(1, 41), *range(42, 97)]
    assert [event["position"] for event in events if event["event"] == "quarantine"] == [41]
    learned = sum(event["rows"] for event in events if event["event"] == "batch")
    assert learned == 95


@pytest.mark.parametrize("more", [(), ("--key", "machine")])
def test_a_batch_that_cannot_be_learned_from_is_reported_and_left_out(files, fails, more):
    fails("learn")
    stderr, predictions, bad, events = run(files, *more)
    assert "96 rows = 96 predicted + 0 quarantined" in stderr
    assert "failed to learn from 16" in stderr
    assert len(predictions) == 96
    assert bad == []
    told = [event for event in events if event["event"] == "warning"]
    assert [event["rows"] for event in told] == [16]
    assert "cannot learn this" in told[0]["message"]
    assert sum(event["rows"] for event in events if event["event"] == "batch") == 80


@pytest.mark.parametrize("method", ["predict", "learn"])
def test_a_replay_sets_the_same_rows_aside(files, fails, method, monkeypatch):
    class Killed(BaseException):
        pass

    commit = Loop.commit

    def commit_first(self):
        if not self.store.is_new:
            raise Killed  # everything was done, and all of it is still in the journal
        commit(self)

    fails(method)
    monkeypatch.setattr(Loop, "commit", commit_first)
    with pytest.raises(Killed):
        CliRunner().invoke(main, arguments(files), catch_exceptions=False)
    before = [(files / f"{name}.ndjson").read_bytes() for name in ("out", "bad", "events")]
    monkeypatch.setattr(Loop, "commit", commit)
    run(files)
    assert [(files / f"{name}.ndjson").read_bytes() for name in ("out", "bad", "events")] == before
    assert any(b"cannot" in text for text in before)


def test_other_warnings_are_no_column_events(model, monkeypatch):
    follow = online_dadil.follow

    def noisy(*given, **more):
        warnings.warn("an unrelated library is old", UserWarning, stacklevel=1)
        return follow(*given, **more)

    monkeypatch.setattr(online_dadil, "follow", noisy)
    rows = P.X_target[:32].copy()
    rows[:, 2] = np.nan
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        events = SessionConfig(model, 32).begin().apply(some_rows(rows)).events
    columns = [event.message for event in events if event.kind == "column"]
    assert len(columns) == 1
    assert "'c'" in columns[0]
    assert [str(one.message) for one in caught] == ["an unrelated library is old"]
