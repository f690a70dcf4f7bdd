"""The one place that imports asyncua, and keeps it from talking all the time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

try:  # as Any: its annotations do not say what it exports
    asyncua: Any = import_module("asyncua")
    ua: Any = import_module("asyncua.ua")
except ImportError as error:
    raise ModuleNotFoundError(
        f"opc.tcp:// needs the extra 'opcua' ({error}): pip install 'baryflow[opcua]'", name=error.name
    ) from error

__all__ = ["asyncua", "pieces", "quieten", "ua"]

#: Nodes in one request; servers refuse more than some hundred.
_NODES = 500
_T = TypeVar("_T")


def pieces(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Cut what is to be asked for into requests."""
    for begin in range(0, len(items), _NODES):
        yield items[begin : begin + _NODES]


def quieten() -> None:
    """Let asyncua log only if somebody has asked for logs: what matters is told in notices and errors.

    It logs every connection that ends with a stack of calls, and would write these on the terminal.
    """
    logger = logging.getLogger("asyncua")
    if logger.level == logging.NOTSET and not logger.handlers and not logging.getLogger().handlers:
        logger.setLevel(logging.CRITICAL + 1)
