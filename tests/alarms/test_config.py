"""Settings of alarms: read from a table, with messages that name the key."""

import pytest

from baryflow.alarms import AlarmConfig, Rule, Span
from baryflow.exceptions import InvalidInputError


def test_a_table_is_read_and_classes_inherit():
    config = AlarmConfig.from_table(
        {
            "normal": ["normal", "idle"],
            "probability": 0.8,
            "on-delay": "30s",
            "off-delay": "5 rows",
            "unknown": False,
            "flood": 5,
            "flood-window": "10min",
            "classes": {"leak": {"priority": "critical", "on-delay": 1}, "2": {"suppress": True}},
        }
    )
    assert (config.normal, config.unknown, config.flood) == (("normal", "idle"), False, 5)
    assert config.rule_of("wear") == config.rule
    leak = config.rule_of("leak")
    assert (leak.priority, leak.on_delay, leak.off_delay) == ("critical", Span(1), Span(5))
    assert leak.probability == 0.8
    assert config.rule_of("2").suppress
    assert config.needs_times
    assert AlarmConfig.from_table({}) == AlarmConfig()
    assert not AlarmConfig().needs_times


def test_a_low_probability_takes_the_one_to_clear_with_it():
    assert AlarmConfig.from_table({"probability": 0.2}).rule == Rule(0.2, 0.2)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"delay": 3}, "alarms: unknown key 'delay'.*on-delay"),
        ({"on-delay": "soon"}, "alarms.on-delay: .*'soon'"),
        ({"on-delay": -1}, "alarms.on-delay: .*-1"),
        ({"off-delay": True}, "alarms.off-delay"),
        ({"probability": 1.5}, "alarms.probability: .*1.5"),
        ({"probability": 0.5, "clear-probability": 0.7}, "alarms.clear-probability is 0.7"),
        ({"priority": "urgent"}, "alarms.priority: .*critical.*'urgent'"),
        ({"flood": "many"}, "alarms.flood: .*'many'"),
        ({"unknown": 1}, "alarms.unknown: .*true or false"),
        ({"normal": [True]}, "alarms.normal: "),
        ({"classes": 3}, "alarms.classes must"),
        ({"classes": {"leak": "high"}}, "alarms.classes.leak must"),
        ({"classes": {"leak": {"prio": 1}}}, "alarms.classes.leak: unknown key 'prio'"),
        ({"classes": {"leak": {"chatter": 1.5}}}, "alarms.classes.leak.chatter: "),
        ({"classes": {"leak": {"flood": 2}}}, "alarms.classes.leak: unknown key 'flood'"),
    ],
)
def test_errors_name_the_key(table, words):
    with pytest.raises(InvalidInputError, match=words):
        AlarmConfig.from_table(table)


def test_settings_must_fit_the_classes():
    config = AlarmConfig.from_table({"classes": {"leek": {"priority": "low"}}})
    (warning,) = config.check_classes(["normal", "leak"])
    assert "leek" in warning
    with pytest.raises(InvalidInputError, match="normal = \\[\\]"):
        config.check_classes(["idle", "leak"])
    AlarmConfig.from_table({"normal": []}).check_classes(["idle"])
