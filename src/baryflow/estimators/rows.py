"""What all estimators do with the rows they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from baryflow.validation import Floats, check_values


class TakesGaps:
    """Rows may hold NaN, which marks a missing value."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # the estimator beside it has them
        tags.input_tags.allow_nan = True
        return tags

    def _rows(self, X: Any) -> Floats:
        """Check rows against those that the model was fitted on."""
        check_is_fitted(self)
        rows: Floats = validate_data(
            self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan"
        )
        check_values(rows, "X", allow_nan=True)
        return rows
