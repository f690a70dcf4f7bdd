"""Labels of rows: they find their rows, survive kills, and never stop a stream."""

import json
from dataclasses import replace

import numpy as np
import pytest

from baryflow import OnlineDaDiL, codec
from baryflow.datasets import make_domains
from baryflow.runtime import Label, Outputs, Rows, Runner, SessionConfig, Store
from baryflow.runtime.session import SessionState
from tests.runtime import ends
from tests.runtime.ends import Lines

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
NAMES = np.array(["idle", "leak", "wear"])


def fit(y, **options):
    model = OnlineDaDiL(
        classifier="linear", validate=False, keep_sources=False, random_state=0, **options
    )
    return model.fit(P.X, y, P.domain)


NUMBERED, NAMED = fit(P.y), fit(NAMES[P.y])


def rows(start, stop):
    numbers = range(start, stop)
    times, offsets = [f"12:{i:03d}" for i in numbers], [f"0:{i}" for i in numbers]
    return Rows(P.X_target[start:stop], np.arange(start, stop) + 1, times, offsets)


def session(model=NAMED, n=40, batch_size=16, drift="off"):
    found = SessionConfig(model, batch_size, drift).begin()
    found.apply(rows(0, n))
    return found


def resumed(one):
    """Return a session as another process would resume it."""
    base = OnlineDaDiL.from_bytes(one.config.base.to_bytes())
    config = replace(one.config, base=base)
    return config.resume(codec.decode(SessionState, *codec.encode(one.state())))


def reasons(result):
    return [reason for _, reason in result.refused]


def test_a_label_finds_its_row_by_position_offset_time_or_brings_it():
    one = session()
    labels = [
        Label("leak", position=1),
        Label("leak", offset="0:1"),
        Label("leak", time="12:002"),
        Label("leak", values=P.X_target[3].tolist()),
    ]
    result = one.label(labels)
    assert (result.learned, result.pending, result.refused) == (4, 0, [])
    plain = NAMED.spawn()
    for start in (0, 16):
        plain.partial_fit(P.X_target[start : start + 16])
    plain.feedback(P.X_target[:4], ["leak"] * 4)
    np.testing.assert_array_equal(one.model.predict_proba(P.X_target), plain.predict_proba(P.X_target))
    (event,) = result.events
    assert (event.kind, event.position, event.details["learned"]) == ("label", 40, 4)


def test_labels_of_waiting_rows_are_held_until_they_are_learned():
    one = session(n=40)  # rows 33 to 40 wait
    result = one.label([Label("wear", position=35), Label("pump off", position=36)])
    assert (result.learned, result.pending, one.model.n_labels_) == (0, 2, 0)
    assert one.label([Label("leak", position=35)]).pending == 1  # the latest counts
    one = resumed(one)
    result = one.apply(rows(40, 48))
    assert (result.learned, result.learned + result.pending) == (2, 0)
    assert one.model.n_labels_ == 2
    assert one.model.classes_.tolist() == ["idle", "leak", "wear", "pump off"]
    assert [e.details["new_classes"] for e in result.events if e.kind == "label"] == [["pump off"]]
    assert one.apply(rows(48, 64)).events[-1].kind == "batch"  # nothing is held any more


def test_a_label_before_all_rows_waits_for_the_first_batch():
    one = SessionConfig(NAMED, 16).begin()
    assert one.label([Label("leak", values=[0.0] * 4)]).pending == 1
    assert one.apply(rows(0, 16)).learned == 1
    one = SessionConfig(NAMED, 16).begin()
    many = [Label("leak", values=[float(i)] * 4) for i in range(1200)]
    result = one.label(many)
    assert (result.pending, len(result.refused)) == (1000, 200)


@pytest.mark.parametrize(
    ("label", "word"),
    [
        (Label("leak", position=99), "row 99 is not among the last 40 rows"),
        (Label("leak", offset="9:9"), "9:9"),
        (Label("leak", time="noon"), "noon"),
        (Label("leak"), "neither"),
        (Label("leak", values=[1.0]), "expected 4 values, got 1"),
        (Label("leak", values=[1e200] * 4), "beyond"),
        (Label(3, position=1), "classes are names"),
        (Label("unknown", position=1), "novel rows"),
    ],
)
def test_a_label_that_cannot_be_used_is_reported_and_stops_nothing(label, word):
    one = session(fit(NAMES[P.y], unknown=0.99))
    result = one.label([Label("leak", position=1), label, Label("idle", position=2)])
    assert (result.learned, result.pending) == (2, 0)
    assert len(result.refused) == 1
    assert word in reasons(result)[0]
    assert sorted(event.kind for event in result.events) == ["label", "warning"]


def test_rows_of_the_same_time_need_a_position():
    one = SessionConfig(NAMED, 16).begin()
    one.apply(replace(rows(0, 20), times=["noon"] * 20))
    result = one.label([Label("leak", time="noon")])
    assert "20 rows" in reasons(result)[0]
    result = one.label([Label("leak", time="noon", values=[1.0] * 4)])
    assert [label.values for label in result.used] == [[1.0] * 4]


