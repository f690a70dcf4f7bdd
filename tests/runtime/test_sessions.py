"""Many targets in one stream: each is followed independently, in memory or not, killed or not."""

import errno
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.features import SignalFeatures, SignalModel, windows
from baryflow.runtime import Loop, Outputs, Runner, SessionConfig, Sessions, Store
from baryflow.runtime import Rows as Some
from baryflow.streams import Batch
from tests.runtime.ends import Lines, Rows

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
MODEL = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
    P.X, P.y, P.domain
)
N = 120


def some_rows(values, first=1):
    n = len(values)
    return Some(values, np.arange(first, first + n), ["" for _ in range(n)], ["" for _ in range(n)])


class Mixed(Rows):
    """The same rows for every target, in turn."""

    def __init__(self, keys, n=N):
        super().__init__(np.repeat(P.X_target[:n], len(keys), axis=0))
        self.keys = keys

    def read(self, n, _=None):
        batch = super().read(n)
        if batch is None:
            return None
        return replace(batch, keys=[self.keys[(p - 1) % len(self.keys)] for p in batch.positions])


def run(folder, source, *, config=None, stop=None, **how):
    sinks = {kind: Lines(folder / kind) for kind in ("predictions", "events")}
    kept = Store(folder / "checkpoint")
    runner = Runner(
        config or SessionConfig(MODEL, 16, "report"),
        source,
        Outputs(**sinks),
        store=kept,
        every=3,
        **how,
    )
    try:
        totals = runner.run(*([] if stop is None else [stop]))
    finally:
        kept.close()
        for sink in sinks.values():
            sink.close()
    return runner, totals, {kind: (folder / kind).read_bytes() for kind in sinks}


def records(raw):
    return [json.loads(line) for line in raw.splitlines()]


@pytest.fixture(scope="module")
def alone():
    session = SessionConfig(MODEL, 16, "report").begin()
    return session.apply(some_rows(P.X_target[:N])).records


def predictions(found):
    return [{name: r[name] for name in ("label", "probability", "novelty", "rows_seen")} for r in found]


def test_each_target_is_followed_independently(tmp_path, alone):
    keys = ["pump 1", "pump 2", "ventilator/ä"]
    runner, totals, files = run(tmp_path, Mixed(keys), read_size=50)
    found = records(files["predictions"])
    assert [r["position"] for r in found] == list(range(1, 3 * N + 1))
    for key in keys:
        assert predictions(r for r in found if r["key"] == key) == predictions(alone)
    assert list(runner.sessions) == sorted(keys)
    assert totals.predicted == totals.read == 3 * N
    assert {e.get("key") for e in records(files["events"]) if e["event"] == "batch"} == set(keys)


def test_sessions_written_to_disk_continue_bit_for_bit(tmp_path):
    keys = [f"m{i}" for i in range(7)]
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    whole = run(tmp_path / "a", Mixed(keys, 40), read_size=30)[2]
    runner, _, few = run(tmp_path / "b", Mixed(keys, 40), read_size=30, in_memory=2)
    assert few == whole
    assert len(runner.sessions.in_memory) <= 2


def test_stopped_anywhere_and_resumed_the_outputs_are_the_same(tmp_path):
    keys = [f"m{i}" for i in range(4)]
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    whole = run(tmp_path / "a", Mixed(keys, 60), read_size=17)[2]
    for _ in range(40):
        turns = iter([False] * 2)
        _, totals, files = run(
            tmp_path / "b",
            Mixed(keys, 60),
            read_size=17,
            in_memory=3,
            stop=lambda t=turns: next(t, True),
        )
        if totals.read == 240 and files == whole:
            break
    assert files == whole


def test_a_checkpoint_resumes_with_its_own_model(tmp_path):
    turns = iter([False] * 3)
    run(tmp_path, Rows(P.X_target[:N]), stop=lambda: next(turns, True))
    other = OnlineDaDiL(classifier="linear", validate=False, random_state=1).fit(
        P.X[:120], P.y[:120], P.domain[:120]
    )
    said = []
    runner, *_ = run(
        tmp_path, Rows(P.X_target[:N]), config=SessionConfig(other, 16, "report"), listen=said.append
    )
    assert any("another model" in event.message for event in said)
    assert runner.config.model.to_bytes() == MODEL.to_bytes()


@given(st.lists(st.integers(1, 40), max_size=12))
@settings(max_examples=8, deadline=None)
def test_how_rows_are_delivered_changes_nothing(alone, sizes):
    session, found, at = SessionConfig(MODEL, 16, "report").begin(), [], 0
    for size in [*sizes, N]:
        rows = some_rows(P.X_target[at : min(at + size, N)], at + 1)
        at += len(rows)
        found += session.apply(rows).records
    assert found == alone


