"""Between scikit-learn's idea of a random state and NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from baryflow.exceptions import InvalidInputError


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
