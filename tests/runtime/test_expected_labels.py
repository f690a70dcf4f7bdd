"""A stream of rows with a stream of labels: the same results whatever comes first, and after kills."""

import contextlib
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.features import SignalFeatures, SignalModel, windows
from baryflow.runtime import Label, Outputs, Rows, Runner, SessionConfig, Store
from baryflow.runtime import runner as running
from baryflow.runtime.runner import ExpectedLabels, from_plain, to_plain
from baryflow.streams import Batch
from baryflow.streams.labels import LabelledSource
from tests.runtime.ends import Lines

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=30, random_state=0)
NAMES = np.array(["idle", "leak", "wear"])
MODEL = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
MODEL.fit(P.X, NAMES[P.y], P.domain)
N = 90


def when(i):
    return f"2024-01-01T{i // 60:02d}:{i % 60:02d}:00"


class Stream:
    """Items of a list, as many at a time as are asked for."""

    def __init__(self, items, keys=None):
        self.items, self.keys, self.at = items, keys, 0
        self.columns = self.wanted = ["a", "b", "c", "d"]

    def read(self, n, _=None):
        if self.at >= len(self.items):
            return None
        some = range(self.at, min(self.at + n, len(self.items)))
        self.at = some.stop
        return self.batch(some)

    def seek(self, cursor):
        self.at = cursor["at"]

    def acknowledge(self, cursor):
        pass

    def close(self):
        pass


class RowStream(Stream):
    def batch(self, some):
        keys = [self.keys[i] if self.keys else "" for i in some]
        times, offsets = [when(i) for i in some], [f"0:{i + 1}" for i in some]
        positions = np.array(some) + 1
        return Batch(self.items[some], positions, times, keys, [], {"at": self.at}, offsets)


class LabelStream(Stream):
    def batch(self, some):
        empty, labels = np.empty(0, dtype=np.intp), [self.items[i] for i in some]
        return Batch(np.empty((0, 0)), empty, [], [], [], {"at": self.at}, labels=labels, held=True)


def run(folder, labels, *, read_size=16, keys=None, store=None, n=N, stop=lambda: False, **how):
    folder.mkdir(exist_ok=True)
    rows = RowStream(P.X_target[:n], keys)
    source = LabelledSource(rows, LabelStream(labels))
    sinks = Outputs(Lines(folder / "predictions"), Lines(folder / "events"))
    runner = Runner(
        SessionConfig(MODEL, 16), source, sinks, read_size=read_size, store=store,
        keyed=keys is not None, **how,
    )  # fmt: skip
    try:
        runner.run(stop)
    finally:
        for sink in sinks.named().values():
            sink.close()
        runner.close()
        if store is not None:
            store.close()
    return runner


def predictions(folder):
    return (folder / "predictions").read_text()


def events(folder, kind):
    found = [json.loads(line) for line in (folder / "events").read_text().splitlines()]
    return [event for event in found if event["event"] == kind]


def label(i, **how):
    how = {"position": i + 1} | how
    return Label(str(NAMES[P.y_target[i]]), **how)


PICKED = [5, 3, 40, 15, 16, 77, 89]


def test_labels_are_learned_right_after_the_batch_of_their_row(tmp_path):
    runner = run(tmp_path, [label(i) for i in PICKED])
    alone = MODEL.spawn()
    for start in range(0, N, 16):
        batch = np.arange(start, min(start + 16, N))
        alone.partial_fit(P.X_target[batch])
        known = [i for i in sorted(PICKED) if i in batch]
        if known:
            alone.feedback(P.X_target[known], NAMES[P.y_target[known]])
    ours = runner.session.model
    np.testing.assert_array_equal(ours.predict_proba(P.X_target), alone.predict_proba(P.X_target))
    assert (ours.n_labels_, runner.totals.labels) == (7, 7)
    assert not events(tmp_path, "warning")


