"""The loop: receive, apply, commit, recover. It is the only writer of a store.

``run``, ``forward`` and every worker of ``serve`` drive it; only sources and sinks differ.

*receive*
    write batches to the journal in one transaction, then acknowledge them to their source
*apply*
    let the application do the work for a batch; nothing but sessions in memory changes
*commit*
    flush output files; then, in one transaction, write sessions, messages, lengths of outputs, counts
    and cursor, and remove from the journal what is in them
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
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from baryflow import container
from baryflow.exceptions import BaryflowError, InvalidInputError
from baryflow.persistence import open_content
from baryflow.runtime.session import SessionConfig, describe_error
from baryflow.runtime.sessions import Sessions
from baryflow.runtime.store import Entry, Message, Store
from baryflow.streams import Sink, Source
from baryflow.streams.sinks import encode_record

_log = logging.getLogger("baryflow.runtime")
Value = TypeVar("Value")
#: Replayed batches between two commits: kills may come faster than the usual ones.
_REPLAYED = 16


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

    def is_applied(self, entry: Entry) -> bool:
        """Return whether a batch of the journal is in the committed sessions already."""
        del entry
        return False

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
        is_commit_due: Callable[[], bool],
    ) -> bool:
        """Apply batches of a source until it ends or `stop` returns True; return whether it ended."""
        while not stop():
            batch = source.read(read_size, timeout)
            if batch is None:
                return True
            if batch:
                self.handle(Entry(batch), source)
                if is_commit_due():
                    self.commit()
            elif self._received:  # nothing came for a while
                self.flush()
        return False

    def handle(self, entry: Entry, source: Source) -> Any:
        """Receive a batch of a source, and apply it."""
        if self.store.is_temporary:  # nothing is safe before it is applied
            result = self.apply(*self.receive([entry]))
            source.acknowledge(entry.batch.cursor)
            return result
        (received,) = self.receive([entry])
        source.acknowledge(entry.batch.cursor)
        return self.apply(received)

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
            They must recognise batches that are in a committed session already (``is_applied``).
        synced : bool
            Whether it must be on disk afterwards. If not, a power cut returns to the commit before.

        Raises
        ------
        OSError
            If something cannot be written; the last commit remains.
        """
        if self.store.is_temporary:
            return
        for sink in self.outputs.values():
            sink.flush()
        sessions = self.sessions
        keys = [] if sessions is None else sessions.oldest(most)
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
            if application.is_applied(entry):
                self._applied = seq
                continue
            self.apply(entry)
            n_replayed += 1
            if n_replayed % _REPLAYED == 0:
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
