"""The worker: one thread that has the models and the journal of a share of the targets.

It takes all requests that are waiting, writes their rows and labels to the journal with one sync,
applies them one after the other, and answers each as soon as it is applied. Rows are therefore replayed
in the order in which they were applied. A snapshot blocks no request for long: a new journal is begun,
then every changed target is written, one after each group of requests, and batches that the files
contain already are skipped by a replay. What only looks at a target gets a copy of its session, in
another thread.

With one worker it is a thread of the service (:class:`ThreadChannel`). Most of a step through arrays of
this size holds the interpreter's lock, so several workers are processes (:class:`ProcessChannel`),
forked after the model was loaded: they share the memory of what the sources taught.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import signal
import socket
import struct
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
from threadpoolctl import threadpool_limits

from baryflow import container, exceptions
from baryflow.exceptions import BaryflowError
from baryflow.runtime import Checkpoint, Session
from baryflow.runtime.session import describe_error
from baryflow.service.errors import RequestError, storage_error, to_json
from baryflow.service.parsing import Parser
from baryflow.service.target_record import alarm_events, detail, list_alarms
from baryflow.service.target_store import (
    TargetStore,
    command_batch,
    deletion,
    label_batch,
    row_batch,
)
from baryflow.service.view import explain, picture
from baryflow.streams import Batch

_log = logging.getLogger("baryflow.service")
_LENGTH = struct.Struct("<I")
#: Seconds between two looks whether the disk has finished.
_POLL = 0.01
#: Views of targets that are prepared or wait at most, in one worker: each has a copy of the state.
_MOST_VIEWS = 32
#: Bytes that are read from a socket at once.
_CHUNK = 2**20


def _report(session: Session) -> dict[str, Any]:
    return detail(session) | {"report": session.model.report()}


def _query(session: Session, n: int) -> dict[str, Any]:
    return {"rows": session.query(n)}


#: What can be asked about a target: functions of its session and the arguments of the request.
VIEWS: dict[str, Callable[..., Any]] = {
    "detail": detail,
    "report": _report,
    "picture": picture,
    "why": explain,
    "query": _query,
    "alarms": list_alarms,
}
#: Events of alarms in an answer that has none, as JSON.
NO_ALARMS = b"[]"


class Request(msgspec.Struct, array_like=True, frozen=True):
    """A request to a worker.

    Attributes
    ----------
    id : int
        Repeated in the reply.
    what : {"rows", "labels", "baseline", "command", "delete", "view", "noted", "close"}
        "noted": the alarms in the reply to the request of this id are kept; 0: those of replayed
        batches.
    name : str
        The target.
    kind : str
        Content type of rows, action of a command, or name of a view.
    batch_id : str or None
        From the header of a request with rows or labels.
    body : bytes
        Rows, labels or a command.
    arguments : list of int
        Of a view.
    """

    id: int
    what: str
    name: str = ""
    kind: str = ""
    batch_id: str | None = None
    body: bytes = b""
    arguments: list[int] = []


class Reply(msgspec.Struct, array_like=True, frozen=True):
    """An answer of a worker, or news that no request has asked for.

    Attributes
    ----------
    id : int
        Of the request; 0: news.
    status : int
        As in HTTP.
    body : bytes
        JSON.
    error : str
        What is wrong, if the status is 400 or more.
    headers : dict of str → str
        Of an error.
    counts : dict of str → int
        Rows, labels and the like that a request has changed; empty if it has changed nothing.
    summary : bytes
        The entry of the target in the list of targets as JSON, if the request has changed it.
    alarms : bytes
        Events of alarms in the answer as JSON; after the start: those of replayed batches.
    totals : dict of str → int
        Snapshots, syncs and the like so far.
    in_memory : list of str or None
        Targets in memory, if they are others than before.
    """

    id: int
    status: int = 200
    body: bytes = b""
    error: str = ""
    headers: dict[str, str] = {}
    counts: dict[str, int] = {}
    summary: bytes = b""
    alarms: bytes = NO_ALARMS
    totals: dict[str, int] = {}
    in_memory: list[str] | None = None


class Worker:
    """The models and the journal of a share of the targets.

    Parameters
    ----------
    store : TargetStore
    checkpoint : Checkpoint or None
        Without it targets do not survive the process.
    parser : Parser
    snapshot_every : int
        Batches between two snapshots.
    snapshot_seconds : float
        Longest time from a batch to the next snapshot.

    Attributes
    ----------
    n_replayed, n_applied, n_snapshots, n_commits, n_batches : int
        Batches replayed at the start and applied since, snapshots saved, writes of the journal, and
        batches in them.
    """

    def __init__(
        self,
        store: TargetStore,
        checkpoint: Checkpoint | None,
        parser: Parser,
        snapshot_every: int,
        snapshot_seconds: float,
    ) -> None:
        self.store, self.checkpoint, self._parser = store, checkpoint, parser
        self._every, self._seconds = snapshot_every, snapshot_seconds
        self.n_replayed = self.n_applied = self.n_snapshots = self.n_commits = self.n_batches = 0
        self._views = ThreadPoolExecutor(1, "baryflow-views")
        self._disk = ThreadPoolExecutor(1, "baryflow-disk")
        self._backlog: list[Request] = []
        self._since = 0  # batches since the last snapshot
        self._first_since = 0.0
        self._snapshot: Iterator[bool] | None = None  # whether the next step has to wait for the disk
        self._waits = False
        self._pace = 1  # steps of a snapshot for each batch
        self._ending = False  # there will be no more requests
        self._failed = False  # a batch of the journal is not in its session, or only half of it
        self._in_memory: set[str] = set()
        self._viewing: set[int] = set()  # requests for views that are not answered yet
        self._unnoted: set[int] = set()  # requests whose alarms the service may not have kept yet

    def run(self, inbox: SimpleQueue[Request], send: Callable[[Reply], None]) -> None:
        """Resume from the checkpoint, then answer requests until one of them is ``close``."""
        self._send = send
        try:
            self.n_replayed = self.store.recover()
        except BaseException as error:
            send(_failure(error, 503))
            self._close()
            return
        body = to_json(self.store.summaries)
        alarms = to_json(self.store.replayed)
        send(Reply(0, body=body, alarms=alarms, totals=self._totals(), in_memory=self._moved()))
        is_open = True
        while is_open:
            before = self.n_applied
            is_open = self._answer(inbox)
            # Enough steps for each batch that a snapshot ends before the next one is due.
            for _ in range(max(1, self._pace * (self.n_applied - before))):
                self._continue_snapshot()
        self._every = 1  # save what no snapshot has
        self._ending = True
        self._continue_snapshot()
        while self._snapshot is not None:
            self._continue_snapshot()
            time.sleep(_POLL if self._waits else 0.0)
        self._close()

    def _close(self) -> None:
        self._views.shutdown()
        self._disk.shutdown()
        if self.checkpoint is not None:
            self.checkpoint.close()
        self.store.sessions.close()

    def _totals(self) -> dict[str, int]:
        return {
            "replayed": self.n_replayed,
            "snapshots": self.n_snapshots,
            "commits": self.n_commits,
            "batches": self.n_batches,
        }

    def _moved(self) -> list[str] | None:
        """Return the targets in memory, if they are others than before."""
        now = set(self.store.sessions.in_memory)
        if now == self._in_memory:
            return None
        self._in_memory = now
        return sorted(now)

    # -- requests --------------------------------------------------------------------------------

    def _answer(self, inbox: SimpleQueue[Request]) -> bool:
        """Answer all requests that are waiting; return False if the worker is to end."""
        self._backlog += self._receive(inbox)
        waiting, self._backlog, group, is_open = self._backlog, [], dict[str, Request](), True
        for request in waiting:
            if request.what == "close":
                is_open = False
            elif request.what == "noted":
                self._unnoted.discard(request.id)
                if not request.id:
                    self.store.replayed.clear()
            elif request.what == "view":
                self._look(request)
            elif request.name in group:  # after the first one is applied
                self._backlog.append(request)
            else:
                group[request.name] = request
        if self._failed:
            for request in group.values():
                self._refuse(request, RequestError(503, "the service is failed: retry"))
        else:
            self._apply(self._write([*group.values()]))
        return is_open

    def _receive(self, inbox: SimpleQueue[Request]) -> list[Request]:
        """Return the requests that are waiting; wait for one unless there is something else to do."""
        timeout = None
        if self._backlog or self._snapshot is not None:
            timeout = _POLL if self._waits and not self._backlog else 0.0
        elif self._since and self.checkpoint is not None and not self._failed:
            timeout = max(0.0, self._first_since + self._seconds - time.monotonic())
        found = []
        with contextlib.suppress(Empty):
            found.append(inbox.get(timeout=timeout) if timeout != 0.0 else inbox.get_nowait())
            while True:
                found.append(inbox.get_nowait())
        return found

    def _write(self, requests: list[Request]) -> list[tuple[Request, Batch]]:
        """Write the rows and labels of requests to the journal, and return them; refuse the others."""
        accepted = []
        for request in requests:
            try:
                batch = self._prepare(request)
            except Exception as error:
                self._refuse(request, error)
                continue
            if batch is not None:
                accepted.append((request, batch))
        if self.checkpoint is None or not accepted:
            return accepted
        try:
            self.checkpoint.append(*(batch for _, batch in accepted))
        except Exception as error:
            for request, _ in accepted:
                self._refuse(request, error)
            return []
        self.n_commits, self.n_batches = self.n_commits + 1, self.n_batches + len(accepted)
        return accepted

    def _prepare(self, request: Request) -> Batch | None:
        """Return what to write to the journal; None if the request was answered: it is a repeated one.

        Raise RequestError if the request is invalid, and OSError if the disk is full.
        """
        name, store, n_columns = request.name, self.store, self.store.config.model.n_features_in_
        if request.what == "rows":
            rows = self._parser.parse(request.body, request.kind, request.batch_id)
            n_before, answer = store.prepare(name, rows)
            batch = row_batch(name, rows, n_before)
        elif request.what in ("labels", "baseline"):
            if request.what == "labels":
                labels = self._parser.parse_labels(request.body, request.batch_id)
            else:
                normal = getattr(store.config.model, "normal_class_", None)
                labels = self._parser.parse_baseline(request.body, request.batch_id, normal)
            self._require(name)
            n_before, answer = store.prepare_labels(name, labels)
            batch = label_batch(name, labels, n_before, n_columns)
        elif request.what == "command":
            command = self._parser.parse_command(request.body, request.kind)
            self._require(name)
            batch = command_batch(name, command, store.prepare_command(name), n_columns)
            answer = None
        else:
            self._require(name)
            batch, answer = deletion(name, n_columns), None
        if answer is None:
            batch.cursor["life"] = store.life_of(name)
            return batch
        self._reply(Reply(request.id, body=to_json({"target": name, **answer}), counts={"repeated": 1}))
        return None

    def _require(self, name: str) -> None:
        if name not in self.store.summaries:
            raise RequestError(404, f"there is no target {name!r}: post rows to create it")

    def _apply(self, accepted: list[tuple[Request, Batch]]) -> None:
        """Apply batches that are in the journal, and answer their requests."""
        for request, batch in accepted:
            if self._failed:
                self._refuse(request, RequestError(503, "the service is failed: retry"))
                continue
            try:
                answer = self.store.take(batch)
            except Exception as error:
                self._refuse(request, error)
                if self.checkpoint is not None:
                    self._fail(error)
                continue
            if not self._since:
                self._first_since = time.monotonic()
            self._since, self.n_applied = self._since + 1, self.n_applied + 1
            if request.what == "delete":
                self._reply(Reply(request.id, 204))
            else:
                self._reply(self._describe(request, answer))

    def _describe(self, request: Request, answer: dict[str, Any]) -> Reply:
        """Return the reply to a request that was applied."""
        alarms, refused = alarm_events(answer), answer.get("refused")
        if alarms:
            self._unnoted.add(request.id)
        return Reply(
            request.id,
            409 if refused else 200,
            to_json(answer),
            refused or "",
            counts=_counts(answer),
            summary=to_json(self.store.summaries[request.name]),
            alarms=to_json(alarms),
        )

    def _fail(self, error: Exception) -> None:
        """Accept nothing more: a replay applies the batch that failed before any that would follow it.

        No snapshot may be saved either, since half of the batch may be in its session.
        """
        self._failed, self._snapshot = True, None
        problem = BaryflowError(
            f"rows in the journal cannot be applied ({describe_error(error)}): nothing is lost; start "
            "the service again to resume"
        )
        _log.error("%s", problem)
        self._send(_failure(problem, 500))

    def _look(self, request: Request) -> None:
        """Answer what is asked about a target, in another thread."""
        try:
            self._require(request.name)
            if len(self._viewing) >= _MOST_VIEWS:
                raise RequestError(429, "too many views are being prepared: ask again later")
            state = self.store.copy(request.name)
        except Exception as error:
            self._refuse(request, error)
            return
        self._viewing.add(request.id)

        def view() -> None:
            try:
                session = self.store.config.resume(state)
                body = to_json(VIEWS[request.kind](session, *request.arguments))
            except Exception as error:
                self._refuse(request, error)
            else:
                self._send(Reply(request.id, body=body))
            finally:
                self._viewing.discard(request.id)

        self._views.submit(view)

    def _refuse(self, request: Request, error: Exception) -> None:
        if isinstance(error, OSError):
            error = storage_error(error) or error
        if isinstance(error, RequestError):
            message = error.message.encode(errors="replace").decode()  # a lone surrogate
            self._send(Reply(request.id, error.status, error=message, headers=error.headers))
            return
        _log.error("%s", "".join(traceback.format_exception(error)))
        self._send(Reply(request.id, 500, error="internal error: see the service's log"))

    def _reply(self, reply: Reply) -> None:
        """Send the answer to a request that has used a session."""
        self._send(msgspec.structs.replace(reply, totals=self._totals(), in_memory=self._moved()))

    # -- snapshots -------------------------------------------------------------------------------

    def _continue_snapshot(self) -> None:
        """Take the next step of a snapshot; begin one if it is due."""
        if self.checkpoint is None or self._failed:
            return
        if self._snapshot is None:
            waited = time.monotonic() - self._first_since
            if not self._since or (self._since < self._every and waited < self._seconds):
                return
            self._snapshot = self._save(self.checkpoint)
        try:
            self._waits = next(self._snapshot)
        except StopIteration:
            self._snapshot = None
            self._send(Reply(0, totals=self._totals()))
        except Exception as error:
            self._snapshot = None
            message = "cannot save a snapshot: %s; the journal still holds everything"
            _log.error(message, error, exc_info=not isinstance(error, OSError))
            self._since = max(self._since, 1)  # try again later

    def _save(self, checkpoint: Checkpoint) -> Iterator[bool]:
        """Save a snapshot, step by step; batches may be applied after each step.

        Yield whether the next step has to wait for the disk.
        """
        sessions = self.store.sessions
        self._since, self._first_since = 0, time.monotonic()
        checkpoint.rotate()
        yield False
        # All batches of the older journals are in these sessions.
        changed = sessions.changed
        self._pace = math.ceil(2 * (len(changed) + 2) / self._every)
        for name in changed:
            sessions.write(name)
            yield False
        snapshot, paths = self.store.begin_snapshot()
        waiting = set(self._unnoted)  # those of later batches are in the next journal
        syncing = [self._disk.submit(container.sync, path) for path in paths]
        while not all(one.done() for one in syncing):
            yield True
        for one in syncing:
            one.result()
        sessions.end_sync(paths)
        # Without the batches in the journal, their alarms could not be found again.
        while waiting & self._unnoted:
            if self._ending:
                raise OSError("alarms could not be written")
            yield True
        checkpoint.save_rotated(snapshot)
        self.store.discard(checkpoint.snapshots())
        self.n_snapshots += 1


def _counts(answer: dict[str, Any]) -> dict[str, int]:
    """Return what an answer adds to the metrics."""
    if "learned" in answer:
        n_labels = answer["learned"] + answer["pending"]
        return {"labels": n_labels, "rejected_labels": len(answer["rejected"])}
    if "rows" not in answer:  # a command
        return {}
    n_drifts = sum(event["event"] == "drift" for event in answer["events"])
    rows, quarantined = answer["rows"], answer["quarantined"]
    return {"rows": rows, "batches": 1, "quarantined": quarantined, "drifts": n_drifts}


def _failure(error: BaseException, status: int) -> Reply:
    """Return the news that a worker cannot continue."""
    return Reply(0, status, to_json([type(error).__name__, str(error)]), "the worker has failed")


def read_failure(reply: Reply) -> Exception:
    """Return the error that news of a worker are about."""
    name, message = msgspec.json.decode(reply.body)
    kind = getattr(exceptions, name, None)
    if isinstance(kind, type) and issubclass(kind, BaryflowError):
        return kind(message)
    return BaryflowError(message if name == "BaryflowError" else f"{name}: {message}")


# -- channels ----------------------------------------------------------------------------------------

#: Called on the event loop with each reply of a worker, and with None after the last.
Receiver = Callable[["Reply | None"], None]


class ThreadChannel:
    """A worker in a thread of this process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._inbox: SimpleQueue[Request] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="baryflow-worker", daemon=True)

    async def open(self, receive: Receiver) -> None:
        """Start the worker."""
        self._receive, self._loop = receive, asyncio.get_running_loop()
        self._thread.start()

    def send(self, request: Request) -> None:
        """Send a request to the worker."""
        self._inbox.put(request)

    async def join(self) -> None:
        """Wait for the worker to end."""
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            self.worker.run(self._inbox, self._send)
        finally:  # also if it fails where it should not: the service must not wait for it
            self._send(None)

    def _send(self, reply: Reply | None) -> None:
        self._loop.call_soon_threadsafe(self._receive, reply)


