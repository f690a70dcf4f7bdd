"""Runs and groups that are killed: a short ``python -m experiments.plantfloor.kafka``."""

import json
from pathlib import Path

import pytest

from tests.streams import kafka_trials as trials

RESULTS = Path(__file__).parents[2] / "experiments" / "plantfloor" / "results" / "kafka.json"
NONE = ("missing", "invented", "both", "sent_again_but_different", "quarantined_twice")
NONE_IN_A_GROUP = ("missing", "twice", "in_the_wrong_partition", "miscounted", "keys_with_two_at_once")


def check_run(found):
    assert {name: found[name] for name in NONE} == dict.fromkeys(NONE, 0)
    assert found["predicted"] + found["quarantined"] == found["sent"] > 0


def check_group(found):
    assert {name: found[name] for name in NONE_IN_A_GROUP} == dict.fromkeys(NONE_IN_A_GROUP, 0)
    assert found["waits_for_an_owner"] == 0  # no member had to wait for a former owner
    assert found["told_the_group"] == found["sent"] > 0


def test_a_killed_run_loses_nothing_and_resends_identical_records(tmp_path):
    found = trials.kill_runs(tmp_path, 1)
    check_run(found)
    assert found["read"] == found["sent"]
    assert found["quarantined"] == 1


def test_members_that_join_and_die_hand_over_without_loss_or_overlap(tmp_path):
    found = trials.share(tmp_path, 1, session=4)
    check_group(found)
    assert found["changes_of_owner"] >= 8


def test_the_comparison_finds_missing_doubled_and_different_records():
    class Sent:
        def received(self, _):
            return [Sent.Message(offset) for offset in range(4)]

        class Message:
            def __init__(self, offset):
                self.offset, self.partition = lambda: offset, lambda: 0

    lines = [
        json.dumps({"offset": f"0:{at}", "label": label})
        for at, label in ((0, 1), (0, 1), (1, 1), (1, 2))
    ]
    found = trials.compare(Sent(), "rows", [*lines, '{"offset": "0:9"}'], [{"offset": "0:2"}] * 2)
    assert (found["missing"], found["invented"], found["quarantined_twice"]) == (1, 1, 1)
    assert (found["sent_again"], found["sent_again_but_different"]) == (2, 1)


def test_overlapping_work_on_a_key_is_detected():
    def work(began, at, process):
        return {"rows": [[1, "0:1", "pump"]], "began": began, "at": at, "process": process}

    assert trials.count_overlaps({"a": [work(0, 2, 1), work(3, 4, 2)]}) == 0
    assert trials.count_overlaps({"a": [work(0, 2, 1), work(1, 4, 2)]}) == 1


@pytest.mark.skipif(not RESULTS.exists(), reason="experiments are not part of this distribution")
def test_the_committed_figures_match_the_documentation():
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in ("kills", "stall", "down", "fuzz"):
        check_run(found[name])
    for name in ("group", "group_stall"):
        check_group(found[name])
    assert (found["kills"]["kills"], found["group"]["kills"]) == (20, 10)
    assert found["stall"]["seconds"] == found["down"]["seconds"] == found["group_stall"]["stall"] == 60
    assert found["fuzz"]["damaged"] == 5000
    assert found["fuzz"]["read"] == 5020
    for name in ("stall", "down"):
        assert "is back" in found[name]["notices"][-1]
