"""One BLAS thread inside, and outside what was set there."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators import _leave_one_out
from baryflow.estimators._classifiers import CLASSIFIERS
from baryflow.estimators._sources import LabelledRows, SourceOptions
from baryflow.estimators._threads import one_thread


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread only")
        yield


@one_thread
def wait(arrived, leave):
    arrived.set()
    leave.wait(10.0)
    return blas_threads()


def test_inside_is_one_thread_also_nested(two_threads):
    inside = one_thread(lambda: (one_thread(blas_threads)(), blas_threads()))
    assert inside() == ({1}, {1})
    assert blas_threads() == {2}


def test_an_error_inside_leaves_what_was_set(two_threads):
    with pytest.raises(ZeroDivisionError):
        one_thread(lambda: 1 // 0)()
    assert blas_threads() == {2}


@pytest.mark.parametrize("first_out", [0, 1])
def test_callers_leave_in_any_order(two_threads, first_out):
    arrived, leave = [Event(), Event()], [Event(), Event()]
    with ThreadPoolExecutor(2) as pool:
        calls = []
        for number in range(2):
            calls.append(pool.submit(wait, arrived[number], leave[number]))
            assert arrived[number].wait(10.0)
        leave[first_out].set()
        calls[first_out].result()
        assert blas_threads() == {1}  # someone is still inside
        leave[1 - first_out].set()
        assert calls[1 - first_out].result() == {1}
        assert blas_threads() == {2}


def test_folds_run_in_one_thread_wherever_they_run(two_threads, monkeypatch):
    p = make_domains(n_sources=3, n_classes=3, n_per_class=20, random_state=0)
    parts = [p.domain == number for number in (1, 2, 3)]
    sources = LabelledRows([p.X[part] for part in parts], [p.y[part] for part in parts], 3)
    seen, adapt = [], _leave_one_out.adapt

    def probe(*arguments, **named):
        seen.append(blas_threads())
        return adapt(*arguments, **named)

    monkeypatch.setattr(_leave_one_out, "adapt", probe)
    classifiers = {"linear": CLASSIFIERS["linear"]}
    _leave_one_out.learn(sources, classifiers, SourceOptions(), validate=True)
    assert len(seen) > 3
    assert all(found == {1} for found in seen)


def test_the_estimator_runs_in_one_thread(two_threads):
    p = make_domains(n_sources=2, n_classes=2, n_per_class=20, random_state=0)
    seen = []
    model = OnlineDaDiL(classifier="linear", verbose=lambda *_: seen.append(blas_threads()))
    model.fit(p.X, p.y, p.domain)
    assert seen
    assert all(found == {1} for found in seen)
    assert blas_threads() == {2}
