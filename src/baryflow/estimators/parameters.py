"""Parameters that the offline and the online estimator share: checked, and put into options."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from baryflow.core.dictionary import DAMPED
from baryflow.core.settings import PaperSettings, Settings
from baryflow.estimators.adaptation import Options
from baryflow.estimators.decision import weights_of
from baryflow.estimators.domains import check_classes, expect_proportions
from baryflow.estimators.follower import Manner
from baryflow.estimators.progress import tell
from baryflow.estimators.random_state import draw_seed
from baryflow.estimators.rehearsal import Progress
from baryflow.estimators.sources import SourceOptions
from baryflow.estimators.target import paper_settings, row_settings
from baryflow.estimators.unknown import check_unknown
from baryflow.exceptions import InvalidInputError
from baryflow.validation import as_choice, as_count, as_real

#: The paper's own method, as parameters of :class:`baryflow.OnlineDaDiL`.
PAPER: dict[str, Any] = {
    "components_per_class": 1,
    "view": False,
    "proportions": False,
    "votes": False,
    "predictor": "map",
    "rehearse": False,
    "warm_start": True,
    "n_steps": 1,
    "proximal": DAMPED,
    "target_mixture": "paper",
}


def source_options(estimator: Any, classes: Any, n_sources: int) -> SourceOptions:
    """Check and collect an estimator's parameters for the sources."""
    check_classes(classes)
    check_atoms(estimator.n_atoms, n_sources)
    seed = int(np.random.default_rng(draw_seed(estimator.random_state)).integers(2**31))
    return SourceOptions(
        view=bool(estimator.view),
        scaled=getattr(estimator, "target_mixture", "rows") != "paper",
        components_per_class=as_count(estimator.components_per_class, "components_per_class"),
        n_atoms=estimator.n_atoms,
        seed=seed,
        class_prior=expect_proportions(estimator.class_prior, classes),
    )


def check_atoms(n_atoms: int | None, n_sources: int) -> None:
    """Refuse more atoms than there are sources: each starts from one."""
    if n_atoms is not None and as_count(n_atoms, "n_atoms") > n_sources:
        raise InvalidInputError(
            f"n_atoms is {n_atoms}, but there are only {n_sources} source(s) to start atoms from: lower "
            "it, or leave it out"
        )


def switches(estimator: Any) -> Options:
    """Return which pieces of an adaptation take part."""
    return Options(bool(estimator.proportions), bool(estimator.votes))


def progress_of(estimator: Any) -> Progress | None:
    """Return what is told how far a fit is: a function of the user's, or a line on standard error."""
    if callable(estimator.verbose):
        return estimator.verbose  # type: ignore[no-any-return]
    return tell if estimator.verbose else None


def check_following(estimator: Any) -> None:
    """Check the parameters with which a target is followed, whenever they are used."""
    as_count(estimator.n_steps, "n_steps")
    as_real(estimator.ramp, "ramp", low=0.0)
    as_real(estimator.proximal, "proximal", low=0.0, open_low=True)
    as_choice(estimator.target_mixture, "target_mixture", ("rows", "paper"))
    weights_of(estimator.predictor)
    if estimator.target_mixture == "paper" and (
        estimator.view
        or estimator.votes
        or estimator.proportions
        or estimator.rehearse
        or estimator.predictor == "auto"
    ):
        raise InvalidInputError(
            "target_mixture='paper' keeps neither full covariances nor votes: it needs view=False, "
            "votes=False, proportions=False, rehearse=False and a predictor that is not 'auto', as "
            "in OnlineDaDiL.paper()"
        )
    for name in ("target_components", "batch_components"):
        if getattr(estimator, name) is not None:
            as_count(getattr(estimator, name), name)
    check_unknown(estimator.unknown)


def manner_of(estimator: Any, n_classes: int) -> Manner:
    """Return how an estimator follows a target."""
    check_following(estimator)
    settings: Settings | PaperSettings
    if estimator.target_mixture == "rows":
        settings = row_settings(
            n_classes,
            view=bool(estimator.view),
            max_components=estimator.target_components,
            half_life=estimator.half_life,
        )
    else:
        settings = paper_settings(
            n_classes,
            max_components=estimator.target_components,
            batch_components=estimator.batch_components,
            half_life=estimator.half_life,
        )
    return Manner(
        settings,
        switches(estimator),
        n_steps=estimator.n_steps,
        proximal=estimator.proximal,
        ramp=estimator.ramp,
        warm_start=bool(estimator.warm_start),
        freeze_sources=not estimator.warm_start,
    )


#: Parameters that cannot change between fit and the end of a stream.
_FIXED = (
    "n_atoms", "components_per_class", "view", "proportions", "votes", "predictor", "class_prior",
    "rehearse", "target_mixture", "keep_sources",
)  # fmt: skip


def remember_fixed(estimator: Any) -> dict[str, Any]:
    """Return the parameters with which sources are learned."""
    return {name: copy(getattr(estimator, name)) for name in _FIXED}


def require_unchanged(estimator: Any, learned: Mapping[str, Any], *, but: tuple[str, ...] = ()) -> None:
    """Refuse to go on with other parameters than the sources were learned with."""
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
    return np.array_equal(np.asarray(a, dtype=object), np.asarray(b, dtype=object))
