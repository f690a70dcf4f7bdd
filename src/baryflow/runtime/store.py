"""The store: one SQLite file that holds everything a process needs to resume.

This is the only place that persists. The file is ``store.db`` in a checkpoint folder; a service with
several workers has one for each. It holds

==============  ==================================================================================
``journal``     batches that were received and may not be in a committed session yet
``session``     the last committed state of each target, and its summary
``outbox``      alarms that may not have been sent, and those sent since the journal begins
``outputs``     lengths of output files
``meta``        owner, model, options, cursor and counts
``head``        version of the schema, number of transactions, last record of the journal, tally
==============  ==================================================================================

Transactions are those of SQLite in WAL mode with ``synchronous=FULL``: one sync each, a third of what
a rollback journal costs. The file is locked by one process at a time.

**Damage.** SQLite checks the frames of its write-ahead log, but not the pages of its file, and it
ignores a log from the first damaged frame on: committed transactions would be gone without a word.
Therefore each row has a seal, a digest of what is in it. The head has the tally, the sum of all seals;
it is written by each transaction, so a row that is missing, changed or of another transaction is found.
The number of the last transaction is also written to ``store.mark``, after the transaction. If the mark
is newer than the file, transactions are missing. A process killed in between leaves a mark that is
older, which is fine. The mark is not synced: if the power fails it is older, too, and what was
acknowledged is safe all the same, because the transaction was synced. At the start everything is
checked except the states of targets in a large file; each of these is checked when it is read. If
anything is wrong, the start says what, and the files are left as they are.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sqlite3
import struct
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from baryflow import container
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.streams import Batch, Label, Rejected
from baryflow.streams.base import AlarmCommand

SCHEMA = 1
NAME = "store.db"
#: Columns of the tables; each also has an id, a checksum of the body, a seal and the body.
_TABLES = {
    "head": ("schema", "commits", "seq", "tally"),
    "meta": ("name",),
    "outputs": ("name", "length"),
    "journal": ("target", "generation", "kind", "key", "digest", "cursor"),
    "session": ("target", "generation", "applied", "summary"),
    "outbox": ("target", "generation", "seq", "n", "receiver", "name", "received", "finished"),
}
#: Bytes of a file up to which all states of targets are checked at the start.
_CHECKED = 256 << 20
_TALLY = 1 << 62
_SIZE = struct.Struct("<I")  # length of the JSON of a batch
_MARK = struct.Struct("<8s16sQI")  # magic, id of the store, transactions, CRC-32
_MAGIC = b"baryflow"
_FILES = re.compile(r"store(-\d+-of-\d+)?\.(db(-wal|-shm|-journal)?|mark)|workers|quarantine.*\.ndjson")
_OLD_FILES = ("snapshot-*.bary", "journal-*.log", "workers-*/*/snapshot-*.bary", "workers-*/*/*.log")


def is_checkpoint_file(path: Path) -> bool:
    """Return whether a file in a checkpoint folder would belong to the checkpoint."""
    return _FILES.fullmatch(path.name) is not None


@dataclass(frozen=True, eq=False)
class Entry:
    """A batch in the journal.

    Attributes
    ----------
    batch : Batch
    target : str
        All of it is for this target; ``""`` if the rows have keys of their own.
    generation : int
        Of the target; 0: the batch creates it, and its own number becomes the generation.
    kind : str
        What the batch is.
    key, digest : str or None
        Id of the request, chosen by the client, and digest of its content.
    seq : int
        Number of the batch, from 1; 0 before it is in the journal.
    """

    batch: Batch
    target: str = ""
    generation: int = 0
    kind: str = "batch"
    key: str | None = None
    digest: str | None = None
    seq: int = 0


@dataclass(frozen=True)
class SessionRow:
    """What is known of a committed session without reading its state."""

    id: int
    generation: int
    applied: int
    summary: str


@dataclass
class Message:
    """A record for receivers that may be away.

    It is identified by (target, generation, seq, n): record number `n` of a batch. `receiver` is the
    kind of receivers that it is for, and `received` the names of those that have it. `name` is the same
    whenever it is sent.
    """

    target: str
    generation: int
    seq: int
    n: int
    receiver: str
    name: str
    record: dict[str, Any]
    received: set[str] = field(default_factory=set)
    finished: bool = False
    id: int = 0

    @property
    def identity(self) -> tuple[str, int, int, int]:
        """What it is recognised by."""
        return self.target, self.generation, self.seq, self.n


class Store:
    """The store of one process.

    Parameters
    ----------
    folder : path or None
        Created if it does not exist; None: a temporary store that nothing survives.
    patience : float
        Seconds to wait for another process that is using the file.
    name : str
        Of the file.

    Attributes
    ----------
    path : Path
    seq : int
        The last number in the journal.
    pending : dict of int → int
        Seals of the batches in the journal by their numbers, in order.
    sessions : dict of str → SessionRow
        The committed sessions.
    messages : dict of (str, int, int, int) → Message
        The outbox; messages that are finished have no record.

    Raises
    ------
    InvalidInputError
        If another process is using the file, or it is of another release.
    FileFormatError
        If anything is damaged or missing.
    OSError
        If the file cannot be created.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None, patience: float = 0.0, name: str = NAME
    ) -> None:
        self.is_temporary = folder is None
        self.folder = Path() if folder is None else Path(folder)
        self.path = self.folder / name
        self.seq = self._commits = self._tally = 0
        self._id = uuid.uuid4().bytes
        self._seals: dict[str, dict[int, int]] = {table: {} for table in _TABLES}
        self._names: dict[tuple[str, str], int] = {}  # ids of rows of meta and outputs
        self.lengths: dict[str, int] = {}
        self.sessions: dict[str, SessionRow] = {}
        self.messages: dict[tuple[str, int, int, int], Message] = {}
        self._undo: list[Callable[[], None]] = []
        self._synchronous = ""
        self._mark: int | None = None
        if folder is not None:
            _check_folder(self.folder)
        exists = not self.is_temporary and self._require_complete()
        had_log = exists and self._log_path.exists()
        self._connection = sqlite3.connect(
            "" if folder is None else self.path,
            timeout=patience,
            isolation_level=None,
            check_same_thread=False,
        )
        # Python 3.13 warns of a connection that is dropped; a temporary store may be.
        weakref.finalize(self, self._connection.close).atexit = False
        try:
            with self._translated():
                self._open(exists)
        except FileFormatError:
            self._close_unchanged(had_log)
            raise
        except BaseException:
            self._connection.close()
            raise

    @property
    def pending(self) -> dict[int, int]:
        """Numbers of the batches in the journal, in order."""
        return self._seals["journal"]

    # -- opening ---------------------------------------------------------------------------------

    def _require_complete(self) -> bool:
        """Return whether there is a store; raise if only a part of it is there."""
        found = self.path.exists()
        for other in (self._mark_path, self._log_path):
            if not found and other.exists():
                raise self._damaged(f"it does not exist, but {other.name} does")
        return found

    @property
    def _mark_path(self) -> Path:
        return self.path.with_suffix(".mark")

    @property
    def _log_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _open(self, exists: bool) -> None:
        execute = self._connection.execute
        execute("PRAGMA locking_mode=EXCLUSIVE")  # one process, and no shared memory
        execute("PRAGMA secure_delete=OFF")
        tables = {name for (name,) in execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables and not (exists and self._mark_path.exists()):
            self._create()
            return
        if missing := sorted(_TABLES.keys() - tables):
            raise self._damaged(f"there is no table {missing[0]!r}")
        (schema,) = execute("SELECT schema FROM head").fetchone() or (None,)
        if schema != SCHEMA:
            raise InvalidInputError(
                f"cannot resume: {self.path} has schema version {schema}, and this release reads "
                f"version {SCHEMA}: use the release that wrote it, or another folder"
            )
        if execute("PRAGMA journal_mode").fetchone() != ("wal",):
            raise self._damaged("its header is wrong")
        self._check()

    def _create(self) -> None:
        execute = self._connection.execute
        if not self.is_temporary:
            execute("PRAGMA journal_mode=WAL")
        with self.transaction():  # a process killed here leaves all tables or none
            for table, columns in _TABLES.items():
                names = ", ".join(("id INTEGER PRIMARY KEY", *columns, "checksum", "seal", "body"))
                execute(f"CREATE TABLE {table} ({names})")
            self._put_named("meta", "id", body=self._id)
        if not self.is_temporary:
            self._create_mark()

    def _check(self) -> None:
        """Check the whole file, and read what is kept in memory."""
        execute = self._connection.execute
        pages, size = (execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size"))
        is_small = pages * size <= _CHECKED
        if is_small:
            (found,) = execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise self._damaged(found)
        tally = 0
        for table in _TABLES:
            for id_, values, body in self._rows(table, bodies=is_small or table != "session"):
                if table == "head":
                    _, self._commits, self.seq, self._tally = values
                    continue
                tally += self._seals[table][id_]
                self._remember(table, id_, values, body)
        if tally % _TALLY != self._tally or not self._seals["head"]:
            raise self._damaged("rows are missing or of another transaction")
        if [*self.pending] != [*range(self.seq - len(self.pending) + 1, self.seq + 1)]:
            raise self._damaged("batches of the journal are missing")
        self._id = self.get_bytes("id") or b""
        self._check_mark()

    def _rows(self, table: str, *, bodies: bool) -> Iterator[tuple[int, tuple[Any, ...], bytes | None]]:
        """Yield id, columns and body of each row, checked."""
        columns = ("id", *_TABLES[table], "checksum", "seal", *(["body"] if bodies else []))
        query = f"SELECT {', '.join(columns)} FROM {table} ORDER BY id"  # noqa: S608 - our own names
        for id_, *row in self._connection.execute(query):
            body = row.pop() if bodies else None
            *values, checksum, seal = row
            where = f"row {id_} of {table}"
            if seal != _seal(table, id_, *values, checksum):
                raise self._damaged(where)
            if bodies and checksum != _checksum(body):
                raise self._damaged(where)
            self._seals[table][id_] = seal
            yield id_, tuple(values), body

    def _remember(self, table: str, id_: int, values: tuple[Any, ...], body: bytes | None) -> None:
        if table in ("meta", "outputs"):
            self._names[table, values[0]] = id_
        if table == "outputs":
            self.lengths[values[0]] = values[1]
        if table == "session":
            self.sessions[values[0]] = SessionRow(id_, *values[1:])
        if table == "outbox":
            *begin, received, finished = values
            record = {} if body is None else json.loads(body)
            more = (record, set(json.loads(received)), bool(finished), id_)
            message = Message(*(*begin, *more))
            self.messages[message.identity] = message

    def _check_mark(self) -> None:
        try:
            packed = self._mark_path.read_bytes()[: _MARK.size]
        except FileNotFoundError:
            if self._commits == 1:  # killed between the first transaction and its mark
                self._create_mark()
                return
            raise self._damaged(f"{self._mark_path.name} does not exist") from None
        if len(packed) < _MARK.size or packed[-4:] != _crc(packed[:-4]):
            raise self._damaged(f"{self._mark_path.name} is damaged")
        _, found, commits, _ = _MARK.unpack(packed)
        if found != self._id:
            raise self._damaged(f"{self._mark_path.name} is that of another store")
        if commits > self._commits:
            missing = commits - self._commits
            raise self._damaged(f"the last {missing} transactions are missing from it")
        self._open_mark()

    def _damaged(self, what: str) -> FileFormatError:
        return FileFormatError(
            f"cannot resume: {self.path} is damaged: {what}; nothing was changed. Restore the folder "
            "from a backup, or start from the beginning with another folder"
        )

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of SQLite as what they mean."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise InvalidInputError(
                    f"{self.path} is in use by another process; wait until it ends, or use another "
                    "folder"
                ) from error
            number = {
                sqlite3.SQLITE_FULL: errno.ENOSPC,
                sqlite3.SQLITE_IOERR: errno.EIO,
                sqlite3.SQLITE_READONLY: errno.EROFS,
                sqlite3.SQLITE_CANTOPEN: errno.EACCES,
            }.get(code)
            if number is not None:
                raise OSError(number, os.strerror(number), str(self.path)) from error
            raise self._damaged(str(error)) from error

    def _close_unchanged(self, had_log: bool) -> None:
        """Close a damaged file; SQLite would move its log into the file, and delete the log."""
        copy, log = (path.with_name(f".kept-{path.name}") for path in (self.path, self._log_path))
        try:
            shutil.copyfile(self.path, copy)
        except OSError:  # no room: what SQLite moves into the file stays in the log as well
            copy.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._log_path.rename(log)
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        if had_log and log.exists():
            log.replace(self._log_path)
        log.unlink(missing_ok=True)
        if copy.exists():
            copy.replace(self.path)

    # -- transactions ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, *, synced: bool = True) -> Iterator[None]:
        """Make all changes or none of them.

        Parameters
        ----------
        synced : bool
            Whether they must be on disk afterwards; if not, they are with the next one that is.

        Raises
        ------
        OSError
            If they cannot be written; nothing has changed then.
        """
        self._undo.clear()
        before = (self.seq, self._tally)
        try:
            with self._translated():
                self._set_synchronous("FULL" if synced else "NORMAL")
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._put("head", 1, SCHEMA, self._commits + 1, self.seq, self._tally)
                self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            for undo in reversed(self._undo):
                undo()
            self.seq, self._tally = before
            raise
        self._commits += 1
        if synced:
            with contextlib.suppress(OSError):  # the transaction is on disk all the same
                self._write_mark()

    def _set_synchronous(self, how: str) -> None:
        if self._synchronous != how:
            self._connection.execute(f"PRAGMA synchronous={'OFF' if self.is_temporary else how}")
            self._synchronous = how

    def _create_mark(self) -> None:
        container.write_bytes(self._mark_path, self._packed_mark())
        self._open_mark()

    def _open_mark(self) -> None:
        self._mark = os.open(self._mark_path, os.O_WRONLY | getattr(os, "O_BINARY", 0))

    def _write_mark(self) -> None:
        if self._mark is not None:
            os.lseek(self._mark, 0, os.SEEK_SET)
            os.write(self._mark, self._packed_mark())

    def _packed_mark(self) -> bytes:
        content = _MARK.pack(_MAGIC, self._id, self._commits, 0)[:-4]
        return content + _crc(content)

    def _put(self, table: str, id_: int, *values: Any, body: bytes | None = None) -> None:
        checksum = _checksum(body)
        seal = _seal(table, id_, *values, checksum)
        row = (id_, *values, checksum, seal, body)
        marks = ", ".join("?" * len(row))
        query = f"INSERT OR REPLACE INTO {table} VALUES ({marks})"  # noqa: S608 - our own names
        self._connection.execute(query, row)
        if table != "head":
            self._set_seal(table, id_, seal)

    def _delete(self, table: str, ids: Iterable[int]) -> None:
        ids = list(ids)
        query = f"DELETE FROM {table} WHERE id = ?"  # noqa: S608 - our own names
        self._connection.executemany(query, [(one,) for one in ids])
        for one in ids:
            self._set_seal(table, one, None)

    def _set_seal(self, table: str, id_: int, seal: int | None) -> None:
        seals = self._seals[table]
        self._tally = (self._tally - seals.get(id_, 0) + (seal or 0)) % _TALLY
        self._set(seals, id_, seal)

    def _set(self, known: dict[Any, Any], key: Any, value: Any) -> None:
        """Change what is kept in memory, so that it can be undone; None: remove."""
        before = known.get(key)
        self._undo.append(lambda: _restore(known, key, before))
        _restore(known, key, value)

    def _put_named(self, table: str, name: str, *values: Any, body: bytes | None = None) -> None:
        id_ = self._names.get((table, name)) or self._next_id(table)
        self._put(table, id_, name, *values, body=body)
        self._set(self._names, (table, name), id_)

    def _next_id(self, table: str) -> int:
        return max(self._seals[table], default=0) + 1

    def _body(self, table: str, id_: int) -> bytes | None:
        """Return the body of a row, checked."""
        query = f"SELECT checksum, body FROM {table} WHERE id = ?"  # noqa: S608 - our own names
        with self._translated():
            row = self._connection.execute(query, (id_,)).fetchone()
        if row is None or row[0] != _checksum(row[1]):
            raise self._damaged(f"row {id_} of {table}")
        body: bytes | None = row[1]
        return body

    # -- meta ------------------------------------------------------------------------------------

    @property
    def is_new(self) -> bool:
        """Whether no process has resumed from it, or could."""
        return ("meta", "owner") not in self._names

    def get_bytes(self, name: str) -> bytes | None:
        """Return a value, None if there is none."""
        id_ = self._names.get(("meta", name))
        return None if id_ is None else self._body("meta", id_)

    def set_bytes(self, name: str, value: bytes) -> None:
        """Set a value; within a transaction."""
        self._put_named("meta", name, body=value)

    def get(self, name: str) -> Any:
        """Return a plain value, as in JSON; None if there is none."""
        found = self.get_bytes(name)
        return None if found is None else json.loads(found)

    def set(self, name: str, value: Any) -> None:
        """Set a plain value; within a transaction."""
        self.set_bytes(name, json.dumps(value, ensure_ascii=False).encode())

    def keep_model(self, model: bytes) -> bytes:
        """Return the model that the store was made with; the first one is kept."""
        kept = self.get_bytes("model")
        if kept is None or self.is_new:
            with self.transaction():
                self.set_bytes("model", model)
            return model
        return kept

    def keep_options(self, options: Mapping[str, Any]) -> None:
        """Keep the options that shape results, or check that they are those the store was made with.

        Parameters
        ----------
        options : mapping of str → str, number or None
            Names on the command line, without leading hyphens; None: not given.

        Raises
        ------
        InvalidInputError
            If an option differs.
        """
        kept = self.get("options")
        if kept is None or self.is_new:
            with self.transaction():
                self.set("options", dict(options))
            return
        for name, value in options.items():
            if name in kept and kept[name] != value:
                raise InvalidInputError(
                    f"cannot resume {_option(name, value)}: {self.folder} was made "
                    f"{_option(name, kept[name])}; use the same value, or another folder"
                )

    def set_length(self, name: str, length: int) -> None:
        """Set the length of an output; within a transaction."""
        if self.lengths.get(name) != length:
            self._put_named("outputs", name, length)
            self._set(self.lengths, name, length)

    # -- journal ---------------------------------------------------------------------------------

    def append(self, entries: Iterable[Entry]) -> list[Entry]:
        """Append batches to the journal and return them with their numbers; within a transaction."""
        found = []
        for entry in entries:
            self.seq += 1
            one = replace(entry, seq=self.seq, generation=entry.generation or self.seq)
            found.append(one)
            values = (one.target, one.generation, one.kind, one.key, one.digest)
            cursor = json.dumps(one.batch.cursor, ensure_ascii=False)
            self._put("journal", one.seq, *values, cursor, body=_pack(one.batch))
        return found

    def read(self, seq: int) -> Entry:
        """Return a batch of the journal."""
        body = self._body("journal", seq)
        query = "SELECT target, generation, kind, key, digest, cursor FROM journal WHERE id = ?"
        with self._translated():
            row = self._connection.execute(query, (seq,)).fetchone()
        target, generation, kind, key, digest, cursor = row
        batch = _unpack(body or b"", json.loads(cursor))
        return Entry(batch, target, generation, kind, key, digest, seq)

    def trim(self, seq: int) -> None:
        """Remove batches up to a number, and messages of them that are finished; in a transaction."""
        self._delete("journal", [one for one in self.pending if one <= seq])
        over = [m for m in self.messages.values() if m.finished and m.seq <= seq]
        self._delete("outbox", [message.id for message in over])
        for message in over:
            self._set(self.messages, message.identity, None)

    # -- sessions --------------------------------------------------------------------------------

    def write_session(
        self, target: str, generation: int, applied: int, summary: str, body: bytes
    ) -> None:
        """Write the state of a target after batch number `applied`; within a transaction."""
        known = self.sessions.get(target)
        row = SessionRow(
            self._next_id("session") if known is None else known.id, generation, applied, summary
        )
        self._put("session", row.id, target, generation, applied, summary, body=body)
        self._set(self.sessions, target, row)

    def read_session(self, target: str) -> bytes:
        """Return the committed state of a target."""
        return self._body("session", self.sessions[target].id) or b""

    def delete_session(self, target: str) -> None:
        """Delete the state of a target; within a transaction."""
        if (known := self.sessions.get(target)) is not None:
            self._delete("session", [known.id])
            self._set(self.sessions, target, None)

    # -- outbox ----------------------------------------------------------------------------------

    def put_message(self, message: Message) -> None:
        """Write a message, or what has become of it; within a transaction."""
        id_ = message.id or self._next_id("outbox")
        received = json.dumps(sorted(message.received))
        body = None if message.finished else json.dumps(message.record, ensure_ascii=False).encode()
        names = (message.receiver, message.name)
        self._put("outbox", id_, *message.identity, *names, received, int(message.finished), body=body)
        message.id = id_
        self._set(self.messages, message.identity, message)

    def name_message(self, target: str, generation: int, seq: int, n: int) -> str:
        """Return the name of a message, which is the same after a restart."""
        content = repr((self._id, target, generation, seq, n)).encode()
        return blake2b(content, digest_size=16).hexdigest()

    def close(self) -> None:
        """Close the file, and unlock it."""
        self._connection.close()
        if self._mark is not None:
            os.close(self._mark)
            self._mark = None


def _check_folder(folder: Path) -> None:
    if folder.is_file():
        raise InvalidInputError(f"a checkpoint is a folder, but {folder} is a file; use another name")
    folder.mkdir(parents=True, exist_ok=True)
    old = sorted(path for pattern in _OLD_FILES for path in folder.glob(pattern))
    if old:
        owner = "run"
        with contextlib.suppress(FileFormatError, OSError, IndexError):
            snapshots = [path for path in old if path.suffix == ".bary"]
            owner = str(container.read(snapshots[-1]).values.get("owner", owner))
        raise InvalidInputError(
            f"cannot resume: {folder} is a checkpoint of baryflow 0.2.0. To finish it: pipx run --spec "
            f"baryflow==0.2.0 baryflow {owner} … --checkpoint {folder}. Then start with another folder"
        )


def _option(name: str, value: Any) -> str:
    return f"without --{name}" if value is None else f"with --{name} {value}"


def _restore(known: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value


def _checksum(body: bytes | None) -> int | None:
    return None if body is None else zlib.crc32(body)


def _crc(content: bytes) -> bytes:
    return _SIZE.pack(zlib.crc32(content))


def _seal(*values: Any) -> int:
    """Return a digest of the columns of a row."""
    return int.from_bytes(blake2b(repr(values).encode(), digest_size=7).digest(), "little")


def _pack(batch: Batch) -> bytes:
    fields = {name: value for name, value in vars(batch).items() if name not in ("rows", "cursor")}
    fields["shape"] = list(batch.rows.shape)
    fields["positions"] = batch.positions.tolist()
    fields["rejected"] = [asdict(row) for row in batch.rejected]
    fields["labels"] = [asdict(label) for label in batch.labels]
    fields["commands"] = [asdict(command) for command in batch.commands]
    text = json.dumps(fields, ensure_ascii=False).encode()
    return _SIZE.pack(len(text)) + text + np.ascontiguousarray(batch.rows).tobytes()


def _unpack(content: bytes, cursor: dict[str, Any]) -> Batch:
    (length,) = _SIZE.unpack(content[: _SIZE.size])
    fields = json.loads(content[_SIZE.size : _SIZE.size + length])
    rows = np.frombuffer(content, dtype=np.float64, offset=_SIZE.size + length)
    fields["rows"] = rows.reshape(fields.pop("shape"))
    fields["positions"] = np.array(fields["positions"], dtype=np.intp)
    fields["rejected"] = [Rejected(**row) for row in fields["rejected"]]
    fields["labels"] = [Label(**label) for label in fields["labels"]]
    fields["commands"] = [AlarmCommand(**command) for command in fields["commands"]]
    return Batch(**fields, cursor=cursor)
