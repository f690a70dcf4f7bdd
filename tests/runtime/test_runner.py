import json
import random

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.runtime import Outputs, Runner, SessionConfig, Store
from tests.runtime.ends import Lines, Rows

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
SAVED = (
    OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    .fit(P.X, P.y, sample_domain=P.domain)
    .to_bytes()
)
BAD = (3, 40, 41, 42, 43, 44, 45, 46, 47, 90)


class Killed(BaseException):
    """As sudden as SIGKILL, as far as one process can."""


def start(folder, name, checkpoint=None, **how):
    sinks = {kind: Lines(folder / f"{name}-{kind}") for kind in ("predictions", "events", "quarantine")}
    how = {"every": 4} | how
    config, source = SessionConfig(OnlineDaDiL.from_bytes(SAVED), 8), Rows(P.X_target, BAD)
    return Runner(config, source, Outputs(**sinks), store=checkpoint, **how)


def written(folder, name):
    return {p.name.split("-")[1]: p.read_bytes() for p in sorted(folder.glob(f"{name}-*"))}


def close(runner):
    for sink in runner.outputs.named().values():
        sink.close()
    if runner.store is not None:
        runner.store.close()


def finish(runner):
    try:
        return runner.run()
    finally:
        close(runner)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    totals = finish(start(folder, "out", Store(folder / "checkpoint")))
    return totals, written(folder, "out")


def test_every_row_is_predicted_before_it_is_learned_from(undisturbed):
    totals, files = undisturbed
    records = [json.loads(line) for line in files["predictions"].splitlines()]
    assert [r["position"] for r in records] == [i + 1 for i in range(len(P.X_target)) if i not in BAD]
    assert records[0]["rows_seen"] == 0
    model = OnlineDaDiL.from_bytes(SAVED)
    expected = model.classes_[model.predict_proba(P.X_target[:3]).argmax(axis=1)]
    assert [r["label"] for r in records[:3]] == expected.tolist()
    assert all(r["rows_seen"] < r["position"] for r in records)
    right = np.mean([r["label"] == P.y_target[r["position"] - 1] for r in records])
    assert right > 0.8
    assert totals.read == len(P.X_target) == totals.predicted + totals.quarantined
    assert totals.quarantined == len(BAD) == len(files["quarantine"].splitlines())


def test_events_tell_of_batches_quarantine_and_checkpoints(undisturbed):
    _, files = undisturbed
    kinds = [json.loads(line)["event"] for line in files["events"].splitlines()]
    assert set(kinds) >= {"batch", "quarantine", "checkpoint"}
    assert kinds.count("quarantine") == len(BAD)


def test_without_a_checkpoint_the_predictions_are_the_same(tmp_path, undisturbed):
    finish(start(tmp_path, "out"))
    assert written(tmp_path, "out")["predictions"] == undisturbed[1]["predictions"]


class Fate:
    """Counts what touches the disk, and kills at a number of it, before or after."""

    def __init__(self):
        self.left = 0

    def strike(self):
        self.left -= 1
        if self.left == 0:
            raise Killed

    def watch(self, monkeypatch, owner, name):
        function = getattr(owner, name)

        def called(*arguments, **named):
            self.strike()
            result = function(*arguments, **named)
            self.strike()
            return result

        monkeypatch.setattr(owner, name, called)


@pytest.mark.parametrize("seed", range(3))
def test_killed_anywhere_it_writes_what_it_would_have_written(tmp_path, monkeypatch, undisturbed, seed):
    rng, fate = random.Random(seed), Fate()
    for owner, names in (
        (Store, ("append", "set", "write_session", "trim")),
        (Lines, ("write", "flush")),
    ):
        for name in names:
            fate.watch(monkeypatch, owner, name)
    deaths = 0
    while deaths < 400:
        fate.left = rng.randrange(5, 60)
        checkpoint = Store(tmp_path / "checkpoint")
        runner = start(tmp_path, "out", checkpoint)
        try:
            runner.run()
        except Killed:
            deaths += 1
            continue
        finally:
            fate.left = 0
            close(runner)
        break
    assert 0 < deaths < 400
    assert written(tmp_path, "out") == undisturbed[1]


def test_two_runs_cannot_share_a_folder(tmp_path):
    first = Store(tmp_path)
    with pytest.raises(InvalidInputError, match="in use"):
        Store(tmp_path)
    first.close()
    Store(tmp_path).close()


def test_a_finished_run_called_again_adds_nothing(tmp_path, undisturbed):
    finish(start(tmp_path, "out", Store(tmp_path / "checkpoint")))
    totals = finish(start(tmp_path, "out", Store(tmp_path / "checkpoint")))
    assert totals == undisturbed[0]
    assert written(tmp_path, "out") == undisturbed[1]
