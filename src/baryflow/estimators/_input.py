"""What all estimators do with the rows they are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from baryflow.estimators._domains import check_labels
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, check_values

#: Columns that a message names at most.
_NAMED = 20
_INSTEAD_OF_DATES = "leave them out, or turn them into numbers, such as the hour of the day"


@dataclass(frozen=True, eq=False)
class InOrder:
    """Rows as an array whose columns are known to be in the order of the model.

    Estimators warn about a plain array if they were fitted on named columns, as scikit-learn wants it.
    With `names` a model can be fitted on named columns without a frame.
    """

    values: Floats
    names: Sequence[str] | None = None


class InputMixin:
    """Rows come as arrays or frames; NaN marks a missing value, and columns are known by their names."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # the estimator beside it has them
        tags.input_tags.allow_nan = True
        return tags

    def check_rows(self, X: Any) -> Floats:
        """Return rows as the model reads them.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_features)
            Columns in the order of the model; NaN marks a missing value.

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        check_is_fitted(self)
        if isinstance(X, InOrder):
            return self._check_in_order(X.values)
        return self._check(match_columns(X, getattr(self, "feature_names_in_", None)), reset=False)

    def _check_in_order(self, values: Floats) -> Floats:
        width = self.n_features_in_  # type: ignore[attr-defined]  # the estimator beside it has it
        rows: Floats = values
        if not _is_ready(values, width):
            rows = check_array(values, dtype=np.float64, ensure_all_finite=False)
        if rows.shape[1] != width:
            raise InvalidInputError(f"expected rows of {width} columns, got {rows.shape[1]}")
        self._check_values(rows)
        return rows

    def _first_rows(self, X: Any) -> Floats:
        """Check rows to be fitted on, and remember their columns."""
        if not isinstance(X, InOrder):
            return self._check(X, reset=True)
        rows = self._check(X.values, reset=True)
        if X.names is not None:
            self.feature_names_in_ = np.array(X.names, dtype=object)
        return rows

    def _first_labelled(self, X: Any, y: Any) -> tuple[Floats, Any]:
        """Check labelled rows to be fitted on."""
        rows = self._first_rows(X)
        return rows, check_labels(y, len(rows))

    def _check(self, X: Any, *, reset: bool) -> Floats:
        # Otherwise it warns that there are no names.
        named = hasattr(self, "feature_names_in_")
        if not reset and not named and _is_ready(X, self.n_features_in_):  # type: ignore[attr-defined]
            check_values(X, "X", allow_nan=True)
            return np.asarray(X)
        refuse_dates(X)
        try:
            rows: Floats = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=False)
        except (TypeError, ValueError):
            refuse_other_than_numbers(X)  # tells where, which scikit-learn does not
            raise
        self._check_values(rows)
        return rows

    def _check_values(self, rows: Floats) -> None:
        check_values(rows, "X", allow_nan=True, columns=getattr(self, "feature_names_in_", None))

    @contextmanager
    def _unless_it_fails(self) -> Iterator[None]:
        """Restore every attribute if the body fails; what they refer to must not be changed in place."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            for name in vars(self).keys() - before.keys():
                delattr(self, name)
            vars(self).update(before)
            raise


def _is_ready(X: Any, width: int) -> bool:
    """Tell whether X is such that the checks of scikit-learn, which take their time, find no fault."""
    return (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and len(X) > 0
        and X.shape[1] == width
    )


def match_columns(X: Any, names: Any) -> Any:
    """Return a frame with its columns in the order in which the model knows them."""
    columns = getattr(X, "columns", None)
    if names is None or columns is None:
        return X
    wanted, given = list(names), list(columns)
    if given == wanted or not all(isinstance(name, str) for name in given):
        return X
    missing = [name for name in wanted if name not in set(given)]
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise InvalidInputError(
            f"X lacks the column(s) {', '.join(map(repr, missing[:_NAMED]))}{more} that the model was "
            f"fitted on. The feature names should match those that were passed during fit"
        )
    if len(given) > len(wanted):
        extra = [name for name in given if name not in set(wanted)]
        if not extra:
            twice = next(name for name in given if given.count(name) > wanted.count(name))
            raise InvalidInputError(f"X has the column {twice!r} {given.count(twice)} times: keep one")
        raise InvalidInputError(
            f"X has column(s) that the model was not fitted on: {', '.join(map(repr, extra[:_NAMED]))}; "
            "leave them out. The feature names should match those that were passed during fit"
        )
    return X[wanted]


def refuse_dates(X: Any) -> None:
    """Refuse columns of a type for dates: NumPy would take them for nanoseconds."""
    columns, dtypes = getattr(X, "columns", None), getattr(X, "dtypes", None)
    if columns is None or dtypes is None:
        dtype = getattr(X, "dtype", None)
        if getattr(dtype, "kind", "") in ("M", "m"):
            raise InvalidInputError(f"X holds dates ({dtype}): {_INSTEAD_OF_DATES}")
        return
    for name, dtype in zip(columns, dtypes, strict=True):
        words = str(dtype).lower()
        if words.startswith(("datetime", "timedelta", "date", "duration", "time", "period")):
            raise InvalidInputError(f"column {name!r} holds dates ({dtype}): {_INSTEAD_OF_DATES}")


def refuse_other_than_numbers(X: Any) -> None:
    """Say which column holds dates or words, if one does, and where."""
    try:
        table = np.asarray(X, dtype=object)
    except (TypeError, ValueError):
        return
    if table.ndim != 2:
        return
    names = [repr(name) for name in getattr(X, "columns", range(table.shape[1]))]
    for name, column in zip(names, table.T, strict=True):
        for row, value in enumerate(column):
            if any(hasattr(value, way) for way in ("isoformat", "strftime", "total_seconds")):
                kind = type(value).__name__
                raise InvalidInputError(f"column {name} holds dates ({kind}): {_INSTEAD_OF_DATES}")
            if type(value).__name__ == "NAType":
                raise InvalidInputError(
                    f"column {name} holds pd.NA at position {row} among other objects: convert it to "
                    "Float64, or mark missing values by NaN"
                )
            if isinstance(value, str) and not _says_number(value):
                raise InvalidInputError(
                    f"column {name} holds text, such as {str(value)!r} at position {row}: leave the "
                    "column out, turn it into numbers, or mark such values as missing (NaN)"
                )


def _says_number(words: str) -> bool:
    try:
        float(words)
    except ValueError:
        return False
    return True


def draw_seed(random_state: Any) -> Any:
    """Draw a seed from an integer, a RandomState, a Generator or None."""
    if isinstance(random_state, np.random.Generator):
        return random_state.integers(2**63, size=2)
    try:
        return check_random_state(random_state).randint(2**31 - 1, size=4)
    except ValueError as error:
        raise InvalidInputError(
            f"random_state must be an integer, a RandomState, a Generator or None: {error}"
        ) from error
