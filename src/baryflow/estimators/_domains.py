"""Which rows belong to whom."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers, as_real, as_vector

#: Under this name stand the target's coordinates.
TARGET = "target"
#: A class is never taken to be impossible.
_RAREST = 1e-6


def split_domains(sample_domain: Any, n: int, target: Any) -> tuple[Any, Booleans]:
    """Return the domain of every row, and which rows are the target's."""
    if sample_domain is None:
        return np.ones(n, dtype=np.intp), np.zeros(n, dtype=bool)
    names = np.asarray(keep_gaps(sample_domain))
    if names.shape != (n,):
        raise InvalidInputError(
            f"expected sample_domain to have shape (n_samples={n},), got {names.shape}"
        )
    names = _check_names(names)
    if target is not None:
        is_target = np.asarray(names == target)
        if not is_target.any():
            known = ", ".join(map(str, np.unique(names)[:10]))
            raise InvalidInputError(f"no row belongs to the target {target!r}; domains are: {known}")
        return names, is_target
    if names.dtype.kind == "i":
        return names, names < 0
    return names, np.zeros(n, dtype=bool)


def name_sources(sample_domain: Any, n: int) -> Any:
    """Return the source of every row; refuse rows of a target."""
    names, is_target = split_domains(sample_domain, n, None)
    if is_target.any():
        raise InvalidInputError(
            "sample_domain holds negative numbers, which mark target rows: pass those to partial_fit"
        )
    return names


def _check_names(names: Any) -> Any:
    """Return names as strings or as integers other than 0; nothing else can name a domain."""
    gaps = find_missing(names)
    if gaps.any():
        where = int(gaps.argmax())
        raise InvalidInputError(
            f"sample_domain has no value in {int(gaps.sum())} row(s), the first at position {where}: "
            "drop these rows, or name their domain"
        )
    if names.dtype == object and all(isinstance(name, (int, np.integer)) for name in names):
        names = names.astype(np.int64)
    if names.dtype.kind == "f" and np.isfinite(names).all() and np.array_equal(names, np.round(names)):
        names = names.astype(np.int64)
    if names.dtype.kind in "iu":
        if (names == 0).any():
            raise InvalidInputError(
                "sample_domain must not hold 0: sources are positive, target rows negative; number "
                "domains from 1, for example pd.factorize(names)[0] + 1, or pass their names"
            )
        return names.astype(np.int64)
    if names.dtype.kind not in "UO" or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(
            f"sample_domain must hold names or whole numbers, and not both; got {names.dtype}"
        )
    if (names == TARGET).any():
        raise InvalidInputError(
            f"no domain can be called {TARGET!r}, which stands for the target: rename it"
        )
    return names


def keep_gaps(values: Any) -> Any:
    """Return names or labels so that what is missing stays so: NumPy takes NaN among words for "nan"."""
    if isinstance(values, (list, tuple)) and any(map(_is_missing, values)):
        return np.array(values, dtype=object)
    return values


def find_missing(values: Any) -> Booleans:
    """Tell which entries are None, NaN or another mark of nothing."""
    if values.dtype.kind in "fM":
        return np.asarray(np.isnan(values))
    if values.dtype != object:
        return np.zeros(values.shape, dtype=bool)
    return np.array([_is_missing(value) for value in values.ravel()])


def _is_missing(value: Any) -> bool:
    # pandas need not be there to ask it for its marks of nothing.
    nothing = value is None or type(value).__name__ in ("NAType", "NaTType")
    return nothing or (isinstance(value, (float, np.floating)) and math.isnan(value))


def check_labels(y: Any, n: int, positions: Any = None) -> Any:
    """Return the labels of n rows; refuse missing ones, and those that are no classes.

    `positions` are those of the rows in what the user passed, for messages.
    """
    if y is None:
        raise InvalidInputError("requires y to be passed, but the target y is None: sources need labels")
    labels = column_or_1d(keep_gaps(y), warn=True)
    if len(labels) != n:
        raise InvalidInputError(
            f"Found input variables with inconsistent numbers of samples: {n} rows, {len(labels)} labels"
        )
    gaps = find_missing(labels)
    if gaps.any():
        first = int(gaps.argmax()) if positions is None else int(positions[gaps.argmax()])
        raise InvalidInputError(
            f"Input y contains NaN or None: {int(gaps.sum())} row(s) have no label, the first at "
            f"position {first}; drop these rows or label them (only rows of a target go without)"
        )
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise InvalidInputError("Input y contains infinity: classes are names or finite numbers")
    check_classification_targets(labels)
    return labels


def read_partial_labels(y: Any, n: int, classes: Any, unknown: Any) -> tuple[Booleans, list[Any]]:
    """Return which of n target rows have a label, and these labels as the classes are written.

    None, NaN, and -1 if it is no class, mark a row without a label. Labels may be new classes, names or
    numbers as those known are. `unknown` is what novel rows are called.
    """
    labels = column_or_1d(keep_gaps(y), warn=True)
    if len(labels) != n:
        raise InvalidInputError(
            f"Found input variables with inconsistent numbers of samples: {n} rows, {len(labels)} labels"
        )
    missing, numbered, known = find_missing(labels), classes.dtype.kind in "biuf", classes.tolist()
    found: list[Any] = []
    for number, given in enumerate(labels.tolist()):
        label: Any = given
        if not missing[number] and numbered and label == -1 and -1 not in known:
            missing[number] = True
        if missing[number]:
            continue
        if isinstance(label, str) == numbered:
            kind = "numbers" if numbered else "names"
            raise InvalidInputError(
                f"the label {label!r} at position {number} is no class: classes are {kind}, such as "
                f"{known[0]!r}"
            )
        if classes.dtype.kind in "iu" and isinstance(label, float):
            if not label.is_integer():
                raise InvalidInputError(
                    f"the label {label!r} at position {number} is no class: classes are whole numbers"
                )
            label = int(label)
        if label not in known and not _fits(label, classes.dtype):
            raise InvalidInputError(
                f"the label {label!r} at position {number} cannot be a class beside {known[0]!r}: "
                f"classes are {classes.dtype} values"
            )
        if label == unknown and label not in known:
            raise InvalidInputError(
                f"{label!r} is what novel rows are called: give their class a name of its own, or leave "
                "them without a label"
            )
        found.append(label)
    return ~missing, found


