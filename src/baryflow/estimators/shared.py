"""What the offline and the online estimator have in common: arguments in, words out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain
from baryflow.core.gaussian import fast_squared_distances
from baryflow.core.mixture import Mixture
from baryflow.core.quadratic import simplex_least_squares
from baryflow.core.transport import assignment
from baryflow.estimators.adaptation import EVEN, EXPERTS, PREDICTORS, WEIGHTS, Options
from baryflow.estimators.decision import Decision
from baryflow.estimators.mix import Mix
from baryflow.estimators.random_state import draw_seed
from baryflow.estimators.rehearsal import decide
from baryflow.estimators.sources import SourceOptions
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_count, as_real, as_vector

TARGET = "target"


def source_options(estimator: Any, classes: Any) -> SourceOptions:
    """Check and collect an estimator's parameters for the sources."""
    if estimator.n_atoms is not None:
        as_count(estimator.n_atoms, "n_atoms")
    seed = int(np.random.default_rng(draw_seed(estimator.random_state)).integers(2**31))
    return SourceOptions(
        view=bool(estimator.view),
        components_per_class=as_count(estimator.components_per_class, "components_per_class"),
        n_atoms=estimator.n_atoms,
        seed=seed,
        class_prior=expected_proportions(estimator.class_prior, classes),
    )


def fixed_weights(estimator: Any) -> tuple[float, ...] | None:
    """Return the weights that an estimator's predictor means for the experts; None: they are learned."""
    choices = ("auto", *PREDICTORS)
    if estimator.predictor not in choices:
        raise InvalidInputError(f"predictor must be one of {choices}, got {estimator.predictor!r}")
    return None if estimator.predictor == "auto" else WEIGHTS[estimator.predictor]


def decided(
    estimator: Any,
    rows: list[Floats],
    codes: list[Any],
    n_classes: int,
    options: SourceOptions,
    switches: Options,
) -> Decision:
    """Return what an estimator does with a target, from its sources or as its parameters say."""
    weights = fixed_weights(estimator)
    if estimator.predictor == "source":
        return Decision(reason="chosen by you: predictor is 'source'")
    if not estimator.rehearse:
        chosen = weights or EVEN
        return Decision(True, chosen, (*chosen, 0.0), "chosen by you: rehearse is False")
    return decide(rows, codes, n_classes, options, switches, weights)


def expected_proportions(class_prior: Any, classes: Any) -> Floats | None:
    """Return the class proportions that the user expects of a target, in the order of the classes.

    A mapping names some classes; the others share the rest equally.
    """
    if class_prior is None:
        return None
    n, names = len(classes), classes.tolist()
    if isinstance(class_prior, Mapping):
        unknown = [name for name in class_prior if name not in names]
        if unknown:
            raise InvalidInputError(
                f"class_prior names {unknown[0]!r}, which is not a class; classes are {names}"
            )
        given = {name: as_real(share, f"class_prior[{name!r}]", low=0.0, high=1.0)
                 for name, share in class_prior.items()}  # fmt: skip
        total, others = sum(given.values()), n - len(given)
        if total > 1.0 + 1e-9 or (others == 0 and abs(total - 1.0) > 1e-9):
            what = "at most 1" if others else "1"
            raise InvalidInputError(f"the shares of class_prior must sum to {what}, got {total:g}")
        rest = max(0.0, 1.0 - total) / max(others, 1)
        shares = np.array([given.get(name, rest) for name in names])
    else:
        shares = as_vector(class_prior, "class_prior", length=n, dim="n_classes")
        if shares.min() < 0.0 or abs(float(shares.sum()) - 1.0) > 1e-6:
            raise InvalidInputError(
                f"class_prior must hold shares that are not negative and sum to 1, got {shares.tolist()}"
            )
    shares = np.maximum(shares, _RAREST)
    return np.asarray(shares / shares.sum())


#: A class is never taken to be impossible.
_RAREST = 1e-6


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


def resemblance(
    names: list[Any], dictionary: Dictionary, domains: list[Domain], target: Domain
) -> dict[Any, float]:
    """Return the mixture of the sources that comes nearest to the target, slot by slot.

    The sources' own components are compared, not their reconstructions, which fewer atoms than sources
    cannot tell apart.
    """
    used = slice(target.n_used)
    slots = dictionary.reconstruction(target)
    columns = []
    for domain in domains:
        rebuilt = dictionary.reconstruction(domain)
        # Where the source lacks a class its reconstruction stands in.
        points = np.where((domain.slot_weights > 0.0)[:, None], domain.goal, rebuilt)
        columns.append(points[assignment(fast_squared_distances(slots, rebuilt))][:, used])
    goal = np.where((target.slot_weights > 0.0)[:, None], target.goal, slots)[:, used]
    gaps = (np.stack(columns) - goal) * np.sqrt(target.slot_weights)[:, None]
    table = gaps.reshape(len(domains), -1)
    quadratic = table @ table.T
    # A little ridge shares the credit between sources that are the same.
    quadratic += 1e-6 * float(np.trace(quadratic)) / len(domains) * np.eye(len(domains))
    shares = simplex_least_squares(quadratic, np.zeros(len(domains)))
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
    mix: Mix | None,
) -> str:
    """Put the state of an adaptation into words."""
    lines = [f"{_count(len(sources), 'source')}, {_count(len(classes), 'class', 'classes')}."]
    if decision.adapts:
        lines.append(
            "Decision: adapt. Weights of the experts at the beginning, and with all classes seen:"
        )
        lines += [
            f"  {_EXPERTS[name]:<46} {first:5.0%} {last:5.0%}"
            for name, first, last in zip(
                (*EXPERTS, "source"), decision.beginning, (*decision.weights, 0.0), strict=True
            )
            if first > 0.0 or last > 0.0
        ]
    else:
        lines.append("Decision: do not adapt; predict with the pooled source classifier.")
    lines.append(f"Why: {decision.reason}.")
    if decision.plays:
        lines.append("Each source in turn played a target, seen once; right answers while it flowed:")
        lines += [
            f"  {name:<32} source classifier {before:6.1%}   adapted {after:6.1%}"
            for name, before, after in decision.plays
        ]
    if shares:
        nearest = sorted(shares.items(), key=lambda item: -item[1])
        words = ", ".join(f"{name}: {share:.0%}" for name, share in nearest if share >= 0.005)
        lines.append(f"The target resembles {words} (after standardisation).")
    if mix is not None:
        lines.append(_describe_mix(classes, mix))
    return "\n".join(lines)


def _describe_mix(classes: Any, mix: Mix) -> str:
    if mix.as_usual and mix.gap == mix.doubt == mix.sampling == 0.0:
        return "Class mix: taken to be as usual; it was not estimated."
    found = f"differs by {mix.gap:.0%} from the usual"
    reach = f"{mix.doubt + mix.sampling:.0%} can come from wrong votes and chance"
    if mix.as_usual:
        return f"Class mix: as usual (what the votes say {found}; {reach})."
    order = np.argsort(-mix.shares, kind="stable")
    words = ", ".join(f"{classes[i]}: {mix.shares[i]:.1%}" for i in order if mix.shares[i] >= 0.0005)
    return f"Class mix: {words} ({found}; {reach})."


_EXPERTS = {
    "reconstruction": "the reconstruction of the target",
    "components": "its own components, labelled through the plan",
    "pooled": "the pooled source classifier, for its mix",
    "own": "the classifier of rows standardised by domain",
    "source": "the pooled source classifier as it is",
}


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one}" if n == 1 else f"{n} {many or one + 's'}"