def test_raw_rows_become_windows_and_a_run_resumes_within_a_window(tmp_path):
    rng = np.random.default_rng(0)
    raw = np.cumsum(rng.normal(size=(400, 2)), axis=0)
    cut = windows(raw, 20, 5)
    y = np.tile(["a", "b"], len(cut))[: len(cut)]
    features = SignalFeatures(max_features=6)
    X = features.fit_transform(cut, y)
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(X, y, np.ones(len(y), dtype=int))
    pair = SignalModel(features, model, step=5)
    expected = SessionConfig(model, 8).begin().apply(some_rows(features.transform(cut))).records
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    _, totals, whole = run(tmp_path / "a", Rows(raw), config=SessionConfig(pair, 8), read_size=33)
    assert predictions(records(whole["predictions"])) == predictions(expected)
    assert [r["position"] for r in records(whole["predictions"])] == list(range(20, 401, 5))
    assert (totals.read, totals.used, totals.predicted) == (400, 400, len(cut))
    for turns in (iter([False] * 4), iter([False] * 3), None):
        stop = None if turns is None else lambda t=turns: next(t, True)
        files = run(tmp_path / "b", Rows(raw), config=SessionConfig(pair, 8), read_size=33, stop=stop)[2]
    assert files == whole


def sessions(folder=None, most=None):
    return Sessions(SessionConfig(MODEL, 16), Store(folder), most)


def apply(found, key, n):
    found.seq += 1
    return found.change(key).apply(some_rows(P.X_target[:n]))


def looped(found):
    """Return a loop that commits sessions, and nothing else."""
    return Loop(SimpleNamespace(owner="test", state=dict), found._store, sessions=found)


@pytest.mark.parametrize("is_temporary", [True, False])
def test_sessions_that_do_not_fit_into_memory_are_committed(tmp_path, is_temporary):
    found = sessions(None if is_temporary else tmp_path, most=1)
    loop = looped(found)
    for key in "abab":
        loop.make_room(key)
        apply(found, key, 20)
    assert len(found) == 2
    assert list(found.in_memory) == ["b"]
    assert found.copy("a").target.mass == 32
    loop.make_room("a")
    assert found.read("a").model.n_samples_seen_ == 32
    assert list(found.in_memory) == ["a"]


def test_the_session_used_least_recently_leaves_memory_first():
    found = sessions(most=3)
    loop = looped(found)
    for key in "abca":
        apply(found, key, 5)
    assert found.excess() == []
    loop.make_room("d")
    apply(found, "d", 5)
    assert list(found.in_memory) == ["c", "a", "d"]
    assert found.n_changed == 3


def test_a_forgotten_target_gets_a_new_session():
    found = sessions()
    apply(found, "a", 40)
    found.forget("a")
    assert ("a" in found, list(found), len(found)) == (False, [], 0)
    assert found.change("a").model.n_samples_seen_ == 0
    assert "a" in found


def test_only_what_is_committed_survives(tmp_path):
    found = sessions(tmp_path, most=1)
    for key in "abc":
        apply(found, key, 16)
    keys = found.oldest(2)
    assert (keys, found.first(), found.first(without=keys)) == (["a", "b"], 1, 3)
    with found._store.transaction():
        found.write(keys)
    found.end(keys)
    apply(found, "a", 16)
    found._store.close()
    again = sessions(tmp_path)
    assert list(again) == ["a", "b"]
    assert again.read("a").model.n_samples_seen_ == 16


def test_an_empty_batch_that_holds_something_is_kept(tmp_path):
    empty = np.empty((0, 4))
    kept = Store(tmp_path)
    batch = Batch(empty, np.empty(0, dtype=np.intp), [], [], [], {"at": 7}, held=True)
    runner = Runner(SessionConfig(MODEL, 16), Rows(P.X_target), store=kept)
    assert runner.recover() is None
    runner.handle(replace(batch, held=False, cursor={"at": 3}))
    runner.handle(batch)
    kept.close()
    again = Store(tmp_path)
    assert Runner(SessionConfig(MODEL, 16), Rows(P.X_target), store=again).recover() == {"at": 7}
    again.close()


def test_a_batch_in_the_journal_is_applied_even_if_nothing_can_be_committed(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    found = sessions(most=1)
    loop = looped(found)
    apply(found, "a", 20)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "write_session", full)
        with pytest.raises(OSError, match="No space"):
            loop.make_room("b")
        assert list(found.in_memory) == ["a"]  # nothing has changed
        apply(found, "b", 5)
        assert len(found.in_memory) == 2
    loop.make_room()
    assert len(found.read("b").waiting) == 5
    assert list(found.in_memory) == ["b"]
    assert found.read("a").model.n_samples_seen_ == 16
