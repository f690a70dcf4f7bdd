"""The state machine of alarms: delays, hysteresis, chatter, shelving, floods, and resuming anywhere."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baryflow import codec
from baryflow.alarms import AlarmCommand, AlarmConfig, Alarms, AlarmState, Rule, Span
from baryflow.exceptions import InvalidInputError

NAMES = ["normal", "leak", "wear", "stall"]
FAULTS = NAMES[1:]
#: No delays, no hysteresis, no chatter, no floods.
BARE = Rule(0.5, 0.5, Span(1), Span(1), Span(0))
SHARES = st.sampled_from([0.1, 0.35, 0.45, 0.55, 0.7, 0.9])


def config(rule=BARE, **more):
    return AlarmConfig(rule=rule, **({"flood": 0} | more))


def show(alarms, name, share, time="", position=None, novel=False):
    """Show a row whose class `name` has a probability; the rest is normal."""
    shares = [0.0] * len(NAMES)
    shares[0] = 1.0 - share
    shares[NAMES.index(name)] += share
    label = "unknown" if novel else (name if shares[NAMES.index(name)] >= 0.5 else "normal")
    position = alarms.state().position + 1 if position is None else position
    return alarms.update(position, time, label, NAMES, shares, novel=novel)


def kinds(changes):
    return [change.kind for change in changes]


def state_of(alarms, name="leak"):
    return next((one["state"] for one in alarms.entries() if one["alarm"] == name), "normal")


# What rows, commands and times may come in any order.
ROWS = st.tuples(st.just("row"), st.sampled_from(NAMES), SHARES, st.integers(-30, 90))
COMMANDS = st.tuples(
    st.sampled_from(["acknowledge", "shelve", "unshelve", "suppress", "unsuppress"]),
    st.sampled_from([*FAULTS, "unknown"]),
    st.sampled_from(["3 rows", "60s"]),
)
STREAMS = st.lists(ROWS | ROWS | ROWS | COMMANDS, max_size=60)
SPANS = st.integers(0, 6).map(Span) | st.integers(1, 200).map(lambda n: Span(n * 10**6, "microseconds"))
RULES = st.builds(
    Rule,
    st.sampled_from([0.5, 0.6, 0.8]),
    st.sampled_from([0.3, 0.5]),
    SPANS,
    SPANS,
    SPANS,
    st.sampled_from(["low", "critical"]),
    st.just(value=False),
)
CONFIGS = st.builds(
    AlarmConfig,
    rule=RULES,
    classes=st.dictionaries(st.sampled_from(FAULTS), RULES, max_size=2),
    flood=st.integers(0, 3),
    flood_window=SPANS,
)


def play(alarms, stream, moment=0):
    """Apply a stream; return the changes of each step, and the moment at its end."""
    found = []
    for what, name, *more in stream:
        if what == "row":
            moment += more[1]
            found.append(show(alarms, name, more[0], str(10**6 + moment)))
        else:
            command = AlarmCommand(what, name, duration=more[0], by="ada")
            try:
                found.append(alarms.apply(command, [*NAMES, "unknown"]))
            except InvalidInputError:
                found.append([])
    return found, moment


@settings(deadline=None)
@given(CONFIGS, STREAMS, st.integers(0, 60))
def test_a_resumed_machine_is_as_if_never_interrupted(setting, stream, cut):
    whole = Alarms(setting)
    expected, _ = play(whole, stream)
    first = Alarms(setting)
    before, moment = play(first, stream[:cut])
    second = Alarms(setting, codec.decode(AlarmState, *codec.encode(first.state())))
    after, _ = play(second, stream[cut:], moment)
    assert before + after == expected
    assert second.state() == whole.state()
    assert second.entries() == whole.entries()


@settings(deadline=None)
@given(CONFIGS, STREAMS)
def test_states_change_as_the_standard_allows(setting, stream):
    rows = {
        ("normal", "unacknowledged"),
        ("unacknowledged", "returned"),
        ("returned", "unacknowledged"),
        ("acknowledged", "normal"),
        ("normal", "acknowledged"),  # the same alarm again soon after it was cleared
        ("shelved", "unacknowledged"),  # the time is over
        ("shelved", "normal"),
        ("unacknowledged", "unacknowledged"),
    }
    commands = {
        "acknowledge": {("unacknowledged", "acknowledged"), ("returned", "normal")},
        "shelve": {(one, "shelved") for one in ("normal", "unacknowledged", "acknowledged", "returned")},
        "unshelve": {("shelved", one) for one in ("normal", "unacknowledged")},
        "suppress": {
            (one, "suppressed")
            for one in ("normal", "unacknowledged", "acknowledged", "returned", "shelved")
        },
        "unsuppress": {("suppressed", one) for one in ("normal", "unacknowledged", "shelved")},
    }
    alarms, moment = Alarms(setting), 0
    for step in stream:
        before = {name: state_of(alarms, name) for name in FAULTS}
        changes, moment = play(alarms, [step], moment)
        after = {name: state_of(alarms, name) for name in FAULTS}
        allowed = commands.get(step[0], rows)
        moved = {(before[name], after[name]) for name in FAULTS if before[name] != after[name]}
        assert moved <= allowed
        for change in changes[0]:
            if change.kind in ("raised", "cleared", "repeated"):
                assert after[change.details["alarm"]] not in ("shelved", "suppressed")


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=60), st.integers(0, 4), st.integers(0, 4))
def test_delays_are_those_of_a_plain_definition(stream, on_delay, off_delay):
    alarms = Alarms(config(replace(BARE, on_delay=Span(on_delay), off_delay=Span(off_delay))))
    on = False
    for i, met in enumerate(stream):
        changes = show(alarms, "leak", 0.9 if met else 0.1)
        needed = max(1, off_delay if on else on_delay)
        last = stream[max(0, i + 1 - needed) : i + 1]
        expected = not on if len(last) == needed and all(one != on for one in last) else on
        assert kinds(changes) == ([] if expected == on else ["raised" if expected else "cleared"])
        on = expected


def test_delays_in_seconds_use_the_times_of_rows_and_survive_a_clock_that_is_set_back():
    rule = replace(BARE, on_delay=Span.read("2min"), off_delay=Span.read("1min"))
    alarms = Alarms(config(rule))
    times = ["12:00:00", "12:01:00", "11:00:30", "11:01:29", "11:01:30"]
    found = [kinds(show(alarms, "leak", 0.9, f"2026-01-01T{time}Z")) for time in times]
    assert found == [[], [], [], [], ["raised"]]
    assert kinds(show(alarms, "leak", 0.1, "2026-01-01T12:00:00Z")) == []
    assert kinds(show(alarms, "leak", 0.1, "")) == []  # no time: the clock stands still
    assert kinds(show(alarms, "leak", 0.1, "2026-01-01T12:01:00Z")) == ["cleared"]


@given(st.lists(st.sampled_from([0.35, 0.45, 0.55]), min_size=1, max_size=40))
def test_hysteresis_keeps_an_alarm_between_its_two_probabilities(shares):
    alarms = Alarms(config(Rule(0.6, 0.3, Span(1), Span(1), Span(0))))
    assert not any(show(alarms, "leak", share) for share in shares)
    assert kinds(show(alarms, "leak", 0.7)) == ["raised"]
    assert not any(show(alarms, "leak", share) for share in shares)
    assert kinds(show(alarms, "leak", 0.2)) == ["cleared"]


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.lists(st.integers(1, 9), min_size=30))
def test_a_chattering_fault_is_one_alarm(on, off):
    alarms, changes = Alarms(config(replace(BARE, chatter=Span(10)))), []
    for high, low in zip(on, off, strict=False):
        for share in [0.9] * high + [0.1] * low:
            changes += show(alarms, "leak", share)
    for _ in range(10):
        changes += show(alarms, "leak", 0.1)
    (entry,) = alarms.entries()
    assert (entry["number"], entry["occurrences"], entry["state"]) == (1, len(on), "returned")
    again = ["repeated", "cleared"] if len(on) > 1 else []
    assert kinds(changes) == ["raised", "cleared", *again]


def test_a_chattering_alarm_stays_acknowledged_and_is_new_after_a_pause():
    alarms = Alarms(config(replace(BARE, chatter=Span(5))))
    show(alarms, "leak", 0.9)
    alarms.apply(AlarmCommand("acknowledge", "leak"), NAMES)
    assert kinds(show(alarms, "leak", 0.1)) == ["cleared"]
    assert kinds(show(alarms, "leak", 0.9)) == ["repeated"]
    assert state_of(alarms) == "acknowledged"
    assert [kinds(show(alarms, "leak", 0.1)) for _ in range(6)] == [[], [], [], [], [], ["cleared"]]
    assert [kinds(show(alarms, "leak", 0.1)) for _ in range(5)] == [[]] * 5
    assert kinds(show(alarms, "leak", 0.9)) == ["raised"]
    assert (alarms.entries()[0]["number"], state_of(alarms)) == (2, "unacknowledged")


@given(st.integers(1, 8), st.integers(0, 12))
def test_a_shelved_alarm_is_silent_and_returns_by_itself(rows, on):
    alarms = Alarms(config())
    alarms.apply(AlarmCommand("shelve", "leak", duration=rows), NAMES)
    found = [kinds(show(alarms, "leak", 0.9 if i < on else 0.1)) for i in range(rows)]
    assert found[:-1] == [[]] * (rows - 1)
    # Of the last row the shelf is over. What came on before is raised then.
    if rows - 1 < on:
        assert "raised" in found[-1]
        assert state_of(alarms) == "unacknowledged"
    else:
        assert "raised" not in found[-1] or "cleared" in found[-1]
    assert found[-1][0] == "unshelved"


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([*FAULTS, "normal"]), max_size=80), st.integers(1, 3), st.integers(1, 20)
)
def test_a_flood_is_one_event_with_its_members(stream, most, window):
    alarms = Alarms(config(flood=most, flood_window=Span(window)))
    alone, floods, raised = [], [], []
    for i, name in enumerate(stream):
        before = alarms.state().n_alarms
        changes = show(alarms, name, 0.9)
        raised += [i] * (alarms.state().n_alarms - before)
        alone += [i for change in changes if change.kind == "raised"]
        floods += [change for change in changes if change.kind.startswith("flood")]
    for i in range(len(stream)):  # never more than the most within a window
        assert sum(i <= at < i + window for at in alone) <= most
    assert [change.kind for change in floods] == ["flood", "flood ended"] * (len(floods) // 2) + [
        "flood"
    ] * (len(floods) % 2)
    if not any(sum(i <= at < i + window for at in raised) > most for i in range(len(stream))):
        assert not floods
    for change in floods:
        assert {one["alarm"] for one in change.details["members"]} <= set(FAULTS)
    if alarms.state().n_alarms > len(alone):
        assert floods


def test_critical_alarms_are_reported_in_a_flood_too():
    setting = config(flood=1, classes={"stall": replace(BARE, priority="critical")})
    alarms = Alarms(setting)
    found = [kinds(show(alarms, name, 0.9)) for name in ("leak", "wear", "stall")]
    assert found == [["raised"], ["cleared", "flood"], ["cleared", "raised"]]
    assert alarms.summary()["flood"]


def test_unknown_rows_have_an_alarm_of_their_own_unless_it_is_off():
    alarms = Alarms(config(replace(BARE, on_delay=Span(2))))
    assert [kinds(show(alarms, "leak", 0.9, novel=True)) for _ in range(2)] == [[], ["raised"]]
    assert alarms.entries()[0]["alarm"] == "unknown"
    assert kinds(show(alarms, "normal", 1.0)) == ["cleared"]
    alarms = Alarms(config(unknown=False))
    assert show(alarms, "leak", 0.9, novel=True) == []


def test_settings_may_change_between_two_processes():
    alarms = Alarms(config())
    show(alarms, "leak", 0.9)
    show(alarms, "wear", 0.9)
    show(alarms, "leak", 0.9, novel=True)
    changed = Alarms(config(normal=("normal", "wear"), unknown=False), alarms.state())
    assert {one["alarm"] for one in changed.entries()} == {"leak", "unknown"}
    assert kinds(show(changed, "leak", 0.9, novel=True)) == ["cleared"]


def test_an_active_alarm_lasts_through_unknown_rows():
    alarms = Alarms(config(unknown=False))
    assert kinds(show(alarms, "leak", 0.9)) == ["raised"]
    assert show(alarms, "leak", 0.9, novel=True) == []
    assert kinds(show(alarms, "leak", 0.1)) == ["cleared"]


def test_suppressed_by_configuration_or_command_and_back():
    hidden = Alarms(config(replace(BARE, suppress=True)))
    assert show(hidden, "leak", 0.9) == []
    assert state_of(hidden) == "suppressed"
    with pytest.raises(InvalidInputError, match="configuration"):
        hidden.apply(AlarmCommand("unsuppress", "leak"), NAMES)
    alarms = Alarms(config())
    assert kinds(alarms.apply(AlarmCommand("suppress", "leak", by="ada"), NAMES)) == ["suppressed"]
    assert show(alarms, "leak", 0.9) == []
    again = alarms.apply(AlarmCommand("unsuppress", "leak"), NAMES)
    assert kinds(again) == ["unsuppressed", "raised"]
    assert again[1].details["since_row"] == 1


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (AlarmCommand("acknowledge", "normal"), "no alarms"),
        (AlarmCommand("acknowledge", "brake"), "no alarms"),
        (AlarmCommand("acknowledge", "wear"), "nothing to acknowledge"),
        (AlarmCommand("acknowledge", "leak", number=7), "number 1"),
        (AlarmCommand("shelve", "leak"), "how long"),
        (AlarmCommand("shelve", "leak", duration="5min"), "no times"),
        (AlarmCommand("shelve", "leak", duration="soon"), "duration"),
        (AlarmCommand("explode", "leak"), "acknowledge"),
    ],
)
def test_commands_that_are_refused_change_nothing(command, word):
    alarms = Alarms(config())
    show(alarms, "leak", 0.9)
    before = alarms.state()
    with pytest.raises(InvalidInputError, match=word):
        alarms.apply(command, NAMES)
    assert alarms.state() == before


def test_evidence_is_asked_for_once_and_kept():
    alarms, asked = Alarms(config()), []

    def explain(name):
        asked.append(name)
        return {"columns": [1.0]}

    for row in range(3):
        changes = alarms.update(row, "", "leak", NAMES, [0.1, 0.9, 0.0, 0.0], explain=explain)
        assert [change.details["evidence"] for change in changes] == [{"columns": [1.0]}] * (row == 0)
    assert asked == ["leak"]
    assert alarms.entries()[0]["evidence"] == {"columns": [1.0]}


@given(st.lists(ROWS, max_size=200))
def test_the_state_does_not_grow(stream):
    alarms = Alarms(config(flood=2))
    play(alarms, stream)
    state = alarms.state()
    assert len(state.alarms) <= len(FAULTS)
    assert len(state.raised) <= 3


def test_a_shelf_that_is_over_was_not_ended_by_an_operator():
    alarms = Alarms(config())
    alarms.apply(AlarmCommand("shelve", "leak", duration=2, by="ada", comment="tests"), NAMES)
    assert show(alarms, "leak", 0.9) == []
    unshelved, raised = show(alarms, "leak", 0.9)
    assert (unshelved.kind, raised.kind) == ("unshelved", "raised")
    assert "ada" not in unshelved.message
    assert {(one.details["by"], one.details["comment"]) for one in (unshelved, raised)} == {("", "")}


def test_a_suppressed_alarm_whose_shelf_is_over_is_still_suppressed_by_an_operator():
    alarms = Alarms(config())
    alarms.apply(AlarmCommand("shelve", "leak", duration=1, by="ada"), NAMES)
    alarms.apply(AlarmCommand("suppress", "leak", by="bob"), NAMES)
    (unshelved,) = show(alarms, "leak", 0.1)
    assert "bob" not in unshelved.message
    assert alarms.entries()[0]["by"] == "bob"


def _leak(alarms, shares, start=1, **more):
    """Return the changes of rows whose probability of a leak is given."""
    found = []
    for row, share in enumerate(shares, start):
        label = "leak" if share > 0.5 else "normal"
        found += alarms.update(row, "", label, ["normal", "leak"], [1 - share, share], **more)
    return [change.kind for change in found]


def test_an_alarm_whose_rows_are_called_something_else_is_reclassified_and_waits_for_acknowledgement():
    alarms, asked = Alarms(AlarmConfig.from_table({"on-delay": 2, "off-delay": 2})), []

    def confirm(name, positions):
        asked.append((name, positions))
        return False

    assert _leak(alarms, [0.9] * 3) == ["raised"]
    alarms.apply(AlarmCommand("acknowledge", "leak"), ["leak"])
    assert _leak(alarms, [0.1] * 2, 4, confirm=confirm) == ["reclassified"]
    assert asked == [("leak", (1, 2, 3))]
    assert alarms.entries()[0]["state"] == "reclassified"
    assert alarms.summary()["unacknowledged"] == 1
    assert alarms.summary()["active"] == 0
    alarms.apply(AlarmCommand("acknowledge", "leak"), ["leak"])
    assert alarms.entries()[0]["state"] == "normal"


def test_an_alarm_whose_rows_are_confirmed_is_cleared():
    alarms = Alarms(AlarmConfig.from_table({"on-delay": 2, "off-delay": 2}))
    shares = [0.9] * 3 + [0.1] * 2
    assert _leak(alarms, shares, confirm=lambda *_: True) == ["raised", "cleared"]


def test_a_latched_alarm_stays_until_it_is_acknowledged():
    alarms = Alarms(AlarmConfig.from_table({"on-delay": 2, "off-delay": 2}).latch(["leak"]))
    assert _leak(alarms, [0.9] * 3 + [0.1] * 200) == ["raised"]
    assert alarms.entries()[0]["state"] == "unacknowledged"
    changes = alarms.apply(AlarmCommand("acknowledge", "leak"), ["leak"])
    assert [change.kind for change in changes] == ["acknowledged", "cleared"]
    assert alarms.entries()[0]["state"] == "normal"


@pytest.mark.parametrize(("names", "latched"), [(["all"], {"leak", "wear"}), (["wear"], {"wear"})])
def test_latch_keeps_the_other_settings(names, latched):
    config = AlarmConfig.from_table({"classes": {"leak": {"priority": "high"}}}).latch(names)
    assert {name for name in ("leak", "wear") if config.rule_of(name).latch} == latched
    assert config.rule_of("leak").priority == "high"


def test_a_star_acknowledges_all_alarms():
    alarms = Alarms(AlarmConfig.from_table({"on-delay": 1, "off-delay": 1}))
    names = ["normal", "leak", "wear"]
    alarms.update(1, "", "leak", names, [0.0, 1.0, 0.0])
    alarms.update(2, "", "wear", names, [0.0, 0.0, 1.0])
    changes = alarms.apply(AlarmCommand("acknowledge", "*", by="ada"), names)
    assert {change.details["alarm"] for change in changes} == {"leak", "wear"}
    assert alarms.summary()["unacknowledged"] == 0
    assert alarms.apply(AlarmCommand("acknowledge", "*"), names) == []
