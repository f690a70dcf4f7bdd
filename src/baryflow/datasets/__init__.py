"""Data to try things on."""

from baryflow.datasets.crescents import make_crescents
from baryflow.datasets.synthetic import Domains, make_domains
from baryflow.datasets.tennessee_eastman import load_tep

__all__ = ["Domains", "load_tep", "make_crescents", "make_domains"]
