"""Tables of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from baryflow.page.text import escape, show_breaking


def draw_table(caption: str, head: Sequence[str], body: Iterable[Sequence[str]], kinds: str) -> str:
    """Return a table that can be scrolled sideways where the page is narrow.

    Parameters
    ----------
    caption : str
        What it shows; escaped here.
    head : sequence of str
        Names of the columns; escaped here.
    body : iterable of sequences of str
        Cells, as HTML; the first of a row is its name.
    kinds : str
        A letter for every column: t for text, w for text in one line, n for numbers, b for bars, d for
        bars that a narrow page can do without.
    """
    marks = {"t": "", "w": ' class="w"', "n": ' class="n"', "b": ' class="b"', "d": ' class="b d"'}
    top = "".join(
        f'<th scope="col"{marks[kind]}>{show_breaking(name)}</th>' if name else f"<td{marks[kind]}></td>"
        for name, kind in zip(head, kinds, strict=True)
    )
    lines = []
    for first, *others in body:
        cells = "".join(
            f"<td{marks[kind]}>{cell}</td>" for cell, kind in zip(others, kinds[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>\n<tbody>"
        + "\n".join(lines)
        + "</tbody></table></div>"
    )


def fold(summary: str, content: str) -> str:
    """Return content that opens when asked for."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"
