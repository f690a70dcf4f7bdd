"""Talk to a service: rows in, predictions out, and every row counted once, however often it is sent.

:class:`Client` sends rows; :func:`feed` sends those of a source, and goes on where it was killed.
"""

from baryflow.client.feeding import Fed, feed, open_feed
from baryflow.client.talking import Client

__all__ = ["Client", "Fed", "feed", "open_feed"]
