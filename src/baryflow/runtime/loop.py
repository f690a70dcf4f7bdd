"""The loop: receive, apply, commit, recover. It is the only writer of a store, and keeps the sessions.

``run``, ``forward`` and every worker of ``serve`` drive it; only sources and sinks differ.

*receive*
    write batches to the journal in one transaction, then acknowledge them to their source
*apply*
    let the application do the work for a batch; nothing but sessions in memory changes
*commit*
    flush output files; then, in one transaction, write sessions, messages, lengths of outputs, counts
    and cursor, and remove from the journal what is in them; sessions that are committed may leave memory
*recover*
    after a kill: truncate outputs to their committed lengths, and apply again what is in the journal,
    which must give the same result

A batch that makes the application fail would fail again after every restart. It is therefore
quarantined with the reason, and the loop continues. Errors that are not the fault of the batch (a full
disk, an unreachable service, an output that fails, another owner's checkpoint) end the loop. Nothing is
lost then: the next call resumes.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from baryflow import codec, container
from baryflow.exceptions import BaryflowError, InvalidInputError
from baryflow.persistence import open_content
from baryflow.runtime.session import Session, SessionConfig, SessionState, describe_error
from baryflow.runtime.store import Entry, Message, Store
from baryflow.streams import Sink, Source
from baryflow.streams.sinks import encode_record

_log = logging.getLogger("baryflow.runtime")
Value = TypeVar("Value")
#: Replayed batches between two commits: kills may come faster than the usual ones.
_REPLAYED = 16
_KIND = "target_session"
#: Bytes that sessions may take in memory together, unless their number is given.
_BUDGET = 512 << 20
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

    `first` and `last` are the numbers of the first and last batch that are not in the committed state.
    `generation` is 0 if the target was deleted.
    """

    first: int
    last: int
    generation: int


