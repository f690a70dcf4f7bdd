"""Write equations as MathML, which browsers draw themselves: no script, no font, no picture."""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

_log = logging.getLogger(__name__)


def _convert(node: nodes.Element, as_block: bool) -> str:
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        _log.warning("cannot read the equation %r: %s", node.astext(), error, location=node)
        return ""


def _visit_inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(_convert(node, as_block=False))
    raise nodes.SkipNode


def _visit_block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    writer.body.append(_convert(node, as_block=True))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
