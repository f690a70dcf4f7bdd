"""A model on one page, for people: a self-contained HTML file with pictures.

It needs nothing but a browser: no script, no network, no matplotlib.
"""

from baryflow.page.document import html_report

__all__ = ["html_report"]
