"""Pages whose tables come from results: each stands between two comments of its name."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent


def filled(text: str, name: str, content: str) -> str:
    """Return a page's text with the named table replaced."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{content}\n{end}{after}"


def fill(page: str, name: str, content: str) -> None:
    """Write the named table into a page of the project."""
    path = ROOT / page
    path.write_text(filled(path.read_text(), name, content))
