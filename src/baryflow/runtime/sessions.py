"""Sessions by target: those used most recently are in memory, the others in the store."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from baryflow import codec, container
from baryflow.runtime.session import Session, SessionConfig, SessionState
from baryflow.runtime.store import Store

KIND = "target_session"
#: Bytes that sessions may take in memory together, unless their number is given.
BUDGET = 512 << 20
#: A session takes about this many times its size on disk in memory (2.6 with 6 classes and 12
#: columns, 3 with 29 and 128), and is taken to be this large before the first one is written.
_IN_MEMORY, _GUESS = 3, 512 << 10


@dataclass(frozen=True, eq=False)
class _Saved:
    """The state of a session as it is stored."""

    key: str
    state: SessionState


@dataclass
class _Change:
    """A target that differs from its committed state.

    Attributes
    ----------
    first, last : int
        Numbers of the first and last batch that are not in the committed state.
    generation : int
        0 if the target was deleted.
    is_spilled : bool
        Whether the state is in the store, uncommitted.
    """

    first: int
    last: int
    generation: int
    is_spilled: bool = False


class Sessions:
    """Sessions of targets, all with the same configuration.

    A session that has changed since the last commit and does not fit into memory is spilled: it is
    written to a temporary table, so that the committed state stays as it is.

    Parameters
    ----------
    config : SessionConfig
    store : Store
    most : int, optional
        Sessions in memory at most; without it as many as fit into half a gigabyte.
    summarize : callable, optional
        Returns the summary of a session, which is stored with it.

    Attributes
    ----------
    seq : int
        Number of the batch that is being applied.
    """

    def __init__(
        self,
        config: SessionConfig,
        store: Store,
        most: int | None = None,
        summarize: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.config, self._store, self._most, self._summarize = config, store, most, summarize
        self.seq = 0
        self._largest = 0  # bytes of the largest state
        self._loaded: OrderedDict[str, Session] = OrderedDict()
        self._changes: dict[str, _Change] = {}

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, key: object) -> bool:
        change = self._changes.get(str(key))
        return bool(change.generation) if change is not None else key in self._store.sessions

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names()))

    def _names(self) -> set[str]:
        return {key for key in (*self._store.sessions, *self._changes) if key in self}

    def read(self, key: str) -> Session:
        """Return a session in order to read it; an unknown target has a new one.

        Parameters
        ----------
        key : str

        Returns
        -------
        Session

        Raises
        ------
        OSError
            If another session has to be spilled to make room, and cannot be.
        FileFormatError
            If it is damaged.
        """
        self.make_room(key)
        return self._load(key)

    def change(self, key: str, generation: int = 1) -> Session:
        """Return a session in order to change it, even if no room can be made for it in memory.

        The batch is in the journal already. Call :meth:`make_room` before a batch enters the journal, so
        that only batches in flight can exceed the limit.

        Parameters
        ----------
        key : str
        generation : int
            Of a target that is new.

        Returns
        -------
        Session
        """
        with contextlib.suppress(OSError):
            self.make_room(key)
        session = self._load(key)
        self._note(key, self.generation(key) or generation)
        return session

    def _note(self, key: str, generation: int) -> None:
        change = self._changes.setdefault(key, _Change(self.seq, self.seq, generation))
        if change.is_spilled:
            self._store.drop_spilled(key)
        change.last, change.generation, change.is_spilled = self.seq, generation, False

    def make_room(self, key: str) -> None:
        """Spill sessions until there is room in memory for this one.

        A session that cannot be spilled stays in memory, and OSError is raised.
        """
        if key in self._loaded:
            self._loaded.move_to_end(key)
        while len(self._loaded.keys() | {key}) > self.most:
            oldest = next(iter(self._loaded))
            self._spill(oldest)
            del self._loaded[oldest]

    def _spill(self, key: str) -> None:
        change = self._changes.get(key)
        if change is not None and not change.is_spilled:
            summary, body = self._encode(key)
            self._store.spill(key, change.generation, change.last, summary, body)
            change.is_spilled = True

    def _encode(self, key: str) -> tuple[str, bytes]:
        body = container.to_bytes(KIND, *codec.encode(_Saved(key, self._loaded[key].state())))
        self._largest = max(self._largest, len(body))
        return self._summarize(key), body

    def _load(self, key: str) -> Session:
        if key not in self._loaded:
            self._loaded[key] = self._read(key)
        return self._loaded[key]

    def _read(self, key: str) -> Session:
        if key not in self:
            return self.config.begin()
        if (change := self._changes.get(key)) is not None and change.is_spilled:
            body = self._store.read_spilled(key)[-1]
        else:
            body = self._store.read_session(key)
        self._largest = max(self._largest, len(body))
        content = container.from_bytes(body, name=f"{key!r} in {self._store.path}")
        return self.config.resume(codec.open_content(_Saved, content, KIND).state)

    @property
    def most(self) -> int:
        """Sessions in memory at most."""
        if self._most is not None:
            return max(1, self._most)
        return max(1, BUDGET // (_IN_MEMORY * (self._largest or _GUESS)))

    @property
    def in_memory(self) -> Iterable[str]:
        """Keys of the sessions in memory."""
        return self._loaded.keys()

    def generation(self, key: str) -> int:
        """Return the generation of a target, 0 if there is no such target."""
        if (change := self._changes.get(key)) is not None:
            return change.generation
        row = self._store.sessions.get(key)
        return 0 if row is None else row.generation

    def applied(self, key: str) -> int:
        """Return the number of the last batch that a target contains."""
        if (change := self._changes.get(key)) is not None:
            return change.last
        row = self._store.sessions.get(key)
        return 0 if row is None else row.applied

    def forget(self, key: str) -> None:
        """Drop a session; if the target sends rows again, it gets a new one."""
        self._loaded.pop(key, None)
        self._note(key, 0)

    # -- commits ---------------------------------------------------------------------------------

    @property
    def n_changed(self) -> int:
        """Targets that differ from their committed states."""
        return len(self._changes)

    def first(self, without: Iterable[str] = ()) -> int | None:
        """Return the number of the first batch that is not in a committed state; None if all are.

        Parameters
        ----------
        without : iterable of str
            Targets that are not counted.
        """
        left = self._changes.keys() - set(without)
        return min((self._changes[key].first for key in left), default=None)

    def oldest(self, most: int | None = None) -> list[str]:
        """Return changed targets, those first that changed first."""
        return sorted(self._changes, key=lambda key: self._changes[key].first)[:most]

    def write(self, keys: Iterable[str]) -> None:
        """Write the states of targets; within a transaction. :meth:`end` must follow if it succeeds."""
        for key in keys:
            change = self._changes[key]
            if not change.generation:
                self._store.delete_session(key)
            elif change.is_spilled:
                self._store.write_session(key, *self._store.read_spilled(key))
            else:
                self._store.write_session(key, change.generation, change.last, *self._encode(key))

    def end(self, keys: Iterable[str]) -> None:
        """Note that states are committed."""
        for key in keys:
            if self._changes.pop(key).is_spilled:
                self._store.drop_spilled(key)
