"""The durable loop: a batch that cannot be applied is quarantined, and a checkpoint has one owner."""

import contextlib
import json
import random
from dataclasses import replace

import pytest

from baryflow import OnlineDaDiL
from baryflow.client import forward
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.runtime import Outputs, Runner, Session, SessionConfig, Store
from tests.runtime.ends import Lines, Rows, full_disk

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
MODEL = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
    P.X, P.y, P.domain
)


class Answering:
    """A service that accepts everything, until it meets row 30."""

    def send(self, name, rows, **_):
        if (rows == P.X_target[29]).all(axis=1).any():
            raise RuntimeError("poison")
        return {"target": name, "rows": len(rows), "repeated": False}


@pytest.fixture
def poisoned(monkeypatch):
    """Row 30 makes a session fail in a way that it does not handle itself."""
    apply = Session.apply

    def fail(self, rows, labels=None):
        if 30 in rows.positions:
            raise RuntimeError("poison")
        return apply(self, rows, labels)

    monkeypatch.setattr(Session, "apply", fail)


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def follow(folder, stop=lambda: False):
    kept = Store(folder / "kept")
    sinks = {name: Lines(folder / name) for name in ("predictions", "events", "quarantine")}
    runner = Runner(
        SessionConfig(MODEL, 16), Rows(P.X_target[:80]), Outputs(**sinks), store=kept, every=3
    )
    try:
        return runner.run(stop)
    finally:
        kept.close()
        for sink in sinks.values():
            sink.close()


def send(folder):
    kept, bad = Store(folder / "kept"), Lines(folder / "quarantine")
    try:
        return forward(
            Rows(P.X_target[:80]),
            Answering(),
            "pump",
            store=kept,
            read_size=16,
            quarantine=bad,
        )
    finally:
        kept.close()
        bad.close()


@pytest.mark.usefixtures("poisoned")
def test_a_batch_that_cannot_be_applied_is_quarantined_and_the_run_continues(tmp_path):
    totals = follow(tmp_path)
    assert (totals.read, totals.predicted, totals.quarantined) == (80, 64, 16)
    bad = lines(tmp_path / "quarantine")
    assert [row["position"] for row in bad] == list(range(17, 33))
    assert all("poison" in row["reason"] for row in bad)
    events = lines(tmp_path / "events")
    assert [e["position"] for e in events if e["event"] == "quarantine"] == list(range(17, 33))


@pytest.mark.usefixtures("poisoned")
def test_resumed_after_every_batch_it_writes_the_same(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    whole = follow(tmp_path / "a")
    for _ in range(8):
        turns = iter([False])
        totals = follow(tmp_path / "b", lambda turns=turns: next(turns, True))
    assert totals == whole
    for name in ("predictions", "events", "quarantine"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.usefixtures("poisoned")
def test_a_run_that_is_repeated_after_each_of_50_full_disks_writes_the_same(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    whole, rng, n_full = follow(tmp_path / "a"), random.Random(0), 0
    follow(tmp_path / "b", lambda: True)
    store = tmp_path / "b" / "kept" / "store.db"
    for _ in range(50):
        with contextlib.suppress(OSError), full_disk(rng.randrange(store.stat().st_size + 20_000)):
            turns = iter([False])
            follow(tmp_path / "b", lambda turns=turns: next(turns, True))
            continue
        n_full += 1
    assert n_full > 10
    assert follow(tmp_path / "b") == whole
    for name in ("predictions", "events", "quarantine"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_rows_that_make_the_client_fail_are_quarantined_by_forward(tmp_path):
    found = send(tmp_path)
    assert (found.batches, found.rows, found.rejected) == (5, 64, 16)
    assert [row["position"] for row in lines(tmp_path / "quarantine")] == list(range(17, 33))


def test_a_checkpoint_can_only_be_resumed_by_the_command_that_made_it(tmp_path):
    follow(tmp_path)
    with pytest.raises(InvalidInputError, match=r"'baryflow run'.*'baryflow forward'"):
        send(tmp_path)
    assert follow(tmp_path).read == 80


@pytest.mark.parametrize("replayed", [False, True])
def test_an_output_that_fails_ends_the_run_and_counts_no_batch_twice(tmp_path, monkeypatch, replayed):
    """The rows are not at fault: they must not be quarantined, least of all after they were counted."""
    write = Lines.write

    def fail(self, records):
        if any(one.get("position") == 30 and "label" in one for one in records):
            raise TypeError("a label that JSON cannot hold")
        write(self, records)

    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    whole = follow(tmp_path / "a")
    for _ in range(1 + replayed):
        with monkeypatch.context() as patch:
            patch.setattr(Lines, "write", fail)
            with pytest.raises(TypeError, match="cannot hold"):
                follow(tmp_path / "b")
    assert follow(tmp_path / "b") == whole
    for name in ("predictions", "events", "quarantine"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_listener_that_fails_does_not_quarantine_rows_that_were_sent(tmp_path):
    def listen(batch, _):
        if 30 in batch.positions:
            raise RuntimeError("the listener is at fault")

    class Accepting:
        def send(self, *_, **__):
            return {"repeated": False}

    bad = Lines(tmp_path / "quarantine")
    with pytest.raises(RuntimeError, match="listener"):
        forward(Rows(P.X_target[:80]), Accepting(), "x", read_size=16, quarantine=bad, listen=listen)
    bad.close()
    assert lines(tmp_path / "quarantine") == []


class Keyed(Rows):
    """Rows of two targets, in turn."""

    def read(self, n, timeout=None):
        batch = super().read(n, timeout)
        return batch and replace(batch, keys=["ab"[position % 2] for position in batch.positions])


@pytest.mark.usefixtures("poisoned")
def test_only_the_target_that_fails_is_quarantined_by_a_run(tmp_path):
    """The model of the other one has learned from its rows already."""
    sinks = {name: Lines(tmp_path / name) for name in ("predictions", "quarantine")}
    runner = Runner(SessionConfig(MODEL, 8), Keyed(P.X_target[:48]), Outputs(**sinks), read_size=16)
    totals = runner.run()
    assert (totals.read, totals.predicted, totals.quarantined) == (48, 40, 8)
    bad = [row["position"] for row in lines(tmp_path / "quarantine")]
    good = [row["position"] for row in lines(tmp_path / "predictions")]
    assert bad == list(range(18, 33, 2))
    assert sorted(bad + good) == list(range(1, 49))
    runner.close()
    for sink in sinks.values():
        sink.close()


def test_only_the_target_that_fails_is_quarantined_by_forward(tmp_path):
    """The service has the rows of the other one already."""
    bad = Lines(tmp_path / "quarantine")
    found = forward(Keyed(P.X_target[:48]), Answering(), "", keyed=True, read_size=16, quarantine=bad)
    bad.close()
    assert (found.rows, found.rejected) == (40, 8)
    assert [row["position"] for row in lines(tmp_path / "quarantine")] == list(range(18, 33, 2))
