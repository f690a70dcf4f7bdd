"""The client of a service: send rows, get predictions; every row counts once, however often it is sent.

Needs httpx, which is in the extra ``client``.
"""

from baryflow.client.client import Client
from baryflow.client.forwarding import Forwarded, forward, open_target

__all__ = ["Client", "Forwarded", "forward", "open_target"]
