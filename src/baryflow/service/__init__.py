"""An HTTP service for many targets: rows in, predictions out; every acknowledged row is on disk.

:func:`create_app` returns the ASGI application for a fitted model, :func:`run` serves it until a signal,
and :func:`background` serves it in a thread.
"""

from baryflow.service.app import create_app
from baryflow.service.parsing import Limits
from baryflow.service.server import background, run

__all__ = ["Limits", "background", "create_app", "run"]
