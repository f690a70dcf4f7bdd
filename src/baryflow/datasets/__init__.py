"""Data to try things on."""

from baryflow.datasets.synthetic import Domains, make_domains

__all__ = ["Domains", "make_domains"]
