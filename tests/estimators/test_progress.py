"""How far a fit is."""

import io
import os
import re

import numpy as np
import pytest

from baryflow import DaDiL, OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators import _leave_one_out
from baryflow.estimators import _progress as progress

P = make_domains(n_sources=3, n_classes=3, n_per_class=20, random_state=0)
#: One fit of all sources and three folds, which are fitted and then predicted; and the end.
N_REPORTS = 8


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
    lines = [
        re.fullmatch(r"baryflow: (\d+)%, [a-z -]+(, \d+ s left)?", line) for line in err.splitlines()
    ]
    shares = [int(line[1]) for line in lines]
    assert len(shares) == N_REPORTS
    assert shares == sorted(shares)
    assert shares[-1] == 100


def test_on_a_terminal_one_line_overwrites_itself(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress.shutil, "get_terminal_size", lambda: os.terminal_size((40, 24)))
    fit(verbose=True)
    written = terminal.getvalue()
    first, *parts = written.split("\r")
    assert first == ""
    assert len(parts) == N_REPORTS
    assert {len(part.rstrip("\n")) for part in parts} == {39}  # what is longer would break the line
    assert written.count("\n") == 1
    assert written.endswith("\n")


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_a_function_of_the_users_is_told(n_jobs):
    told = []
    model = fit(verbose=lambda done, total, what: told.append((done, total, what)), n_jobs=n_jobs)
    assert len(told) == N_REPORTS
    assert [done for done, *_ in told] == sorted(done for done, *_ in told)
    assert told[-1][0] == told[-1][1]
    assert {what for *_, what in told} == {
        "fitting leave-one-source-out folds",
        "predicting left-out sources",
    }
    assert np.array_equal(model.predict_proba(P.X_target), fit().predict_proba(P.X_target))


def test_the_offline_estimator_tells_too(capsys):
    domain = np.where(P.domain == 1, -1, P.domain)
    DaDiL(classifier="linear", verbose=True, random_state=0).fit(P.X, P.y, domain)
    assert len(capsys.readouterr().err.splitlines()) == 6


def test_slow_folds_are_fitted_in_processes_with_the_same_outcome(monkeypatch):
    alone = fit(n_jobs=1).set_params(n_jobs=None)
    monkeypatch.setattr(_leave_one_out, "_WORTH_PROCESSES", 0.0)
    started = []
    monkeypatch.setattr(_leave_one_out, "cpu_count", lambda: started.append(2) or 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)
    assert fit().to_bytes() == alone.to_bytes()
    assert started


def test_a_busy_machine_gets_no_further_processes(monkeypatch):
    monkeypatch.setattr(_leave_one_out, "_WORTH_PROCESSES", 0.0)
    monkeypatch.setattr(_leave_one_out, "cpu_count", None)  # not asked for
    monkeypatch.setattr(os, "getloadavg", lambda: (1e6, 1e6, 1e6), raising=False)
    fit()


def test_the_time_that_is_left_follows_the_rate_so_far():
    assert progress.time_left(25, 100, 10.0) == 30.0
    assert progress.time_left(0, 100, 10.0) is None
    assert progress.time_left(100, 100, 10.0) is None
