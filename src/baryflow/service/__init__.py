"""Many targets over HTTP: rows in, predictions out, nothing acknowledged that could be lost.

:func:`create_app` makes the application of a fitted model, and :func:`run` serves it.
"""

from baryflow.service.app import create_app
from baryflow.service.limits import Limits
from baryflow.service.server import background, run

__all__ = ["Limits", "background", "create_app", "run"]
