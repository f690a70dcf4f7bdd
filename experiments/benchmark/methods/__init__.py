"""The methods, by name. To add one, write a class like :class:`Method` and add it to :data:`METHODS`.

Only ``fit``, ``update`` and ``predict`` or ``predict_proba`` must be written. What else a method can
learn from follows from what it has: ``learn(X, y)`` for labels, ``set_baseline(X, label)`` for rows
known to be of one class, ``set_prior(proportions)`` for class proportions. ``finish()`` is called when a
stream has ended.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec

#: Module and class of each method; what runs first stands first.
METHODS = {
    "OnlineDaDiL": "ours.Online",
    "raw": "plain.Raw",
    "standardised": "plain.Standardised",
    "picked": "plain.Picked",
    "EM": "label_shift.EM",
    "BBSE": "label_shift.BBSE",
    "LAME": "test_time.LAME",
    "T3A": "test_time.T3A",
    "CORAL": "alignment.CORAL",
    "linear OT": "alignment.LinearOT",
    "subspace alignment": "alignment.SubspaceAlignment",
    "skada: multi-linear Monge": "with_skada.MultiLinearMonge",
    "skada: class-regularised OT": "with_skada.ClassRegularisedOT",
    "the paper": "ours.Paper",
    "DaDiL": "ours.Offline",
}
OURS = "OnlineDaDiL"


def make(name):
    """Return a new method."""
    module, _, cls = METHODS[name].partition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), cls)()


def is_installed(name):
    """Return whether what a method needs beyond this project is there."""
    return not name.startswith("skada") or find_spec("skada") is not None


def file_name(name):
    """Return the name of the file with the results of a method."""
    return name.lower().replace(":", "").replace(" ", "_") + ".csv"
