"""Reports of fitted models as self-contained HTML pages with inline SVG charts.

A page needs only a browser: no script, no network, no Matplotlib.
"""

from baryflow.page.document import html_report

__all__ = ["html_report"]