@pytest.fixture(scope="module")
def usual_order(tmp_path_factory):
    folder = tmp_path_factory.mktemp("usual")
    run(folder, [label(i) for i in PICKED])
    return predictions(folder)


@settings(max_examples=5)
@given(st.integers(1, 100), st.permutations(PICKED), st.sampled_from(["position", "time", "offset"]))
def test_neither_batches_nor_the_order_of_labels_nor_how_rows_are_named_matter(
    tmp_path_factory, usual_order, size, order, kind
):
    folder = tmp_path_factory.mktemp("any")
    names = {
        "position": lambda _: {},
        "time": lambda i: {"position": None, "time": when(i).replace("T", " ")},
        "offset": lambda i: {"position": None, "offset": f"0:{i + 1}"},
    }
    run(folder / "other", [label(i, **names[kind](i)) for i in order], read_size=size)
    assert predictions(folder / "other") == usual_order


def test_labels_change_predictions_and_the_certificate_counts_only_random_ones(tmp_path):
    plain = run(tmp_path / "plain", [])
    chosen = run(tmp_path / "chosen", [label(i) for i in range(30)])
    random = run(tmp_path / "random", [label(i, certify=True) for i in range(30)])
    assert predictions(tmp_path / "plain") != predictions(tmp_path / "chosen")
    found = [one.session.model.certificate_.n for one in (plain, chosen, random)]
    assert found == [0, 0, 30]


def test_a_label_from_one_time_to_another(tmp_path):
    span = Label("scale", time=when(20), until=when(29))
    runner = run(tmp_path, [span, label(25)])
    model = runner.session.model
    assert model.n_labels_ == 10
    labelled = model.state_.labelled  # the label of a single row counts more
    assert (labelled.codes == 3).sum() == 9
    assert model.classes_.tolist() == ["idle", "leak", "wear", "scale"]
    assert [e["learned"] for e in events(tmp_path, "label")] == [10]
    assert not events(tmp_path, "warning")
    # Late, it finds the rows that are remembered, and those that are to come.
    session = runner.session
    result = session.label([Label("leak", time=when(80), until=when(200))], expecting=True)
    assert (result.learned, len(result.expected)) == (10, 1)
    result = session.label([Label("leak", time=when(80), until=when(85))], expecting=True)
    assert (result.learned, result.expected) == (6, [])


def test_labels_that_find_no_row_are_reported(tmp_path):
    labels = [
        Label("leak", position=500),
        Label("leak", time="2025-01-01"),
        Label("leak", offset="9:9"),
        Label("leak"),
        Label("leak", position=0),
    ]
    heard = []
    runner = run(tmp_path, labels, listen=heard.append)
    messages = " | ".join(event.message for event in heard if event.kind == "warning")
    assert "3 labels without a row: row 500, 2025-01-01, 9:9" in messages
    assert "no rows have come" in messages
    assert runner.totals.labels == 0
    # More rows may come in a later run.
    assert len(list(runner._expected)) == 3


def test_labels_of_rows_that_cannot_be_used_are_reported(tmp_path):
    class Gaps(RowStream):
        def batch(self, some):
            batch = super().batch(some)
            good = batch.positions != 20
            texts = {
                name: [text for text, is_good in zip(getattr(batch, name), good, strict=True) if is_good]
                for name in ("times", "keys", "offsets")
            }
            return Batch(
                batch.rows[good], batch.positions[good], rejected=[], cursor=batch.cursor, **texts
            )

    source = LabelledSource(Gaps(P.X_target[:N]), LabelStream([label(19), label(20)]))
    heard = []
    runner = Runner(SessionConfig(MODEL, 16), source, listen=heard.append)
    runner.run()
    assert [e.message for e in heard if e.kind == "warning"] == [
        f"label {str(NAMES[P.y_target[19]])!r} is not used: row 20 was not predicted"
    ]
    assert runner.totals.labels == 1


