"""The one place where PyTorch is imported: only training needs it."""

from __future__ import annotations

from typing import Any


def import_torch() -> Any:
    """Return PyTorch, or say how to get it."""
    try:
        import torch
    except ImportError as error:
        raise ModuleNotFoundError(
            "training an encoder needs the extra 'encode' (PyTorch): install a CPU build of torch, then "
            "pip install 'baryflow[encode]'",
            name="torch",
        ) from error
    return torch