class ProcessChannel:
    """A worker in a process of its own."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.pid, self._socket = pid, sock
        weakref.finalize(self, sock.close)  # the worker of a service that is never run ends
        self._reading: asyncio.Task[None] | None = None

    async def open(self, receive: Receiver) -> None:
        """Begin to read what the worker sends."""
        reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=_CHUNK)
        self._reading = asyncio.create_task(self._read(reader, receive))

    async def _read(self, reader: asyncio.StreamReader, receive: Receiver) -> None:
        decoder = msgspec.msgpack.Decoder(Reply)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                receive(decoder.decode(await reader.readexactly(length)))
        receive(None)

    def send(self, request: Request) -> None:
        """Send a request to the worker."""
        content = msgspec.msgpack.encode(request)
        self._writer.write(_LENGTH.pack(len(content)) + content)

    def memory(self) -> float:
        """Return the bytes of its memory; what it shares with other processes is divided by them."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        (kilobytes,) = [line.split()[1] for line in lines if line.startswith("Pss:")]
        return 1024.0 * float(kilobytes)

    async def join(self) -> None:
        """Wait for the worker to end."""
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._writer.close()
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            await asyncio.to_thread(os.waitpid, self.pid, 0)


def fork(n: int, make: Callable[[int], Worker], close: Callable[[], None]) -> list[ProcessChannel]:
    """Fork `n` workers.

    Parameters
    ----------
    n : int
    make : callable
        Return the worker of a number from 0; called in its process.
    close : callable
        Close what only this process needs; called in each worker.

    Returns
    -------
    list of ProcessChannel
    """
    pairs = [socket.socketpair() for _ in range(n)]
    # Objects that are not collected are not written to, so their memory stays shared.
    gc.collect()
    gc.freeze()
    channels = []
    for number, (ours, theirs) in enumerate(pairs):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                for one, other in pairs:
                    one.close()
                    if other is not theirs:
                        other.close()
                close()
                _run_process(theirs, make, number)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        channels.append(ProcessChannel(ours, pid))
    for _, theirs in pairs:
        theirs.close()
    gc.unfreeze()
    return channels


