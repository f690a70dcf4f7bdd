"""Check a built site: it loads nothing from elsewhere, and its links lead to pages and anchors.

``python scripts/check_site.py FOLDER``; prints what is wrong and exits with 1.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes with an address from which a browser loads something by itself.
_LOADED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "image": "href",
    "img": "src",
    "input": "src",
    "object": "data",
    "script": "src",
    "source": "src",
    "track": "src",
    "use": "href",
    "video": "src",
}
#: Relations of a <link> that load nothing.
_NAVIGATION = {"author", "canonical", "index", "next", "prev", "search", "genindex", "copyright"}
_CSS = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")


class Page(HTMLParser):
    """What a page loads, where it leads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the addresses of a tag."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "link" and not set(found.get("rel", "").split()) & _NAVIGATION:
            self.loaded.append(found.get("href", ""))
        if _LOADED.get(tag) in found:
            self.loaded.append(found[_LOADED[tag]])
        self.loaded += [part.split()[0] for part in found.get("srcset", "").split(",") if part.split()]
        self.loaded += loaded_by_css(found.get("style", ""))
        self._in_style = tag == "style"

    def handle_data(self, data: str) -> None:
        """Collect what the style sheets of the page load."""
        if self._in_style:
            self.loaded += loaded_by_css(data)

    def handle_endtag(self, tag: str) -> None:
        """Leave a style sheet."""
        self._in_style &= tag != "style"


def loaded_by_css(text: str) -> list[str]:
    """Return the addresses that a style sheet loads."""
    return [first or second for first, second in _CSS.findall(text)]


def is_external(address: str) -> bool:
    """Return whether an address is that of another host."""
    parts = urlsplit(address.strip())
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def check(root: Path) -> list[str]:
    """Return what is wrong with a site.

    Parameters
    ----------
    root : Path
        Folder of the built HTML.

    Returns
    -------
    list of str
    """
    templates = root / "_static"
    files = [path for path in sorted(root.rglob("*.html")) if templates not in path.parents]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in files}
    if not pages:
        return [f"{root} has no pages: build the site first"]
    problems = []
    for path in sorted(root.rglob("*.css")):
        outside = filter(is_external, loaded_by_css(path.read_text(encoding="utf-8")))
        problems += [f"{path.relative_to(root)} loads {address}" for address in outside]
    for path, page in pages.items():
        name = path.relative_to(root)
        problems += [f"{name} loads {address}" for address in filter(is_external, page.loaded)]
        inside = [one for one in (*page.loaded, *page.links) if one and not is_external(one)]
        for link in dict.fromkeys(inside):
            if link.startswith("data:"):
                continue
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                problems.append(f"{name} leads to {link}, which does not exist")
                continue
            anchor = unquote(parts.fragment)
            if anchor and target in pages and anchor not in pages[target].anchors:
                problems.append(f"{name} leads to {link}, which has no such anchor")
    return problems


if __name__ == "__main__":
    found = check(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "the site loads nothing from elsewhere, and its links are right")
    sys.exit(bool(found))
