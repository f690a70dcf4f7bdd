"""Links to files outside the documentation, which readers of the repository can follow as they are.

Pages of the repository that are part of the site lead to their page here; other files become downloads.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
#: Pages of the repository, and the pages that include them.
PAGES = {
    "README.md": "docs/index.md",
    "CHANGELOG.md": "docs/about/changelog.md",
    "CONTRIBUTING.md": "docs/about/contributing.md",
    "examples/README.md": "docs/reference/example-data.md",
}
#: A page that is another page of the repository.
_INCLUDE = re.compile(r"^```\{include\} (\S+)\n```$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\((?![a-z]+:)([^()\s#]+)(#[^()\s]*)?\)")


def rewrite(text: str, folder: Path, page: Path) -> str:
    """Return the text of a page with links that lead to pages of the site.

    Parameters
    ----------
    text : str
    folder : Path
        Folder that links start from.
    page : Path
        The page on which the text appears.
    """

    def replace(match: re.Match[str]) -> str:
        words, link, anchor = match[1], match[2], match[3] or ""
        target = Path(os.path.normpath(folder / link))
        if not target.is_relative_to(ROOT) or not target.is_file():
            return match[0]
        inside = target.relative_to(ROOT).as_posix()
        inside = PAGES.get(inside, inside)
        path = os.path.relpath(ROOT / inside, page.parent)
        return f"[{words}]({path}{anchor})"

    return _LINK.sub(replace, text)


def _rewrite_page(app: Sphinx, docname: str, source: list[str]) -> None:
    page = Path(app.env.doc2path(docname))
    if page.suffix != ".md":
        return

    def include(match: re.Match[str]) -> str:
        path = Path(os.path.normpath(page.parent / match[1]))
        app.env.note_dependency(str(path))
        return rewrite(path.read_text(encoding="utf-8"), path.parent, page)

    text = _INCLUDE.sub(include, rewrite(source[0], page.parent, page))
    # A figure in a table stays in one line with its spread.
    source[0] = re.sub(
        r"^\|.*", lambda row: row[0].replace(" ± ", "\u00a0±\u00a0"), text, flags=re.MULTILINE
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the event."""
    app.connect("source-read", _rewrite_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