def test_each_target_has_its_own_labels(tmp_path):
    keys = ["north" if i % 2 else "south" for i in range(N)]
    labels = [label(i, key=keys[i]) for i in (4, 5, 6)]
    labels += [Label("leak", position=9), Label("leak", position=9, key="west")]
    runner = run(tmp_path, labels, keys=keys)
    assert runner.sessions.read("south").model.n_labels_ == 2
    assert runner.sessions.read("north").model.n_labels_ == 1
    messages = [event["message"] for event in events(tmp_path, "warning")]
    assert any("it has no key" in message for message in messages)
    assert any("row 9 was not predicted" in message for message in messages)


def test_of_raw_signals_windows_have_labels(tmp_path):
    raw = np.cumsum(np.random.default_rng(0).normal(size=(400, 4)), axis=0)
    cut = windows(raw, 20, 5)
    y = np.tile(["a", "b"], len(cut))[: len(cut)]
    features = SignalFeatures(max_features=6)
    X = features.fit_transform(cut, y)
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(X, y, np.ones(len(y), dtype=int))
    # Windows end at rows 20, 25, 30 …
    labels = [
        Label("a", position=25),
        Label("b", position=26),
        Label("c", time=when(99), until=when(109)),
    ]
    heard = []
    runner = Runner(
        SessionConfig(SignalModel(features, model, step=5), 8),
        LabelledSource(RowStream(raw), LabelStream(labels)),
        listen=heard.append,
    )
    runner.run()
    assert [e.message for e in heard if e.kind == "warning"] == [
        "label 'b' is not used: row 26 was not predicted"
    ]
    assert runner.totals.labels == 4
    assert runner.session.model.classes_.tolist() == ["a", "b", "c"]


class Killed(BaseException):
    """As sudden as SIGKILL, as far as one process can."""


@pytest.mark.parametrize("after", [1, 2, 5, 9])
def test_killed_after_any_batch_it_resumes_with_the_same_result(tmp_path, after):
    labels = [label(i, certify=i % 3 == 0) for i in (*PICKED, 30, 31, 60)]
    labels += [Label("scale", time=when(50), until=when(55)), Label("leak", position=400)]
    how = {"read_size": 10, "every": 3, "in_memory": 1}
    undisturbed = run(tmp_path / "one", labels, store=Store(tmp_path / "a"), **how)
    left = [after]

    def stop():
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return False

    for _ in range(2):
        left[0] = after
        with contextlib.suppress(Killed):  # the second time it may reach the end
            run(tmp_path / "other", labels, store=Store(tmp_path / "b"), stop=stop, **how)
    killed = run(tmp_path / "other", labels, store=Store(tmp_path / "b"), **how)
    assert predictions(tmp_path / "one") == predictions(tmp_path / "other")
    assert (tmp_path / "one" / "events").read_text() == (tmp_path / "other" / "events").read_text()
    assert killed.session.model.to_bytes() == undisturbed.session.model.to_bytes()
    assert killed.totals == undisturbed.totals


@pytest.fixture
def only_five(monkeypatch):
    """At most five labels wait."""
    monkeypatch.setattr(running, "MOST", 5)


@pytest.mark.usefixtures("only_five")
def test_labels_that_wait_are_bounded(tmp_path):
    # The first are of a time before all rows: they make room when the first rows come.
    early = [Label("leak", time=f"2023-01-{day:02d}") for day in range(1, 21)]
    runner = run(tmp_path, [*early, *(label(i) for i in range(4, 16))], read_size=2)
    assert runner.totals.labels == 12
    messages = [event["message"] for event in events(tmp_path, "warning")]
    # Those that come later are known to be of the past.
    assert sum("no row has the time" in message for message in messages) == 5
    assert sum("is not among the last" in message for message in messages) == 15
    assert any("wait for rows" in message for message in messages)


NEVER = {
    "offset": lambda i: {"offset": f"9:{i}"},
    "time as text": lambda i: {"time": f"never {i}"},
    "position": lambda i: {"position": 10**9 + i},
    "time": lambda i: {"time": f"2099-01-01T00:{i:02d}:00"},
    "another target": lambda i: {"key": "nobody", "offset": f"0:{i}"},
}


