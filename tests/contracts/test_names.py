"""A module does not share its name with what it exports: one of the two would hide the other."""

import importlib
import pkgutil

import pytest

import baryflow

ROOMS = ("cli", "datasets", "features", "page", "tep")


def modules():
    for room in ROOMS:
        package = importlib.import_module(f"baryflow.{room}")
        yield package.__name__
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield found.name


@pytest.mark.parametrize("name", list(modules()))
def test_no_module_shares_its_name_with_what_it_exports(name):
    parent, _, own = name.rpartition(".")
    assert not hasattr(importlib.import_module(name), own)
    # What the package exports must not hide the module either.
    assert getattr(importlib.import_module(parent), own) is importlib.import_module(name)


def test_the_rooms_are_there():
    assert set(ROOMS) <= {found.name for found in pkgutil.iter_modules(baryflow.__path__)}
