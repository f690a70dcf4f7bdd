"""Every public callable says what it takes, what it returns, and what it raises where it checks."""

import builtins
import inspect
import re

import pytest
import sklearn.exceptions

import baryflow
import baryflow.exceptions
from baryflow import datasets, distributed, drift, features, metrics, model_selection, page, paper

#: Where users find names.
DOORS = (baryflow, datasets, distributed, drift, features, metrics, model_selection, page, paper)
#: Where the callables live that are held to it: all that is ours.
HELD = (
    "baryflow.core",
    "baryflow.estimators",
    "baryflow.persistence",
    "baryflow.model_selection",
    "baryflow.metrics",
    "baryflow.datasets",
    "baryflow.distributed",
    "baryflow.page",
    "baryflow.drift",
    "baryflow.features",
    "baryflow.paper",
)
#: Those that take what comes: parameters are checked by fit, and not every model can learn.
UNCHECKED = {
    "accuracy",
    "balanced_accuracy",
    "last_step",
    "learns_from_rows",
}


def sections(text):
    """Return the numpydoc sections of a docstring, name → lines."""
    lines = inspect.cleandoc(text or "").split("\n")
    starts = [i for i, below in enumerate(lines[1:]) if lines[i] and re.fullmatch("-{3,}", below)]
    ends = [*starts[1:], len(lines)]
    return {lines[a]: lines[a + 2 : b] for a, b in zip(starts, ends, strict=True)}


def described(lines):
    """Return the names that a section describes."""
    heads = [line.split(" : ")[0] for line in lines if line and not line.startswith(" ")]
    return {name.strip("* ") for head in heads for name in head.split(",")}


def public():
    """Yield name, docstring and signature of the public names and of their public methods."""
    for name, thing in {name: getattr(door, name) for door in DOORS for name in door.__all__}.items():
        if not callable(thing) or not getattr(thing, "__module__", "").startswith(HELD):
            continue
        yield name, thing.__doc__, inspect.signature(thing), inspect.isclass(thing)
        if inspect.isclass(thing):
            for method, kind in inspect.getmembers(thing, inspect.isroutine):
                # What scikit-learn gives to all estimators it describes itself.
                ours = (getattr(kind, "__module__", None) or "").startswith("baryflow")
                if ours and not method.startswith("_"):
                    yield f"{name}.{method}", kind.__doc__, inspect.signature(kind), False


CALLABLES = {name: rest for name, *rest in public()}


def test_there_is_something_to_check():
    assert {"Mixture", "Mixture.posterior", "barycenter", "w2_squared"} <= CALLABLES.keys()


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_is_described(name):
    doc, signature, is_class = CALLABLES[name]
    found = sections(doc)
    # A dataclass takes what its attributes are.
    told = described(found.get("Parameters", found.get("Attributes", []) if is_class else []))
    taken = signature.parameters.keys() - {"self"}
    assert told == taken


@pytest.mark.parametrize("name", [name for name, (*_, is_class) in CALLABLES.items() if not is_class])
def test_what_is_returned_is_described(name):
    doc, signature, _ = CALLABLES[name]
    returns = signature.return_annotation not in (None, "None")
    assert (not sections(doc).keys().isdisjoint({"Returns", "Yields"})) == returns


@pytest.mark.parametrize("name", CALLABLES)
def test_what_is_raised_is_described_and_exists(name):
    doc, signature, is_class = CALLABLES[name]
    raised = described(sections(doc).get("Raises", []))
    assert raised <= {*dir(baryflow.exceptions), *dir(sklearn.exceptions), *dir(builtins)}
    if not is_class and signature.parameters.keys() - {"self"}:  # whatever is taken is checked
        assert bool(raised) != (name in UNCHECKED)


def test_a_missing_parameter_would_be_found():
    text = """Do it.

    Parameters
    ----------
    X, y : arrays
        Rows.

    Returns
    -------
    float
    """
    found = sections(text)
    assert described(found["Parameters"]) == {"X", "y"}
    assert found.keys() == {"Parameters", "Returns"}