def _fits(label: Any, dtype: Any) -> bool:
    """Return whether a label can be held beside classes of a type."""
    if dtype.kind == "b":
        return isinstance(label, bool)
    if dtype.kind in "iu":
        return bool(np.iinfo(dtype).min <= label <= np.iinfo(dtype).max)
    return True


def check_classes(classes: Any) -> None:
    """Refuse sources of a single class."""
    if len(classes) < 2:
        raise InvalidInputError(
            f"the labels have only one class ({classes.tolist()[0]!r}); at least two are needed"
        )


def check_new_source(X: Any, y: Any, name: Any, sources: list[Any]) -> None:
    """Refuse arguments in another order, and a name that is taken or not of the kind of the others."""
    wrong = ""
    if _is_name(X):
        wrong = f"X must be rows, got {X!r}"
    elif _is_name(y):
        wrong = f"y must be labels, one for each row, got {y!r}"
    elif not _is_name(name):
        wrong = f"name must be a string or a positive number, got {type(name).__name__}"
    elif len(np.shape(X)) == 1:
        wrong = f"X must be rows and columns, got one column of length {len(X)}"
    if wrong:
        raise InvalidInputError(f"{wrong}: the order is add_source(X, y, name)")
    if name in sources:
        raise InvalidInputError(f"there is a source {name!r} already; sources: {sources}")
    split_domains(np.array([name]), 1, None)  # a name, or a number that is not 0
    if isinstance(name, str) != isinstance(sources[0], str) or (not isinstance(name, str) and name < 0):
        kind = "a string" if isinstance(sources[0], str) else "a positive number"
        raise InvalidInputError(f"name must be {kind} like those of the other sources, got {name!r}")


def _is_name(value: Any) -> bool:
    return isinstance(value, (str, int, np.integer)) and not isinstance(value, bool)


def find_places(names: Any, among: list[Any]) -> list[int]:
    """Return where each name stands in a list, -1 if it does not."""
    return [among.index(name) if name in among else -1 for name in names]


def by_source(X: Floats, codes: Integers, names: Any) -> tuple[list[Floats], list[Integers], list[Any]]:
    """Cut rows and class codes into sources; return them and the sources' names."""
    sources = np.unique(names)
    places = [_as_slice(np.flatnonzero(names == name)) for name in sources]
    return [X[some] for some in places], [codes[some] for some in places], sources.tolist()


def _as_slice(places: Integers) -> Integers | slice:
    """Return places as a slice if there is no gap: rows that stand together need no copy."""
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first + 1 == len(places) else places


def fill_gaps(X: Floats, fallback: Floats) -> Floats:
    """Return rows with the mean of their column for missing values, the fallback's if it is empty."""
    missing = np.isnan(X)
    if not missing.any():
        return X
    counts = (~missing).sum(axis=0)
    means = np.where(missing, 0.0, X).sum(axis=0) / np.maximum(counts, 1)
    return np.where(missing, np.where(counts > 0, means, fallback), X)


def expect_proportions(class_prior: Any, classes: Any, called: str = "class_prior") -> Floats | None:
    """Return the class proportions that the user expects of a target, in the order of the classes.

    A mapping, or a pandas Series, names some classes; the others share the rest equally.
    """
    if class_prior is None:
        return None
    if hasattr(class_prior, "to_dict"):  # a pandas Series: by name, not by position
        class_prior = class_prior.to_dict()
    n, names = len(classes), classes.tolist()
    if isinstance(class_prior, Mapping):
        unknown = [name for name in class_prior if name not in names]
        if unknown:
            raise InvalidInputError(
                f"{called} names {unknown[0]!r}, which is not a class; classes are {names}"
            )
        given = {name: as_real(share, f"{called}[{name!r}]", low=0.0, high=1.0)
                 for name, share in class_prior.items()}  # fmt: skip
        total, others = sum(given.values()), n - len(given)
        if total > 1.0 + 1e-9 or (others == 0 and abs(total - 1.0) > 1e-9):
            what = "at most 1" if others else "1"
            raise InvalidInputError(f"the shares of {called} must sum to {what}, got {total:g}")
        rest = max(0.0, 1.0 - total) / max(others, 1)
        shares = np.array([given.get(name, rest) for name in names])
    else:
        shares = as_vector(class_prior, called, length=n, dim="n_classes")
        if shares.min() < 0.0 or abs(float(shares.sum()) - 1.0) > 1e-6:
            raise InvalidInputError(
                f"{called} must hold shares that are not negative and sum to 1, got {shares.tolist()}"
            )
    shares = np.maximum(shares, _RAREST)
    return np.asarray(shares / shares.sum())
