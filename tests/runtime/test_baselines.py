"""Baselines travel like labels: they find their rows, survive kills, and change predictions."""

from dataclasses import replace

import numpy as np
import pytest

from baryflow import OnlineDaDiL, codec
from baryflow.alarms import AlarmConfig
from baryflow.datasets import make_domains
from baryflow.runtime import Label, Outputs, Rows, Runner, SessionConfig, Store
from baryflow.runtime.session import FirstRows, SessionState
from tests.runtime import ends

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
NAMES = np.array(["idle", "leak", "wear"])
MODEL = OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(P.X, NAMES[P.y], P.domain)
IDLE = np.flatnonzero(P.y_target == 0)
#: A target that begins with rows of one class.
ORDER = np.concatenate([IDLE[:30], np.setdiff1d(np.arange(len(P.y_target)), IDLE[:30])])
X = P.X_target[ORDER]


def rows(start, stop):
    numbers = range(start, stop)
    times = [f"2026-11-18T{i // 60:02d}:{i % 60:02d}" for i in numbers]
    return Rows(X[start:stop], np.arange(start, stop) + 1, times, [""] * len(times))


def state_of(session):
    return codec.encode(session.state())


def same(one, other):
    (a, arrays), (b, others) = state_of(one), state_of(other)
    assert a == b
    assert all(np.array_equal(arrays[name], others[name], equal_nan=True) for name in arrays)


def test_a_baseline_is_what_the_model_would_be_given():
    session = SessionConfig(MODEL, 16).begin()
    session.apply(rows(0, 64))
    result = session.label([Label("idle", position=n, baseline=True) for n in range(1, 31)])
    assert (result.learned, result.pending, result.refused) == (30, 0, [])
    assert result.events[-1].message == "30 rows of a baseline learned"
    model = SessionConfig(MODEL, 16).begin()
    model.apply(rows(0, 64))
    model.model.set_baseline(X[:30], "idle")
    expected = model.model.predict_proba(X[64:])
    np.testing.assert_array_equal(session.model.predict_proba(X[64:]), expected)
    assert "baseline" in {one.name for one in session.model.explanations_}
    assert session.model.n_labels_ == 0


def test_a_span_of_time_and_rows_themselves():
    session = SessionConfig(MODEL, 16).begin()
    session.apply(rows(0, 48))
    span = Label("idle", time="2026-11-18T00:00", until="2026-11-18T00:29", baseline=True)
    assert session.label([span]).learned == 30
    given = Label("idle", values=X[IDLE[40]].tolist(), baseline=True)
    assert session.label([given]).learned == 1


def test_a_row_counts_once_however_often_it_is_given():
    session = SessionConfig(MODEL, 16).begin()
    session.apply(rows(0, 48))
    positions = [Label("idle", position=n, baseline=True) for n in range(1, 31)]
    assert session.label(positions).learned == 30
    values = [Label("idle", values=X[n].tolist(), baseline=True) for n in range(20, 30)]
    result = session.label(values)
    assert (result.learned, result.refused) == (0, [])
    assert "0 rows of a baseline" in result.events[-1].message
    (baseline,) = session.model.state_.baselines
    assert baseline.n_rows == 30


def test_a_class_that_no_source_has_is_refused():
    session = SessionConfig(MODEL, 16).begin()
    session.apply(rows(0, 32))
    result = session.label([Label("odd", position=1, baseline=True)])
    assert "no source has" in result.refused[0][1]
    assert session.model.classes_.tolist() == NAMES.tolist()


@pytest.mark.parametrize(
    "first", [FirstRows("idle", 30), FirstRows("idle", until="2026-11-18T00:29")], ids=["rows", "time"]
)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_first_rows_are_a_baseline_however_they_are_delivered(first, size):
    config = SessionConfig(MODEL, 16, baseline=first)
    whole, pieces = config.begin(), config.begin()
    whole.apply(rows(0, 100))
    for start in range(0, 100, size):
        pieces.apply(rows(start, min(100, start + size)))
        pieces = config.resume(codec.decode(SessionState, *state_of(pieces)))
    same(whole, pieces)
    (baseline,) = whole.model.state_.baselines
    assert baseline.n_rows == 30


def test_a_baseline_before_the_first_batch_is_learned_acts_at_once():
    config = SessionConfig(MODEL, 64)
    waiting, given = config.begin(), config.begin()
    waiting.apply(rows(0, 30))
    result = waiting.label([Label("idle", position=n, baseline=True) for n in range(1, 31)])
    assert (result.learned, result.pending) == (30, 0)
    given.label([Label("idle", values=row.tolist(), baseline=True) for row in X[:30]])
    expected = given.apply(Rows(X[30:40], np.arange(1, 11), [""] * 10, [""] * 10)).records
    found = waiting.apply(rows(30, 40)).records
    assert [one["probability"] for one in found] == [one["probability"] for one in expected]
    plain = MODEL.predict_proba(X[30:40]).max(axis=1)
    assert not np.allclose([one["probability"] for one in found], plain, atol=1e-3)


@pytest.mark.parametrize("first", [None, FirstRows("idle", 30)])
def test_rows_known_to_be_of_a_class_raise_only_its_alarm(first):
    wrong = MODEL.predict(X[:30])  # as if all of them were called something else
    shifted = X + 4.0 * (P.X_target[P.y_target == 1].mean(axis=0) - X[IDLE].mean(axis=0))
    assert set(MODEL.predict(shifted[:30])) - {"idle"}, wrong
    alarms = AlarmConfig.from_table({"normal": ["idle"], "on-delay": 2, "probability": 0.4})
    session = SessionConfig(MODEL, 16, alarms=alarms, baseline=first).begin()
    result = session.apply(Rows(shifted[:30], np.arange(1, 31), [""] * 30, [""] * 30))
    raised = [one for one in result.events if one.kind == "alarm"]
    assert bool(raised) == (first is None)
    assert {one["label"] for one in result.records} != {"idle"}


def test_a_label_of_one_of_the_first_rows_counts_more():
    config = SessionConfig(MODEL, 16, baseline=FirstRows("idle", 16))
    session = config.begin()
    session.apply(rows(0, 16), {3: Label("leak", position=3)})
    (baseline,) = session.model.state_.baselines
    assert (baseline.n_rows, session.model.n_labels_) == (15, 1)


def test_a_journal_keeps_baselines(tmp_path):
    labels = [Label("idle", position=1, baseline=True)]
    found = ends.journalled(tmp_path, replace(ends.Rows(X[:4]).read(4), labels=labels))
    assert found.labels[0].baseline


def test_a_run_that_is_resumed_equals_one_that_was_not(tmp_path):
    config = SessionConfig(MODEL, 16, baseline=FirstRows("idle", 30))
    whole = Runner(config, ends.Rows(X[:96]), Outputs())
    whole.run()
    for n in (24, 96):  # the first run ends within the baseline
        checkpoint = Store(tmp_path / "state")
        calls = iter(range(10**6))
        runner = Runner(config, ends.Rows(X[:96]), Outputs(), read_size=8, store=checkpoint)
        runner.run(lambda n=n, calls=calls: next(calls) >= n // 8 and n < 96)
        checkpoint.close()
    same(whole.session, runner.session)
