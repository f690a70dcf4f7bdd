"""An HTTP service for many targets: rows in, predictions out; every acknowledged row is on disk.

:func:`create_app` returns the ASGI application for a fitted model, :func:`run` serves it until a signal,
and :func:`background` serves it in a thread. :func:`usable_cores` is a good number of workers.
"""

from baryflow.service.app import create_app
from baryflow.service.parsing import Limits
from baryflow.service.server import background, run
from baryflow.service.targets import usable_cores

__all__ = ["Limits", "background", "create_app", "run", "usable_cores"]