@pytest.mark.usefixtures("only_five")
@pytest.mark.parametrize("kind", NEVER)
@pytest.mark.parametrize("is_ordered", [True, False])
def test_labels_of_rows_that_never_come_do_not_block_others(tmp_path, kind, is_ordered):
    never = [Label("leak", **NEVER[kind](i)) for i in range(8)]
    if not is_ordered:
        never.reverse()
    keys = ["me"] * N if kind == "another target" else None
    by_time = {"position": None} if kind == "time" else {}
    good = [label(i, key="me" if keys else "", time=when(i), **by_time) for i in (20, 40, 41, 60)]
    runner = run(tmp_path, [*never, *good], read_size=4, keys=keys)
    assert runner.totals.labels == 4
    refused = sum(event["labels"] for event in events(tmp_path, "warning") if "labels" in event)
    assert refused + len(list(runner._expected)) == 8
    assert refused >= 3


@pytest.mark.usefixtures("only_five")
def test_more_labels_than_may_wait_are_all_learned_in_the_order_of_rows(tmp_path):
    labels = [label(i) for i in range(60)]
    runner = run(tmp_path, labels, read_size=4)
    assert runner.totals.labels == 60
    assert not any("not used" in event["message"] for event in events(tmp_path, "warning"))


@pytest.mark.usefixtures("only_five")
def test_at_the_end_no_more_labels_are_kept_than_may_wait(tmp_path):
    labels = [Label("leak", offset=f"9:{i}") for i in range(20)]
    labels += [Label("leak", position=1000 + i) for i in range(20)]
    runner = run(tmp_path, labels, store=Store(tmp_path / "state"))
    left = [one.position for one in runner._expected]
    assert left == [1000, 1001, 1002, 1003, 1004][: len(left)]
    assert len(left) >= 4


@pytest.mark.usefixtures("only_five")
def test_which_labels_are_dropped_survives_a_kill(tmp_path):
    labels = [Label("leak", offset=f"9:{i}", key="ab"[i % 2]) for i in range(12)]
    labels += [Label("leak", position=10**9 + i, key="a") for i in range(12)]
    keys, how = ["ab"[i % 2] for i in range(N)], {"read_size": 2, "every": 3}
    run(tmp_path / "one", labels, keys=keys, store=Store(tmp_path / "a"), **how)
    calls = iter(range(1000))
    for _ in range(4):
        stop_at = next(calls) + 9
        with contextlib.suppress(Killed):
            run(
                tmp_path / "other", labels, keys=keys, store=Store(tmp_path / "b"),
                stop=lambda limit=stop_at: kill_at(next(calls), limit), **how,
            )  # fmt: skip
    run(tmp_path / "other", labels, keys=keys, store=Store(tmp_path / "b"), **how)
    assert (tmp_path / "one" / "events").read_text() == (tmp_path / "other" / "events").read_text()


def kill_at(call, limit):
    if call >= limit:
        raise Killed
    return False


def test_of_two_labels_that_wait_for_a_row_the_latest_counts():
    labels = ExpectedLabels([Label("a", position=3), Label("b", position=3), Label("c", time="noon")])
    assert len(labels) == 2
    rows = Rows(np.zeros((2, 1)), np.array([3, 4]), ["noon", "noon"], ["", ""])
    found = labels.remove_matched("", rows)
    assert {position: one.label for position, one in found.items()} == {3: "b"}
    assert len(labels) == 0


def test_an_expected_label_with_a_missing_value_is_saved(tmp_path):
    values = [math.nan, *P.X_target[79, 1:].tolist()]
    labels = [Label("leak", position=80, values=values), Label("leak", position=500, values=values)]
    run(tmp_path / "out", labels, store=Store(tmp_path / "state"))
    again = from_plain(to_plain(labels[0]))
    assert math.isnan(again.values[0])
    assert again.values[1:] == values[1:]