@pytest.mark.parametrize(
    ("text", "name"), [("1", 1), (" 2 ", 2), (1, 1), ("7", 7), ("7.0", 7), (2.0, 2)]
)
def test_text_becomes_a_number_if_classes_are_numbers(text, name):
    one = session(NUMBERED)
    assert one.label([Label(text, position=1)]).learned == 1
    assert one.model.classes_.tolist() == sorted({0, 1, 2, name})


def test_no_label_is_no_error_and_text_is_no_number():
    one = session(NUMBERED)
    nothing = [Label("", position=1), Label(" ", position=2), Label(float("nan"), position=3)]
    result = one.label(nothing)
    assert (result.learned, result.pending, result.refused) == (0, 0, [])
    assert "classes are numbers" in reasons(one.label([Label("leak", position=1)]))[0]


def test_rows_seen_before_the_stream_have_no_positions_in_it():
    before = NAMED.spawn().partial_fit(P.X_target[100:150])
    one = SessionConfig(before, 16).begin()
    assert "row 17 is not" in reasons(one.label([Label("leak", position=17)]))[0]
    one.apply(rows(0, 16))
    assert one.label([Label("leak", position=16)]).learned == 1
    asked = one.query(66)
    assert sorted(record["position"] for record in asked) == list(range(1, 16))
    for record in asked:
        np.testing.assert_array_equal(record["values"], P.X_target[record["position"] - 1])
        assert record["time"] == f"12:{record['position'] - 1:03d}"


@pytest.mark.parametrize("drift", ["off", "report", "restart"])
def test_a_session_saved_at_any_time_continues_bit_for_bit(drift):
    rng = np.random.default_rng(0)
    one, two = SessionConfig(NAMED, 16, drift).begin(), SessionConfig(NAMED, 16, drift).begin()
    for start in range(0, 160, 10):
        known = rng.integers(max(0, start - 30), start + 10, 3)
        names = [*NAMES[P.y_target[known[:2]]].tolist(), "new" if start > 60 else "leak"]
        labels = [
            Label(name, position=int(i) + 1, certify=bool(start % 20))
            for name, i in zip(names, known, strict=True)
        ]
        found = [
            [result.records + [event.record() for event in result.events] for result in results]
            for results in ((s.apply(rows(start, start + 10)), s.label(labels)) for s in (one, two))
        ]
        assert found[0] == found[1]
        two = resumed(two)
    assert one.model.certificate_.n > 0
    assert one.model.classes_.tolist()[-1] == "new"


def test_the_journal_keeps_labels(tmp_path):
    labels = [Label("a", 3, values=[1.0, float("nan")]), Label(2.5, time="x", key="b", certify=True)]
    batch = replace(next(labelled_batches()), labels=labels)
    assert repr(ends.journalled(tmp_path, batch).labels) == repr(labels)


class Labelled(ends.Rows):
    """Rows of two targets in turn, and labels of earlier rows; every third batch has labels only."""

    def read(self, n, _=None):
        turn = self.at // n
        batch = super().read(n)
        if batch is None:
            return None
        some = np.arange(max(0, self.at - 40), self.at, 7)
        names = [*NAMES[P.y_target[some]], "new"]
        labels = [
            Label(str(name), position=int(i) + 1, key="ab"[(i + 1) % 2], certify=turn % 2 == 0)
            for name, i in zip(names, [*some, some[-1]], strict=True)
        ]
        labels += [Label("leak", position=10**6, key="a"), Label("leak", position=1, key="c")]
        return replace(
            batch, keys=["ab"[i % 2] for i in batch.positions], labels=labels if turn % 3 else []
        )


def labelled_batches():
    source = Labelled(P.X_target[:96])
    while (batch := source.read(16)) is not None:
        yield batch


def follow(folder, stop=lambda: False):
    kept = Store(folder / "kept")
    sinks = {name: Lines(folder / name) for name in ("predictions", "events")}
    runner = Runner(
        SessionConfig(NAMED, 12),
        Labelled(P.X_target[:96]),
        Outputs(**sinks),
        read_size=16,
        store=kept,
        every=3,
    )
    try:
        return runner.run(stop), [codec.encode(runner.sessions.read(key).state())[0] for key in "ab"]
    finally:
        kept.close()
        for sink in sinks.values():
            sink.close()


def test_a_run_resumed_after_every_batch_has_learned_the_same_labels(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    whole, states = follow(tmp_path / "a")
    for _ in range(8):
        turns = iter([False])
        totals, again = follow(tmp_path / "b", lambda turns=turns: next(turns, True))
    assert totals == whole
    assert again == states
    for name in ("predictions", "events"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    events = [json.loads(line) for line in (tmp_path / "a" / "events").read_bytes().splitlines()]
    used = [e["learned"] + e["pending"] for e in events if e["event"] == "label"]
    assert 0 < totals.labels <= sum(used)
    assert totals.read == totals.predicted == 96
    refused = [e["reason"] for e in events if e["event"] == "warning"]
    assert set(refused) == {"no rows of 'c' have come"}  # others may still come


def test_labels_that_make_a_session_fail_are_refused_and_the_run_continues(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("poison")

    monkeypatch.setattr("baryflow.runtime.Session.label", fail)
    totals, _ = follow(tmp_path)
    assert (totals.predicted, totals.quarantined, totals.labels) == (96, 0, 0)
    assert b"poison" in (tmp_path / "events").read_bytes()
