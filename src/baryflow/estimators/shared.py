"""What the offline and the online estimator have in common: arguments in, words out."""

from __future__ import annotations

from typing import Any

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain
from baryflow.core.mixture import Mixture
from baryflow.core.quadratic import simplex_least_squares
from baryflow.estimators.adaptation import PREDICTORS, Options, Voter
from baryflow.estimators.decision import Decision
from baryflow.estimators.random_state import draw_seed
from baryflow.estimators.sources import SourceOptions
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_count

TARGET = "target"


def source_options(estimator: Any) -> SourceOptions:
    """Check and collect an estimator's parameters for the sources."""
    if estimator.n_atoms is not None:
        as_count(estimator.n_atoms, "n_atoms")
    seed = int(np.random.default_rng(draw_seed(estimator.random_state)).integers(2**31))
    return SourceOptions(
        view=bool(estimator.view),
        components_per_class=as_count(estimator.components_per_class, "components_per_class"),
        n_atoms=estimator.n_atoms,
        seed=seed,
    )


def default_options(estimator: Any) -> Options:
    """Return what an estimator does if nothing is decided."""
    choices = ("auto", *PREDICTORS)
    if estimator.predictor not in choices:
        raise InvalidInputError(f"predictor must be one of {choices}, got {estimator.predictor!r}")
    predictor: Any = "combined" if estimator.predictor == "auto" else estimator.predictor
    voter: Voter = "pooled" if predictor == "source" else "both"
    return Options(predictor, voter, bool(estimator.proportions), bool(estimator.votes))


def split_domains(sample_domain: Any, n: int, target: Any) -> tuple[Any, Any]:
    """Return the domain of every row, and which rows are the target's."""
    if sample_domain is None:
        return np.ones(n, dtype=np.intp), np.zeros(n, dtype=bool)
    names = np.asarray(sample_domain)
    if names.shape != (n,):
        raise InvalidInputError(
            f"expected sample_domain to have shape (n_samples={n},), got {names.shape}"
        )
    names = _checked_names(names)
    if target is not None:
        is_target = names == target
        if not is_target.any():
            known = ", ".join(map(str, np.unique(names)[:10]))
            raise InvalidInputError(f"no row belongs to the target {target!r}; domains are: {known}")
        return names, is_target
    if names.dtype.kind == "i":
        return names, names < 0
    return names, np.zeros(n, dtype=bool)


def _checked_names(names: Any) -> Any:
    """Return names as strings or as integers other than 0; nothing else can name a domain."""
    if names.dtype == object and all(isinstance(name, (int, np.integer)) for name in names):
        names = names.astype(np.int64)
    if names.dtype.kind == "f" and np.isfinite(names).all() and np.array_equal(names, np.round(names)):
        names = names.astype(np.int64)
    if names.dtype.kind in "iu":
        if (names == 0).any():
            raise InvalidInputError(
                "sample_domain must not hold 0: sources are positive, target rows negative"
            )
        return names.astype(np.int64)
    if names.dtype.kind not in "UO" or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(
            f"sample_domain must hold names or whole numbers, and not both; got {names.dtype}"
        )
    if (names == TARGET).any():
        raise InvalidInputError(f"no domain can be called {TARGET!r}: coordinates_ uses that name")
    return names


def check_new_source(name: Any, sources: list[Any]) -> None:
    """Refuse a name that is taken, or not of the kind of the other sources' names."""
    if name in sources:
        raise InvalidInputError(f"there is a source {name!r} already; sources: {sources}")
    split_domains(np.array([name]), 1, None)  # a name, or a number that is not 0
    if isinstance(name, str) != isinstance(sources[0], str) or (not isinstance(name, str) and name < 0):
        kind = "a string" if isinstance(sources[0], str) else "a positive number"
        raise InvalidInputError(f"name must be {kind} like those of the other sources, got {name!r}")


def by_source(X: Floats, codes: Any, names: Any) -> tuple[list[Floats], list[Any], list[Any]]:
    """Cut rows and class codes into sources; return them and the sources' names."""
    sources = np.unique(names)
    return (
        [X[names == name] for name in sources],
        [codes[names == name] for name in sources],
        sources.tolist(),
    )


def fill_gaps(X: Floats, fallback: Floats | None = None) -> Floats:
    """Return rows whose missing values are the mean of their column, or the fallback's."""
    missing = np.isnan(X)
    if not missing.any():
        return X
    counts = (~missing).sum(axis=0)
    if fallback is None and not counts.all():
        columns = np.flatnonzero(counts == 0).tolist()
        raise InvalidInputError(
            f"a source holds no value at all in column(s) {columns} of X: drop the column or the source"
        )
    means = np.where(missing, 0.0, X).sum(axis=0) / np.maximum(counts, 1)
    if fallback is not None:
        means = np.where(counts > 0, means, fallback)
    return np.where(missing, means, X)


def coordinates_of(names: list[Any], domains: list[Domain], target: Domain) -> dict[Any, Floats]:
    """Return the coordinates by domain name."""
    found = {name: domain.coordinates for name, domain in zip(names, domains, strict=True)}
    return found | {TARGET: target.coordinates}


def resemblance(names: list[Any], domains: list[Domain], target: Domain) -> dict[Any, float]:
    """Return the mixture of the sources' coordinates that comes nearest to the target's."""
    table = np.stack([domain.coordinates for domain in domains])
    # A little ridge shares the credit between sources that are the same.
    quadratic = table @ table.T + 1e-3 * np.eye(len(table))
    shares = simplex_least_squares(quadratic, table @ target.coordinates)
    return {name: float(share) for name, share in zip(names, shares, strict=True)}


def atoms_of(dictionary: Dictionary) -> list[Mixture]:
    """Return the atoms as labelled mixtures of uniform weight."""
    d, k = dictionary.n_features, dictionary.n_slots
    return [
        Mixture(
            np.full(k, 1.0 / k),
            atom[:, :d],
            atom[:, d : 2 * d],
            atom[:, 2 * d :] / atom[:, 2 * d :].sum(axis=1, keepdims=True),
        )
        for atom in dictionary.atoms
    ]


def describe(
    classes: Any,
    sources: list[Any],
    decision: Decision,
    shares: dict[Any, float],
    proportions: Floats | None,
) -> str:
    """Put the state of an adaptation into words."""
    lines = [f"{len(sources)} source(s), {len(classes)} classes."]
    option = decision.options
    if option.predictor == "source" and option.voter == "pooled":
        lines.append("Decision: do not adapt; predict with the sources' classifier.")
    else:
        lines.append(f"Decision: predict with {option.predictor!r} (source classifier: {option.voter}).")
    lines.append(f"Why: {decision.reason}.")
    for name, accuracy, nll in decision.scores:
        lines.append(f"  on sources left out, {name}: accuracy {accuracy:.1%}, NLL {nll:.3f}")
    if shares:
        nearest = sorted(shares.items(), key=lambda item: -item[1])
        words = ", ".join(f"{name}: {share:.0%}" for name, share in nearest if share >= 0.01)
        lines.append(f"The target resembles {words}.")
    if proportions is not None:
        order = np.argsort(-proportions)[:5]
        words = ", ".join(f"{classes[i]}: {proportions[i]:.1%}" for i in order)
        lines.append(f"Class proportions taken for the target, largest first: {words}.")
    return "\n".join(lines)
