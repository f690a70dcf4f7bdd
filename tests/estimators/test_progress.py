"""How far a fit is."""

import io
import os
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


class Clock:
    """Time that passes when told so."""

    now = 100.0

    def __call__(self):
        return self.now


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


# -- the estimate, with a clock of its own -----------------------------------------------------------


def test_what_tasks_cost_is_learned_from_those_that_are_done():
    clock, told = Clock(), []
    schedule = progress.Schedule(
        lambda done, total, what: told.append((done / total, clock.now - 100.0, what)),
        {"fit": [10.0, 30.0, 10.0], "run": [10.0, 10.0]},
        clock,
    )
    for kind, size, seconds in (("fit", 10.0, 2.0), ("fit", 30.0, 6.0), ("fit", 10.0, 2.0)):
        clock.now += seconds
        schedule.finish(kind, size, seconds)
    assert [share for share, *_ in told] == [0.14, 0.57, 0.71]  # of 14 seconds
    clock.now += 5.0  # slower than expected: the bar waits, and the estimate is right again
    schedule.finish("run", 10.0, 5.0)
    assert told[-1] == (15 / 20, 15.0, "run")
    clock.now += 5.0
    schedule.finish("run", 10.0, 5.0)
    schedule.end("run")
    assert told[-1] == (1.0, 20.0, "run")


def test_tasks_that_run_at_the_same_time_are_done_in_part():
    clock, told = Clock(), []
    schedule = progress.Schedule(lambda done, *_: told.append(done), {"fit": [1.0] * 4}, clock)
    clock.now += 7.0  # until the processes have started
    schedule.start(2)
    clock.now += 10.0
    schedule.finish("fit", 1.0, 10.0)
    schedule.finish("fit", 1.0, 10.0)
    clock.now += 10.0
    schedule.finish("fit", 1.0, 10.0)
    schedule.finish("fit", 1.0, 10.0)
    assert told == [62, 62, 99, 99]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.1, 10.0)), min_size=1, max_size=12))
def test_progress_never_goes_back_and_ends(tasks):
    clock, told = Clock(), []
    sizes = {kind: [1.0] * sum(one == kind for one, _ in tasks) for kind in "ab"}
    schedule = progress.Schedule(lambda done, *_: told.append(done), sizes, clock)
    for kind, seconds in tasks:
        clock.now += seconds
        schedule.finish(kind, 1.0, seconds)
    schedule.end("b")
    assert told == sorted(told)
    assert told[-1] == 100
    assert all(0 <= done < 100 for done in told[:-1])


def test_the_time_that_is_left_follows_the_rate_so_far():
    assert progress.time_left(25, 100, 10.0) == 30.0
    assert progress.time_left(0, 100, 10.0) is None
    assert progress.time_left(100, 100, 10.0) is None
