"""Everything baryflow raises or warns about on purpose.

::

    BaryflowError
    ├── InvalidInputError    an argument has the wrong shape, type or values (also a ValueError)
    │   └── RefusedError     a service refuses a request, and would refuse it again
    ├── FileFormatError      a .bary file is foreign, truncated, damaged or newer (also a ValueError)
    ├── TransportError       an optimal-transport solve did not reach the optimum (also a RuntimeError)
    └── UnreachableError     a broker or server is not there, or refuses us (also a ConnectionError)
        └── StoppedError     it did not answer before the process was asked to stop
"""


class BaryflowError(Exception):
    """Base of every error that baryflow raises on purpose."""


class InvalidInputError(BaryflowError, ValueError):
    """An argument is not what was expected; the message names it and says what to do."""


class RefusedError(InvalidInputError):
    """A service refuses a request, and would refuse it again.

    `status` is that of HTTP; `reused_id` is the id of the request if it was that of another one before.
    """

    def __init__(self, message: str, status: int, reused_id: str | None = None) -> None:
        super().__init__(message)
        self.status, self.reused_id = status, reused_id


class FileFormatError(BaryflowError, ValueError):
    """A file cannot be read as a ``.bary`` file of a version this release understands."""


class TransportError(BaryflowError, RuntimeError):
    """An optimal-transport problem could not be solved to optimality."""


class UnreachableError(BaryflowError, ConnectionError):
    """A broker or server is not there, or does not let us in; the message never holds a password."""


class StoppedError(UnreachableError):
    """A broker or server did not answer before the process was asked to stop."""
