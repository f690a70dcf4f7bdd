"""One BLAS thread inside: at this size, several only wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

_Method = TypeVar("_Method", bound=Callable[..., Any])


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread(method: _Method) -> _Method:
    """Decorate a method that multiplies matrices: it does so in one thread, whatever is set outside."""

    @wraps(method)
    def limited(*arguments: Any, **named: Any) -> Any:
        with _controller().limit(limits=1, user_api="blas"):
            return method(*arguments, **named)

    return limited  # type: ignore[return-value]
