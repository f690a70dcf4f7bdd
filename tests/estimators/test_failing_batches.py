"""A batch that fails changes nothing, wherever it fails."""

import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import baryflow
from baryflow import OnlineDaDiL, OnlineGaussianMixture
from baryflow.datasets import make_domains

LIBRARY = f"{Path(baryflow.__file__).parent}/"
P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=20, random_state=0)


class InjectedError(Exception):
    pass


@contextmanager
def failing_at(number):
    """Raise at the call of this number into the library; yield a list that counts the calls."""
    calls = []

    def count(frame, event, _):
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        # An error in a generator that is being closed goes nowhere.
        counts = event == "call" and name != "<genexpr>" and not path.endswith("threads.py")
        if counts and path.startswith(LIBRARY):
            calls.append(name)
            if len(calls) == number:
                raise InjectedError

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def online(**options):
    options = {"classifier": "linear", "validate": False, "keep_sources": True} | options
    model = OnlineDaDiL(random_state=0, **options).fit(P.X, P.y, P.domain)
    return model.partial_fit(P.X_target[:20])


MODELS = {
    "default": online,
    "forgetting": lambda: online(half_life=30.0),
    "all classifiers": lambda: online(classifier=None),
    "mixture": lambda: OnlineGaussianMixture(5).fit(P.X_target[:20]),
}
CALLS = {
    "partial_fit": lambda model: model.partial_fit(P.X_target[20:40]),
    "forget": lambda model: model.forget(0.5),
    "set_baseline": lambda model: model.set_baseline(P.X_target[:5], 0),
    "add_source": lambda model: model.add_source(P.X_target, P.y_target, 9),
}


@pytest.mark.parametrize(
    ("name", "call"),
    [(name, "partial_fit") for name in MODELS] + [("default", call) for call in list(CALLS)[1:]],
)
def test_wherever_a_call_fails_it_changes_nothing(name, call):
    model, change = MODELS[name](), CALLS[call]
    before = model.to_bytes()
    again = type(model).from_bytes(before)
    with failing_at(0) as calls:
        change(again)
    # The next call may need fewer of them, where something is cached.
    for number in np.unique(np.linspace(1, 0.9 * len(calls), 15).astype(int)):
        with pytest.raises(InjectedError), failing_at(number):
            change(model)
        assert model.to_bytes() == before
    change(model)  # the retry counts the batch once
    assert model.to_bytes() == again.to_bytes() != before


def test_a_warning_made_an_error_leaves_the_batch_out():
    model = online()
    before = model.to_bytes()
    X = P.X_target[20:40].copy()
    X[3, 1] = 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="column 1"):
            model.partial_fit(X)
    assert model.n_samples_seen_ == 20
    assert model.columns_ == {}
    assert model.to_bytes() == before
    with pytest.warns(UserWarning, match="column 1"):
        model.partial_fit(X)
    assert model.n_samples_seen_ == 40
