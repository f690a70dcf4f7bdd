"""Data to try things on."""

from baryflow.datasets.crescents import make_crescents
from baryflow.datasets.synthetic import Domains, make_domains

__all__ = ["Domains", "make_crescents", "make_domains"]
