"""Directives for the parts of the reference that come from the code."""

from typing import Any

import rendering
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class _Generated(SphinxDirective):
    """A part of a page that a function writes."""

    optional_arguments = 1
    final_argument_whitespace = True
    write: Any

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(type(self).write(*self.arguments))


def _directive(function: Any) -> type[_Generated]:
    return type(f"Generated_{function.__name__}", (_Generated,), {"write": staticmethod(function)})


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("command", _directive(rendering.describe_command))
    app.add_directive("http-operations", _directive(rendering.describe_operations))
    app.add_directive("http-errors", _directive(rendering.describe_errors))
    app.add_directive("http-schemas", _directive(rendering.describe_schemas))
    app.add_directive("metrics", _directive(rendering.describe_metrics))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
