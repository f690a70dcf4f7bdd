"""How far a fit is."""

import io
import os
import re

import numpy as np
import pytest

from baryflow import DaDiL, OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators import _progress as progress

P = make_domains(n_sources=3, n_classes=3, n_per_class=20, random_state=0)
STEPS = [(done, 6) for done in range(1, 7)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def fit(**options):
    return OnlineDaDiL(classifier="linear", random_state=0, **options).fit(P.X, P.y, P.domain)


def test_a_fit_says_nothing_unless_it_is_asked(capsys):
    fit()
    assert capsys.readouterr() == ("", "")


def test_in_a_log_every_step_is_a_line(capsys):
    fit(verbose=True)
    out, err = capsys.readouterr()
    assert out == ""
    lines = [re.fullmatch(r"baryflow: (\d) of (\d), [a-z -]+", line) for line in err.splitlines()]
    assert [(int(line[1]), int(line[2])) for line in lines] == STEPS


def test_on_a_terminal_one_line_overwrites_itself(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress.shutil, "get_terminal_size", lambda: os.terminal_size((40, 24)))
    fit(verbose=True)
    written = terminal.getvalue()
    first, *parts = written.split("\r")
    assert first == ""
    assert len(parts) == len(STEPS)
    assert {len(part.rstrip("\n")) for part in parts} == {39}  # what is longer would break the line
    assert written.count("\n") == 1
    assert written.endswith("\n")


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_function_of_the_users_is_told(n_jobs):
    told = []
    model = fit(verbose=lambda done, total, what: told.append((done, total, what)), n_jobs=n_jobs)
    assert [step[:2] for step in told] == STEPS
    assert {what for *_, what in told} == {
        "fitting leave-one-source-out folds",
        "predicting left-out sources",
    }
    assert np.array_equal(model.predict_proba(P.X_target), fit().predict_proba(P.X_target))


def test_the_offline_estimator_tells_too(capsys):
    domain = np.where(P.domain == 1, -1, P.domain)
    DaDiL(classifier="linear", verbose=True, random_state=0).fit(P.X, P.y, domain)
    assert len(capsys.readouterr().err.splitlines()) == 4
