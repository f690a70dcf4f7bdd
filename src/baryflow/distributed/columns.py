"""Columns of many files: which are the same everywhere, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baryflow.exceptions import InvalidInputError


@dataclass(frozen=True)
class Odd:
    """A column that is not the same in all files.

    Attributes
    ----------
    kinds : frozenset of str
        Those it has in some file.
    words : str
        Which file differs from which other, and in what.
    """

    kinds: frozenset[str]
    words: str


def agree(found: dict[str, dict[str, str]]) -> tuple[dict[str, str], dict[str, Odd]]:
    """Return the columns that are the same everywhere, and what is wrong with the others.

    Parameters
    ----------
    found : dict of str → dict of str → str
        Of each place, a file say, the kinds of its columns. A column that holds nothing there is of any
        kind.

    Returns
    -------
    types : dict of str → str
    odd : dict of str → Odd
    """
    # Most files are alike: only the first of each sort is looked at.
    sorts = {frozenset(kinds.items()): (place, kinds) for place, kinds in reversed(found.items())}
    several = list(reversed(sorts.values()))
    types, odd = dict[str, str](), dict[str, Odd]()
    for name in dict.fromkeys(name for _, kinds in several for name in kinds):
        where: dict[str, str] = {}  # the first place of each kind
        for place, kinds in several:
            where.setdefault(kinds.get(name, "lacking"), place)
        lacking = where.pop("lacking", None)
        full = [kind for kind in where if kind != "nothing"]
        if lacking is None and len(full) <= 1:
            types[name] = full[0] if full else "nothing"
            continue
        if lacking is not None:
            words = f"{lacking} lacks the column {name!r}, which {next(iter(where.values()))} has"
        else:
            one, other = full[:2]
            words = (
                f"{where[other]} has other values in column {name!r} ({other}) than {where[one]} ({one})"
            )
        words += ": columns that are used must be the same in all files"
        odd[name] = Odd(frozenset(where), words)
    return types, odd


def refuse_odd(odd: dict[str, Odd], used: Sequence[str]) -> None:
    """Refuse columns in which files differ.

    Parameters
    ----------
    odd : dict of str → Odd
    used : sequence of str

    Raises
    ------
    InvalidInputError
        If one of those that are used is among them.
    """
    for name in used:
        if name in odd:
            raise InvalidInputError(odd[name].words)
