"""Partitions are assigned and revoked: a process resumes where the last one stopped."""

import json
from dataclasses import replace

import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.runtime import Outputs, PartitionRunner, Runner, SessionConfig, Store
from tests.runtime.ends import Lines, Rows

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
MODEL = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
    P.X, P.y, P.domain
)


class Topic:
    """Two partitions, given to one reader and taken from it as a script says."""

    shared = True

    def __init__(self, script):
        self.script = list(script)
        self.parts = {}
        self.acknowledged = []

    def attach(self, assigned, revoked):
        self.assigned, self.revoked = assigned, revoked

    def read(self, n, _=None):
        while self.script:
            word, partition = self.script.pop(0)
            if word == "give":
                self.parts[partition] = Rows(P.X_target[:120] + (partition == "t-1"))
                cursor = self.assigned(partition)
                if cursor is not None:
                    self.parts[partition].seek(cursor)
            elif word == "take":
                self.revoked(partition)
            elif word == "say":
                return replace(Rows(P.X_target[:1]).read(1), rows=P.X_target[:0], notices=[partition])
            else:
                batch = self.parts[partition].read(n)
                return replace(batch, partition=partition, keys=[f"of {partition}"] * len(batch.rows))
        return None

    def acknowledge(self, cursor):
        self.acknowledged.append(cursor)


def follow(folder, script, said=None):
    def make(partition, stack):
        kept = Store(folder / "checkpoint" / partition)
        stack.callback(kept.close)
        sink = Lines(folder / f"out-{partition}")
        stack.callback(sink.close)
        return Runner(SessionConfig(MODEL, 16, "report"), topic, Outputs(sink), store=kept, every=2)

    topic = Topic(script)
    listen = None if said is None else said.append
    return PartitionRunner(topic, make, 20, listen=listen).run(), topic


def written(folder):
    return {path.name: path.read_bytes() for path in folder.glob("out-*")}


WHOLE = [("give", "t-0"), ("give", "t-1"), *[("read", f"t-{i % 2}") for i in range(12)]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    totals, topic = follow(folder, WHOLE)
    assert (totals.read, totals.predicted) == (240, 240)
    assert len(topic.acknowledged) == 12
    return written(folder)


def test_a_partition_that_is_revoked_and_assigned_again_resumes(tmp_path, whole):
    first = [("give", "t-0"), ("give", "t-1"), ("read", "t-0"), ("read", "t-1"), ("read", "t-0")]
    first += [("take", "t-0"), ("read", "t-1"), ("give", "t-0"), ("read", "t-0")]
    totals, _ = follow(tmp_path, first)
    assert totals.read == 40 + 40 + 20  # none is counted twice
    second = [("give", "t-1"), ("give", "t-0"), *[("read", "t-0")] * 3, *[("read", "t-1")] * 4]
    follow(tmp_path, second)
    assert written(tmp_path) == whole


def test_a_partition_is_followed_by_one_process_at_a_time(tmp_path):
    held = Store(tmp_path / "checkpoint/t-0")
    with pytest.raises(InvalidInputError, match="in use"):
        follow(tmp_path, WHOLE)
    held.close()
    follow(tmp_path, WHOLE)


def test_targets_of_two_partitions_never_share_a_model(whole):
    for name, raw in whole.items():
        keys = {json.loads(line)["key"] for line in raw.splitlines()}
        assert keys == {f"of {name.removeprefix('out-')}"}


def test_notices_of_no_partition_reach_the_listener(tmp_path):
    said = []
    follow(tmp_path, [("say", "the broker was away for 3 s"), *WHOLE], said)
    assert [event.message for event in said] == ["the broker was away for 3 s"]


def test_an_error_of_a_partition_is_raised_and_leaves_nothing_locked(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr(Lines, "write", fail)
    with pytest.raises(OSError, match="no space"):
        follow(tmp_path, WHOLE)
    Store(tmp_path / "checkpoint/t-0").close()
