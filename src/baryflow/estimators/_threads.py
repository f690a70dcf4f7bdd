"""One BLAS thread inside: at this size, several only wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

_Method = TypeVar("_Method", bound=Callable[..., Any])


def one_thread(method: _Method) -> _Method:
    """Decorate a method that multiplies matrices: it does so in one thread, whatever is set outside."""

    @wraps(method)
    def limited(*arguments: Any, **named: Any) -> Any:
        with _limit.held():
            return method(*arguments, **named)

    return limited  # type: ignore[return-value]


class _Limit:
    """Holds BLAS to one thread as long as anyone is inside.

    Most libraries know one number for the whole process. Callers in several threads come and go in any
    order, so the first one in remembers what was set outside and the last one out sets it again.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._outside: list[int] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the limit."""
        libraries = _libraries()
        with self._lock:
            before = [library.num_threads for library in libraries]
            if not self._inside:
                self._outside = before
            self._inside += 1
            for library in libraries:
                _set(library, 1)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                for library, mine, outside in zip(libraries, before, self._outside, strict=True):
                    if _is_own(library):
                        _set(library, mine)
                    elif not self._inside:
                        _set(library, outside)


_limit = _Limit()


@cache
def _libraries() -> list[Any]:
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _is_own(library: Any) -> bool:
    """Tell whether each thread has a number of its own."""
    return getattr(library, "threading_layer", "") == "openmp"


def _set(library: Any, number: int) -> None:
    # Recent releases of threadpoolctl do nothing unless the thread that came first asks; it may be gone.
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    library.set_num_threads(number)
    if release is not None:
        release(force=True)