class Sessions:
    """Sessions of targets, all with the same configuration.

    Those used most recently are in memory. A session that has changed since the last commit leaves
    memory only after it is committed.

    Parameters
    ----------
    config : SessionConfig
    store : Store
    most : int, optional
        Sessions in memory at most; without it as many as fit into half a gigabyte. Batches that are
        being applied may exceed it.
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
        return bool(self.generation(str(key)))

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
        FileFormatError
            If it is damaged.
        """
        if key in self._loaded:
            self._loaded.move_to_end(key)
        else:
            known = key in self
            self._loaded[key] = self.config.resume(self._read(key)) if known else self.config.begin()
            self._drop_committed()
        return self._loaded[key]

    def copy(self, key: str) -> SessionState:
        """Return a copy of the state of a known target; what is in memory does not change."""
        return copy.deepcopy(self._loaded[key].state()) if key in self._loaded else self._read(key)

    def change(self, key: str, generation: int = 1) -> Session:
        """Return a session in order to change it; `generation` is that of a target that is new."""
        session = self.read(key)
        self._note(key, self.generation(key) or generation)
        return session

    def forget(self, key: str) -> None:
        """Drop a session; if the target sends rows again, it gets a new one."""
        self._loaded.pop(key, None)
        self._note(key, 0)

    def _note(self, key: str, generation: int) -> None:
        change = self._changes.setdefault(key, _Change(self.seq, self.seq, generation))
        change.last, change.generation = self.seq, generation

    def _read(self, key: str) -> SessionState:
        body = self._store.read_session(key)
        self._largest = max(self._largest, len(body))
        content = container.from_bytes(body, name=f"{key!r} in {self._store.path}")
        saved: _Saved = codec.open_content(_Saved, content, _KIND)
        return saved.state

    def generation(self, key: str) -> int:
        """Return the generation of a target, 0 if there is no such target."""
        if (change := self._changes.get(key)) is not None:
            return change.generation
        row = self._store.sessions.get(key)
        return 0 if row is None else row.generation

    # -- memory ----------------------------------------------------------------------------------

    @property
    def most(self) -> int:
        """Sessions in memory at most."""
        if self._most is not None:
            return max(1, self._most)
        return max(1, _BUDGET // (_IN_MEMORY * (self._largest or _GUESS)))

    @property
    def in_memory(self) -> Iterable[str]:
        """Keys of the sessions in memory."""
        return self._loaded.keys()

    def excess(self, key: str | None = None) -> list[str]:
        """Return sessions that must be committed so that there is room in memory, also for a target."""
        more = key is not None and key not in self._loaded
        self._drop_committed(int(more))
        n = max(0, len(self._loaded) + more - self.most)
        return [one for one in [*self._loaded][:n] if one in self._changes]

    def _drop_committed(self, room: int = 0) -> None:
        """Drop committed sessions from memory, those used least recently first."""
        while len(self._loaded) + room > self.most:
            oldest = next(iter(self._loaded))
            if oldest in self._changes:
                return
            del self._loaded[oldest]

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
                continue
            body = container.to_bytes(_KIND, *codec.encode(_Saved(key, self._loaded[key].state())))
            self._largest = max(self._largest, len(body))
            summary = self._summarize(key)
            self._store.write_session(key, change.generation, change.last, summary, body)

    def end(self, keys: Iterable[str]) -> None:
        """Note that states are committed."""
        for key in keys:
            del self._changes[key]
        self._drop_committed()

    def is_applied(self, entry: Entry) -> bool:
        """Return whether a batch that is for one target alone is in its committed session already."""
        if not entry.target:
            return False  # a commit contains all batches before it
        generation = self.generation(entry.target)
        if not generation:  # only first rows create a target: others belong to one deleted since
            return entry.generation != entry.seq
        # Batches of a deleted target with this name were applied before it was created again.
        row = self._store.sessions.get(entry.target)
        return entry.generation != generation or (row is not None and entry.seq <= row.applied)


class Application(Protocol):
    """What batches are applied to."""

    @property
    def owner(self) -> str:
        """Name of the command; only the command that made a store can resume from it."""

    def apply(self, entry: Entry) -> Any:
        """Do the work for a batch and return the result; it must depend on the batches alone.

        Nothing is counted or written yet.
        """

    def quarantine(self, entry: Entry, reason: str) -> Any:
        """Return the result of a batch whose rows are all set aside, because applying it failed."""

    def finish(self, entry: Entry, result: Any) -> Any:
        """Count a batch and write its result. This is called once; an error ends the loop."""

    def is_commit_due(self) -> bool:
        """Return whether to commit after the last batch."""

    def state(self) -> dict[str, Any]:
        """Return counts, cursor and the like after the last batch; plain values, as in JSON."""

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state."""


class Loop:
    """Applies batches so that a killed process resumes where it stopped.

    Parameters
    ----------
    application : Application
    store : Store
        If it is temporary, nothing survives the process.
    outputs : mapping of str → Sink
        They are truncated when the process resumes.
    sessions : Sessions, optional
        What the application changes.

    Attributes
    ----------
    replaying : bool
        Whether batches are applied that an earlier process has received.
    """

    def __init__(
        self,
        application: Application,
        store: Store,
        outputs: Mapping[str, Sink] | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self.application, self.store = application, store
        self.outputs, self.sessions = dict(outputs or {}), sessions
        self.replaying = False
        self._applied = store.seq
        self._n = 0  # messages of the batch that is being applied
        self._unwritten: list[Message] = []
        self._received: deque[tuple[Message, set[str], bool]] = deque()  # from other threads

    # -- receive ---------------------------------------------------------------------------------

    def follow(
        self,
        source: Source,
        stop: Callable[[], bool],
        *,
        read_size: int,
        timeout: float | None,
    ) -> bool:
        """Apply batches of a source until it ends or `stop` returns True; return whether it ended."""
        while not stop():
            batch = source.read(read_size, timeout)
            if batch is None:
                return True
            if batch:
                self.handle(Entry(batch), source)
            elif self._received:  # nothing came for a while
                self.flush()
        return False

    def handle(self, entry: Entry, source: Source) -> None:
        """Receive a batch of a source, apply it, and commit if that is due."""
        (received,) = self.receive([entry])
        if not self.store.is_temporary:
            source.acknowledge(entry.batch.cursor)
        self.apply(received)
        if self.store.is_temporary:  # nothing is safe before it is applied
            source.acknowledge(entry.batch.cursor)
        if self.application.is_commit_due():
            self.commit()
        self.make_room()

    def receive(self, entries: Sequence[Entry]) -> list[Entry]:
        """Write batches to the journal, all or none of them, and return them with their numbers."""
        if self.store.is_temporary:
            first = self.store.seq + 1
            self.store.seq += len(entries)
            numbered = [replace(one, seq=seq) for seq, one in enumerate(entries, first)]
            return [replace(one, generation=one.generation or one.seq) for one in numbered]
        with self._transaction():
            return self.store.append(entries)

    # -- apply -----------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> Any:
        """Apply a batch that is in the journal; quarantine it if that fails."""
        application, self._n = self.application, 0
        if self.sessions is not None:
            self.sessions.seq = entry.seq
        result: Any = attempt(
            lambda: application.apply(entry), lambda reason: application.quarantine(entry, reason)
        )
        found = application.finish(entry, result)
        self._applied = entry.seq
        return found

    # -- messages --------------------------------------------------------------------------------

    def post(self, entry: Entry, receiver: str, records: Sequence[dict[str, Any]]) -> list[Message]:
        """Keep records of a batch for receivers that may be away.

        Parameters
        ----------
        entry : Entry
        receiver : str
            What they are for.
        records : sequence of dict

        Returns
        -------
        list of Message
            Those that an earlier process has not kept. If they cannot be written, a replay of the
            journal finds them again.
        """
        new = []
        for record in records:
            identity = (entry.target, entry.generation, entry.seq, self._n)
            self._n += 1
            if identity not in self.store.messages:
                plain = json.loads(encode_record(record))
                name = self.store.name_message(*identity)
                new.append(Message(*identity, receiver, name, plain))
        self._unwritten += new
        self.flush()
        return new

    def unsent(self, receiver: str) -> list[Message]:
        """Return the messages of a kind that not all receivers have."""
        found = self.store.messages.values()
        return [one for one in found if one.receiver == receiver and not one.finished]

    def note(self, message: Message, received: set[str], finished: bool) -> None:
        """Note which receivers have a message, and whether these are all; from any thread."""
        self._received.append((message, received, finished))

    def flush(self) -> None:
        """Write messages, and what has become of them.

        There is no sync: the journal has what they are made from, and is synced.
        """
        if self.store.is_temporary:
            self._unwritten.clear()
            self._received.clear()
        elif self._unwritten or self._received:
            try:
                with self._transaction(synced=False):
                    pass
            except OSError as error:
                _log.error("cannot write messages: %s; they may be sent again", error)

    @contextlib.contextmanager
    def _transaction(self, *, synced: bool = True) -> Iterator[None]:
        """Make a transaction that also writes messages, and what has become of them."""
        received = list(self._received)
        with self.store.transaction(synced=synced):
            yield
            for message, receivers, finished in received:
                message.received |= receivers
                message.finished |= finished
            both = [*self._unwritten, *(message for message, *_ in received)]
            for message in {one.identity: one for one in both}.values():
                self.store.put_message(message)
        self._unwritten.clear()
        for _ in received:
            self._received.popleft()

    # -- commit ----------------------------------------------------------------------------------

    def commit(self, most: int | None = None, *, synced: bool = True) -> None:
        """Commit the state after the last batch.

        Parameters
        ----------
        most : int, optional
            Changed sessions to commit at most, the oldest first, for owners that must not wait long.
            All their batches must be for one target each.
        synced : bool
            Whether it must be on disk afterwards. If not, a power cut returns to the commit before.

        Raises
        ------
        OSError
            If something cannot be written; the last commit remains.
        """
        if not self.store.is_temporary:
            self._commit([] if self.sessions is None else self.sessions.oldest(most), synced)

    def make_room(self, key: str | None = None) -> None:
        """Make room for sessions in memory, by committing some: those used least recently.

        Parameters
        ----------
        key : str, optional
            Target whose session is needed next. Without it all sessions are committed if there are too
            many, since batches may be for several targets.

        Raises
        ------
        OSError
            If they cannot be written; they stay in memory.
        """
        if self.sessions is not None and (keys := self.sessions.excess(key)):
            self._commit(self.sessions.oldest() if key is None else keys, synced=False)

    def _commit(self, keys: list[str], synced: bool) -> None:
        for sink in self.outputs.values():
            sink.flush()
        sessions = self.sessions
        first = None if sessions is None else sessions.first(without=keys)
        with self._transaction(synced=synced):
            if sessions is not None:
                sessions.write(keys)
            for name, sink in self.outputs.items():
                self.store.set_length(name, sink.position)
            self.store.set("state", self.application.state())
            if self.store.is_new:
                self.store.set("owner", self.application.owner)
            self.store.trim(self._applied if first is None else first - 1)
        if sessions is not None:
            sessions.end(keys)

    # -- recover ---------------------------------------------------------------------------------

    def recover(self) -> int:
        """Return to the last commit, and apply the batches after it; return their number."""
        store, application = self.store, self.application
        if store.is_temporary:
            return 0
        if store.is_new:
            self.commit()  # so that there is a state to resume from
            return 0
        owner = store.get("owner")
        if owner != application.owner:
            raise InvalidInputError(
                f"cannot resume: the checkpoint was made by 'baryflow {owner}', not by 'baryflow "
                f"{application.owner}'; use another folder"
            )
        application.restore(store.get("state"))
        for name, sink in self.outputs.items():
            sink.truncate(store.lengths.get(name, 0))
        self.replaying, n_replayed = True, 0
        for seq in list(store.pending):
            entry = store.read(seq)
            if self.sessions is not None and self.sessions.is_applied(entry):
                self._applied = seq
                continue
            self.apply(entry)
            n_replayed += 1
            if n_replayed % _REPLAYED == 0 or (self.sessions is not None and self.sessions.excess()):
                self._commit_replayed()
        self.replaying = False
        if n_replayed:
            self._commit_replayed()
        return n_replayed

    def _commit_replayed(self) -> None:
        try:
            self.commit()
        except OSError as error:
            if self.outputs:
                raise
            _log.error("cannot commit: %s; the journal still holds everything", error)


def attempt(apply: Callable[[], Value], quarantine: Callable[[str], Value]) -> Value:
    """Return the result of applying rows, or of quarantining them with the reason if that fails.

    Errors that are not the fault of the rows are raised.
    """
    try:
        return apply()
    except (BaryflowError, OSError, MemoryError):
        raise
    except Exception as error:
        return quarantine(f"applying it failed: {describe_error(error)}")


def resume_config(config: SessionConfig, store: Store) -> tuple[SessionConfig, str]:
    """Return the configuration with the model that the store was made with, and a warning.

    The warning is empty if that is the given model.
    """
    given = config.base.to_bytes()
    kept = store.keep_model(given)
    if kept == given:
        return config, ""
    base: Any = open_content(container.from_bytes(kept))
    if _columns(base) != _columns(config.base):
        raise InvalidInputError(
            f"cannot resume: {store.folder} was made with a model of other columns; use that model, or "
            "another folder"
        )
    warning = (
        f"{store.folder} was made with another model, which is used instead of the given one; to use "
        "the given one, use another folder"
    )
    return replace(config, base=base), warning


def _columns(base: Any) -> list[str] | int:
    """Return the names of the columns that a model expects, or their number."""
    names = getattr(base, "feature_names_in_", None)
    return int(getattr(base, "model", base).n_features_in_) if names is None else list(names)
