"""What all estimators do with the rows they are given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from baryflow.estimators.domains import check_labels
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, check_values

_NAMED = 5


class TakesRows:
    """Rows come as arrays or frames; NaN marks a missing value, and columns are known by their names."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # the estimator beside it has them
        tags.input_tags.allow_nan = True
        return tags

    def _rows(self, X: Any) -> Floats:
        """Check rows against those that the model was fitted on."""
        check_is_fitted(self)
        return self._check(match_columns(X, getattr(self, "feature_names_in_", None)), reset=False)

    def _first_rows(self, X: Any) -> Floats:
        """Check rows to be fitted on, and remember their columns."""
        return self._check(X, reset=True)

    def _first_labelled(self, X: Any, y: Any) -> tuple[Floats, Any]:
        """Check labelled rows to be fitted on."""
        rows = self._first_rows(X)
        return rows, check_labels(y, len(rows))

    def _check(self, X: Any, *, reset: bool) -> Floats:
        refuse_other_than_numbers(X)
        rows: Floats = validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan"
        )
        check_values(rows, "X", allow_nan=True)
        return rows

    @contextmanager
    def _unless_it_fails(self) -> Iterator[None]:
        """Keep the columns that were known before if what is done inside fails."""
        names = ("n_features_in_", "feature_names_in_")
        before = {name: vars(self)[name] for name in names if name in vars(self)}
        try:
            yield
        except BaseException:
            for name in names:
                vars(self).pop(name, None)
            vars(self).update(before)
            raise


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
        raise InvalidInputError(
            f"X has column(s) that the model was not fitted on: {', '.join(map(repr, extra[:_NAMED]))}; "
            "leave them out. The feature names should match those that were passed during fit"
        )
    return X[wanted]


def refuse_other_than_numbers(X: Any) -> None:
    """Refuse frames with dates or words in them, naming the columns."""
    columns, dtypes = getattr(X, "columns", None), getattr(X, "dtypes", None)
    if columns is None or dtypes is None:
        dtype = getattr(X, "dtype", None)
        if getattr(dtype, "kind", "") in ("M", "m"):
            raise InvalidInputError("X holds dates: leave them out, or turn them into numbers")
        return
    for name, dtype in zip(columns, dtypes, strict=True):
        words = str(dtype).lower()
        if words.startswith(("datetime", "timedelta", "date", "duration", "time")):
            raise InvalidInputError(
                f"column {name!r} holds dates ({dtype}): leave it out, or turn it into a number, such "
                "as the hour of the day"
            )
