"""Which messages were delivered before, of the last few hundred.

A broker delivers a message again if a connection ended before it heard that we have it: under the same
packet identifier, and marked as a repetition. A publisher, too, sends a message again if it did
not hear that the broker has it; then it is a new message for the broker, and only a name that the
publisher has given it tells that it is not.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass

_MID = 4  # hexadecimal digits of a packet identifier
_DIGEST = 12  # of the digest of a message: two in 2**48 are taken for one
_NAMED = "n"
_NAMELESS = "-"


def digest_of(topic: str, content: bytes) -> str:
    """Return a short digest of what a message is about.

    Parameters
    ----------
    topic : str
    content : bytes

    Returns
    -------
    str
        Hexadecimal digits.
    """
    return hashlib.blake2b(topic.encode() + b"\0" + content, digest_size=_DIGEST // 2).hexdigest()


@dataclass(frozen=True)
class Taken:
    """A message that was taken.

    Attributes
    ----------
    mid : int
        Its packet identifier; 0 if it has none, or none that means anything any longer.
    digest : str
    named : bool
        Whether the digest is of a name that the publisher gave it.
    number : int
        How many messages had been taken with it.
    """

    mid: int
    digest: str
    named: bool
    number: int


class Window:
    """The last messages that were taken.

    Parameters
    ----------
    size : int
        How many of them are kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._order: deque[Taken] = deque()
        self._by_mid: dict[int, Taken] = {}
        self._by_name: dict[str, Taken] = {}

    def add(self, taken: Taken) -> None:
        """Take a message in; the oldest goes.

        Parameters
        ----------
        taken : Taken
        """
        self._order.append(taken)
        if taken.mid:
            self._by_mid[taken.mid] = taken
        if taken.named:
            self._by_name[taken.digest] = taken
        while len(self._order) > self._size:
            oldest = self._order.popleft()
            if self._by_mid.get(oldest.mid) is oldest:
                del self._by_mid[oldest.mid]
            if self._by_name.get(oldest.digest) is oldest:
                del self._by_name[oldest.digest]

    def find(self, mid: int, digest: str, *, named: bool, again: bool) -> Taken | None:
        """Return the message that this one repeats, if it repeats one.

        Parameters
        ----------
        mid : int
        digest : str
        named : bool
        again : bool
            Whether the broker says that it may have delivered it before.

        Returns
        -------
        Taken or None
        """
        if named and digest in self._by_name:
            return self._by_name[digest]
        same = self._by_mid.get(mid) if again and mid else None
        return same if same is not None and same.digest == digest else None

    def forget_identifiers(self) -> None:
        """Take note that the broker has forgotten us: packet identifiers begin anew."""
        kept = [Taken(0, one.digest, one.named, one.number) for one in self._order if one.named]
        self._order.clear()
        self._by_mid.clear()
        self._by_name.clear()
        for one in kept:
            self.add(one)

    def write(self) -> str:
        """Return the messages in short, for a cursor.

        Returns
        -------
        str
        """
        return "".join(
            f"{one.mid:0{_MID}x}{_NAMED if one.named else _NAMELESS}{one.digest}" for one in self._order
        )

    def read(self, text: str) -> None:
        """Take in what :meth:`write` has written; all of it is safe.

        Parameters
        ----------
        text : str
        """
        width = _MID + 1 + _DIGEST
        for at in range(0, len(text), width):
            mid, kind, digest = text[at : at + _MID], text[at + _MID], text[at + _MID + 1 : at + width]
            self.add(Taken(int(mid, 16), digest, kind == _NAMED, 0))
