"""Parameters that the offline and the online estimator share: checked, and put into options."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from baryflow.core.summary import Settings
from baryflow.estimators._classifiers import ScikitClassifier, choose_classifiers
from baryflow.estimators._domains import check_classes, expect_proportions
from baryflow.estimators._input import draw_seed
from baryflow.estimators._progress import ConsoleLine, Progress
from baryflow.estimators._sources import SourceKnowledge, SourceOptions
from baryflow.estimators._state import row_settings
from baryflow.estimators._unknown import check_unknown
from baryflow.exceptions import InvalidInputError
from baryflow.validation import as_count


def source_options(estimator: Any, classes: Any, n_sources: int) -> SourceOptions:
    """Check and collect an estimator's parameters for the sources."""
    check_classes(classes)
    check_atoms(estimator.n_atoms, n_sources)
    choose_classifiers(estimator.classifier)  # checks
    seed = int(np.random.default_rng(draw_seed(estimator.random_state)).integers(2**31))
    return SourceOptions(
        n_atoms=estimator.n_atoms,
        seed=seed,
        class_prior=expect_proportions(estimator.class_prior, classes),
        label_shift=bool(estimator.label_shift),
    )


def check_atoms(n_atoms: int | None, n_sources: int) -> None:
    """Refuse more atoms than there are sources: each starts from one."""
    if n_atoms is not None and as_count(n_atoms, "n_atoms") > n_sources:
        raise InvalidInputError(
            f"n_atoms is {n_atoms}, but there are only {n_sources} source(s) to start atoms from: lower "
            "it, or leave it out"
        )


def progress_of(estimator: Any) -> Progress | None:
    """Return what is called with the progress of a fit: the user's function, or a console line."""
    if callable(estimator.verbose):
        return estimator.verbose  # type: ignore[no-any-return]
    return ConsoleLine() if estimator.verbose else None


def follow_settings(estimator: Any, n_classes: int) -> tuple[Settings, bool]:
    """Check the parameters with which a target is followed.

    Return how rows are summarised, and whether class proportions are estimated.
    """
    check_unknown(estimator.unknown)
    if estimator.target_components is not None:
        as_count(estimator.target_components, "target_components")
    settings = row_settings(
        n_classes, max_components=estimator.target_components, half_life=estimator.half_life
    )
    return settings, bool(estimator.label_shift)


#: Parameters that cannot change between fit and the end of a stream.
_FIXED = ("n_atoms", "classifier", "class_prior", "validate", "adapt", "keep_sources")


def remember_fixed(estimator: Any) -> dict[str, Any]:
    """Return the parameters with which sources are learned."""
    return {name: copy(getattr(estimator, name)) for name in _FIXED}


def require_unchanged(estimator: Any, learned: Mapping[str, Any], *, but: tuple[str, ...] = ()) -> None:
    """Refuse to continue with other parameters than the sources were learned with."""
    for name, before in learned.items():
        now = getattr(estimator, name)
        if name not in but and not _same(now, before):
            raise InvalidInputError(
                f"{name} was {before!r} when the sources were learned and is now {now!r}: set it back, "
                "or call fit again"
            )


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) or isinstance(b, Mapping):
        return isinstance(a, Mapping) and isinstance(b, Mapping) and dict(a) == dict(b)
    if isinstance(a, (list, tuple)) and any(isinstance(one, BaseEstimator) for one in a):
        return isinstance(b, (list, tuple)) and list(map(repr, a)) == list(map(repr, b))
    if isinstance(a, BaseEstimator) or isinstance(b, BaseEstimator):
        return repr(a) == repr(b)
    return np.array_equal(np.asarray(a, dtype=object), np.asarray(b, dtype=object))


def restore_classifier(estimator: Any, knowledge: SourceKnowledge) -> None:
    """Set the parameter `classifier` of a loaded model: a user's own is in what was learned."""
    if not isinstance(estimator.classifier, list):
        return
    restored = [
        clone(one.estimator) if isinstance(one, ScikitClassifier) else name
        for name, one in zip(knowledge.plain.names, knowledge.plain.raw, strict=True)
    ]
    estimator.classifier = restored if len(restored) > 1 else restored[0]
