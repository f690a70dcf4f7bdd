"""Alarms of a session: the same however rows are delivered and wherever a process was killed."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baryflow import OnlineDaDiL, codec
from baryflow.alarms import AlarmCommand, AlarmConfig
from baryflow.datasets import make_domains
from baryflow.runtime import Outputs, Rows, Runner, SessionConfig, Store
from baryflow.runtime.outbox import Outbox, SinkSender
from baryflow.runtime.session import SessionState
from baryflow.streams import Batch, Label
from tests.runtime import ends
from tests.runtime.ends import Lines

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
NAMES = np.array(["normal", "leak", "wear"])
ORDER = np.argsort(P.y_target, kind="stable").reshape(3, -1)[:, :20].reshape(3, 4, 5)
ORDER = ORDER.transpose(1, 0, 2).ravel()  # each class in runs of five rows
ALARMS = AlarmConfig.from_table({"on-delay": 2, "off-delay": 3, "chatter": 12, "probability": 0.5})


@pytest.fixture(scope="module")
def model():
    fitted = OnlineDaDiL(
        classifier="linear", validate=False, keep_sources=False, random_state=0, unknown=0.999
    )
    return fitted.fit(P.X, NAMES[P.y], P.domain)


def rows(start, stop):
    numbers = range(start, stop)
    times = [f"2026-01-01T00:{i:02d}:00Z" for i in numbers]
    return Rows(P.X_target[ORDER[start:stop]], np.arange(start, stop) + 1, times, [""] * len(numbers))


def session(model, **more):
    return SessionConfig(model, 16, "off", ALARMS, **more).begin()


def resumed(one):
    """Return a session as another process would resume it."""
    return one.config.resume(codec.decode(SessionState, *codec.encode(one.state())))


def changes(result):
    return [event for event in result.events if event.kind == "alarm"]


def test_alarms_are_raised_with_evidence_in_the_units_of_rows(model):
    one = session(model)
    found = changes(one.apply(rows(0, 60)))
    raised = [event.details for event in found if event.details["change"] == "raised"]
    assert {one["alarm"] for one in raised} == {"leak", "wear"}
    first = raised[0]
    assert first["since"] == f"2026-01-01T00:{first['since_row'] - 1:02d}:00Z"
    evidence = first["evidence"]
    assert evidence["compared_with"] == "normal"
    assert evidence["cases"][0]["source"] in map(str, model.sources_)
    column = evidence["columns"][0]
    row = P.X_target[ORDER[first["since_row"] - 1]]
    assert column["value"] == pytest.approx(row[int(column["name"].split()[1])], rel=1e-4)
    assert abs(column["value"] - column["usual"]) < abs(column["value"] - column["rival"])
    assert [event.details["sequence"] for event in found] == [*range(1, len(found) + 1)]


@settings(deadline=None, max_examples=8)
@given(cuts=st.sets(st.integers(1, 59), max_size=6), kills=st.sets(st.integers(1, 59), max_size=3))
def test_delivery_and_kills_change_nothing(model, cuts, kills):
    whole = session(model)
    expected = changes(whole.apply(rows(0, 30)))
    command = [AlarmCommand("acknowledge", "leak"), AlarmCommand("shelve", "wear", duration="9min")]
    expected += whole.command(command).events
    expected += changes(whole.apply(rows(30, 60)))
    one, found = session(model), []
    edges = sorted({0, 30, 60, *cuts, *kills})
    for start, stop in itertools.pairwise(edges):
        if start == 30:
            found += one.command(command).events
        if start in kills:
            one = resumed(one)
        found += changes(one.apply(rows(start, stop)))
    assert found == expected
    assert one.alarms.state() == whole.alarms.state()


def test_a_row_unlike_everything_raises_an_unknown_alarm(model):
    one = session(model)
    one.apply(rows(0, 40))
    far = Rows(np.full((3, 4), 1e3), np.arange(41, 44), [""] * 3, [""] * 3)
    (event,) = changes(one.apply(far))
    assert event.details["alarm"] == "unknown"
    assert event.details["evidence"]["columns"][0]["usual"] is None
    assert one.command([AlarmCommand("acknowledge", "unknown")]).events


def test_rows_without_times_and_delays_in_seconds_give_one_warning(model):
    timed = AlarmConfig.from_table({"on-delay": "1min"})
    one = SessionConfig(model, 16, "off", timed).begin()
    values = replace(rows(0, 20), times=[""] * 20)
    warnings = [event for event in one.apply(values).events if event.kind == "warning"]
    assert [event.position for event in warnings] == [1]
    one = SessionConfig(model, 16, "off", timed).begin()
    assert not [event for event in one.apply(rows(0, 20)).events if event.kind == "warning"]


def test_commands_that_cannot_be_carried_out_are_refused_with_a_warning(model):
    one = session(model)
    result = one.command([AlarmCommand("acknowledge", "brake")])
    assert [event.kind for event in result.events] == ["warning"]
    assert "brake" in result.refused_commands[0][1]
    off = SessionConfig(model, 16).begin()
    assert "[alarms]" in off.command([AlarmCommand("acknowledge", "leak")]).refused_commands[0][1]


def test_the_journal_keeps_commands(tmp_path):
    command = AlarmCommand("shelve", "leak", 3, "5min", "ada", "pump is out for repair", "p1")
    batch = Batch(np.empty((0, 2)), np.empty(0, np.intp), [], [], [], {}, commands=[command])
    assert ends.journalled(tmp_path, batch).commands == [command]


class WithCommands(ends.Rows):
    """Rows, and commands with every second batch."""

    def read(self, n, _=None):
        batch = super().read(n)
        if batch is None or self.at % 10 == 0:
            return batch
        commands = [AlarmCommand("acknowledge", "leak", by="ada"), AlarmCommand("shelve", "wear")]
        return replace(batch, commands=commands)


class KilledError(Exception):
    pass


def live(folder, model, most):
    """Follow from a checkpoint, for at most so many batches; return the state of the alarms."""
    calls = []

    def stop():
        calls.append(1)
        if len(calls) > most:
            raise KilledError  # no commit, no end
        return False

    checkpoint = Store(folder / "checkpoint")
    outputs = Outputs(events=Lines(folder / "events.ndjson"))
    alarms = Outbox([SinkSender("file", lambda: Lines(folder / "alarms.ndjson"))])
    source = WithCommands(P.X_target[ORDER])
    setting = SessionConfig(model, 8, "off", ALARMS)
    try:
        runner = Runner(setting, source, outputs, read_size=5, store=checkpoint, every=4, alarms=alarms)
        runner.run(stop)
    finally:
        alarms.close()
        runner.close()
        checkpoint.close()
        for sink in outputs.named().values():
            sink.close()
    assert runner.totals.alarms
    return runner.session.alarms.state()


def test_a_killed_run_has_the_same_alarms(tmp_path, model):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    expected, most = live(tmp_path / "whole", model, 10**9), 3
    while True:
        try:
            found = live(tmp_path / "killed", model, most)
            break
        except KilledError:
            most += 1
    assert found == expected
    for name in ("events.ndjson", "alarms.ndjson"):
        text = (tmp_path / "whole" / name).read_text()
        assert (tmp_path / "killed" / name).read_text() == text
        assert '"change": "acknowledged"' in text
    assert "how long" in (tmp_path / "whole" / "events.ndjson").read_text()


@settings(deadline=None, max_examples=5)
@given(cuts=st.sets(st.integers(1, 59), max_size=5))
def test_labels_that_change_the_diagnosis_reclassify_the_alarm_also_after_kills(model, cuts):
    worn = np.flatnonzero(NAMES[P.y_target] == "wear")[:40]
    values = np.concatenate([P.X_target[worn], P.X_target[worn[:20]]])
    stream = Rows(values, np.arange(1, 61), [""] * 60, [""] * 60)
    labels = [Label("normal", position=position) for position in range(1, 33)]

    def play(edges):
        one, found = session(model), []
        for start, stop in itertools.pairwise(edges):
            found += changes(one.apply(stream.pick(slice(start, stop))))
            if stop == 40:
                one.label(labels)
            one = resumed(one)
        return [event.record() for event in found], one.alarms.state()

    expected = play([0, 40, 60])
    wear = [event for event in expected[0] if event["alarm"] == "wear"]
    assert [event["change"] for event in wear] == ["raised", "reclassified"]
    assert wear[-1]["state"] == "reclassified"
    assert play(sorted({0, 40, 60, *cuts})) == expected
