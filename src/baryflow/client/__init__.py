"""Talk to a service: rows in, predictions out, and every row counted once, however often it is sent.

:class:`Client` sends rows; :func:`feed` sends those of a source, and goes on where it was killed.
"""

from baryflow.client.client import Client
from baryflow.client.forward import Forwarded, feed, open_feed

__all__ = ["Client", "Forwarded", "feed", "open_feed"]
