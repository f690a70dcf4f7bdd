"""Reliability is the same figure wherever it is shown."""

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.runtime.session import Rows, SessionConfig
from baryflow.service.view import picture
from baryflow.service.worker_targets import detail, summarize
from baryflow.streams import Label

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)


def take(session, start, n):
    values = P.X_target[start : start + n]
    return session.apply(Rows(values, np.arange(start + 1, start + n + 1), [""] * n, [""] * n))


def test_list_detail_chart_report_and_records_show_one_reliability():
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    session = SessionConfig(model.fit(P.X, P.y, P.domain), 8, "off").begin()
    for start in range(0, 120, 8):
        result = take(session, start, 8)
        check(session)
        assert result.events[-1].details["reliability"] == pytest.approx(session.model.reliability_)
    labels = [Label(int(P.y_target[i]), position=i + 1, certify=True) for i in range(100, 120)]
    session.label(labels)
    check(session)
    record = take(session, 120, 1).records[0]
    assert record["reliability"] == pytest.approx(session.model.reliability_, abs=1e-5)


def check(session):
    reliability = session.model.reliability_
    shown = [summarize(session)["reliability"], detail(session)["reliability"]]
    shown += [picture(session)["history"]["reliability"][-1], session.model.reliability_]
    assert shown == pytest.approx([reliability] * 4, abs=1e-5)
    assert f"Reliability of the last batch: {reliability:.0%}" in session.model.report()
