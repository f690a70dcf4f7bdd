"""Answers for rows that are like nothing known."""

from __future__ import annotations

from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans


def mark_unknown(labels: Any, novel: Booleans, unknown_label: Any, classes: Any) -> Any:
    """Return labels in which novel rows have the label of the unknown.

    Without one it is -1 for numbered classes and "unknown" for named ones.
    """
    numbered = classes.dtype.kind in "biuf"
    label = unknown_label
    if label is None:
        label = -1 if numbered else "unknown"
    if label in classes.tolist():
        raise InvalidInputError(f"{label!r} is a class: choose another unknown_label, one that is not")
    same_kind = isinstance(label, str) != numbered
    kind = np.result_type(labels.dtype, np.asarray(label).dtype) if same_kind else object
    answers = labels.astype(kind)
    answers[novel] = label
    return answers
