"""A row on which the model fails does not stop a target of a fleet: it is quarantined, now and later."""

import json

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.distributed.fleet.worker import JobContext, Plan, Slice, Target
from baryflow.distributed.store import place
from baryflow.runtime import Rows

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
FATAL = 17.25


@pytest.fixture
def context(tmp_path):
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
        P.X, P.y, P.domain
    )
    source, state, output, events = (place(tmp_path / name) for name in "abcd")
    plan = Plan(source.url, output.url, "key", None, [*"wxyz"], 16, "report", 40, events.url)
    state.keep(plan, "plan.bary")
    state.write("model.bary", model.to_bytes())
    return JobContext(source, state, output, str(tmp_path), events)


def advance(context, rows, start):
    target = Target(context, "pump", [(0, 40), (40, 80)])
    target.look()
    positions = np.arange(start + 1, start + 41)
    target.take(Slice(Rows(rows, positions, [""] * 40, [""] * 40), [], start, start + 40))
    list(target.advance())
    return target


def lines(path):
    return path.read_text().splitlines()


def test_a_row_on_which_the_model_fails_is_quarantined(context, tmp_path, monkeypatch):
    predict_proba = OnlineDaDiL.predict_proba

    def broken(self, X):
        if (np.asarray(getattr(X, "values", X)) == FATAL).any():
            raise ArithmeticError("cannot predict this")
        return predict_proba(self, X)

    monkeypatch.setattr(OnlineDaDiL, "predict_proba", broken)
    rows = P.X_target[:80].copy()
    rows[20, 1] = FATAL
    target = advance(context, rows[:40], 0)
    counts = target.counts
    assert (counts.rows, counts.used, counts.predicted, counts.quarantined) == (40, 39, 39, 1)
    bad = [json.loads(line) for path in tmp_path.rglob("c/_quarantine/*/*") for line in lines(path)]
    assert [row["position"] for row in bad] == [21]
    assert "cannot predict this" in bad[0]["reason"]
    told = [json.loads(line) for path in tmp_path.rglob("d/*/*") for line in lines(path)]
    assert [one["position"] for one in told if one["event"] == "quarantine"] == [21]
    assert advance(context, rows[40:], 40).counts.predicted == 79
