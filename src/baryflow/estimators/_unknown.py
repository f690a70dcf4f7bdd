"""Answers for rows that are like nothing known."""

from __future__ import annotations

from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, as_real


def check_unknown(novelty: float | None) -> None:
    """Check from which novelty on a row is unknown."""
    if novelty is not None:
        as_real(novelty, "unknown", low=0.0, high=1.0)


def list_answers(model: Any) -> Any:
    """Return all that a fitted model can answer, as its answers are: classes, and the unknown if any."""
    classes = model.classes_
    if model.unknown is None:
        return classes
    novel = np.arange(len(classes) + 1) == len(classes)
    return mark_unknown(np.append(classes, classes[:1]), novel, model.unknown_label, classes)


def name_unknown(unknown_label: Any, classes: Any) -> Any:
    """Return the label of the unknown; without one -1 if classes are numbers, otherwise "unknown"."""
    if unknown_label is not None:
        return unknown_label
    return -1 if classes.dtype.kind in "biuf" else "unknown"


def mark_unknown(labels: Any, novel: Booleans, unknown_label: Any, classes: Any) -> Any:
    """Return labels in which novel rows have the label of the unknown."""
    numbered = classes.dtype.kind in "biuf"
    label = name_unknown(unknown_label, classes)
    if label in classes.tolist():
        raise InvalidInputError(f"{label!r} is a class: choose another unknown_label, one that is not")
    same_kind = isinstance(label, str) != numbered
    kind = np.result_type(labels.dtype, np.asarray(label).dtype) if same_kind else object
    answers = labels.astype(kind)
    answers[novel] = label
    return answers