def _run_process(sock: socket.socket, make: Callable[[int], Worker], number: int) -> None:
    """Run a worker in this process, which does nothing else."""
    for one in (signal.SIGINT, signal.SIGTERM):  # sent to all processes; the service ends the workers
        signal.signal(one, signal.SIG_IGN)
    inbox, lock = SimpleQueue[Request](), threading.Lock()

    def send(reply: Reply) -> None:
        content = msgspec.msgpack.encode(reply)
        with lock, _ending_without_service():
            sock.sendall(_LENGTH.pack(len(content)) + content)

    threading.Thread(target=_receive, args=(sock, inbox), daemon=True).start()
    # One thread multiplies matrices of this size faster than two.
    with threadpool_limits(limits=1):
        try:
            worker = make(number)
        except Exception as error:
            send(_failure(error, 503))
        else:
            worker.run(inbox, send)


def _receive(sock: socket.socket, inbox: SimpleQueue[Request]) -> None:
    """Receive requests."""
    decoder, file = msgspec.msgpack.Decoder(Request), sock.makefile("rb", _CHUNK)
    with _ending_without_service():
        while True:
            (length,) = _LENGTH.unpack(_read(file, _LENGTH.size))
            inbox.put(decoder.decode(_read(file, length)))


def _read(file: Any, length: int) -> bytes:
    content: bytes = file.read(length)
    if len(content) < length:
        raise ConnectionError
    return content


@contextlib.contextmanager
def _ending_without_service() -> Iterator[None]:
    """End this process at once if the service is gone: the journal has everything."""
    try:
        yield
    except OSError:
        os._exit(1)
