"""The worker: one thread that has the models and the store of a share of the targets.

It receives all requests that are waiting, writes their rows and labels to the journal in one
transaction, applies them one after the other, and answers each as soon as it is applied. Rows are
therefore replayed in the order in which they were applied. No request waits long for a commit: a few
sessions are committed after each group of requests, and a replay skips batches that a committed session
contains already. A view of a target is made from a copy of its session, in another thread.

With one worker it is a thread of the service (:class:`ThreadChannel`). Most of a step through arrays of
this size holds the interpreter's lock, so several workers are processes (:class:`ProcessChannel`),
forked after the model was loaded: they share the memory of what the sources taught.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
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

from baryflow import exceptions
from baryflow.exceptions import BaryflowError
from baryflow.runtime import Session
from baryflow.runtime.session import describe_error
from baryflow.runtime.store import Entry, Message
from baryflow.service.errors import RequestError, no_target, storage_error
from baryflow.service.parsing import Parser, Posted, PostedLabels, to_json
from baryflow.service.view import explain, picture
from baryflow.service.worker_targets import WorkerTargets, detail, list_alarms

_log = logging.getLogger("baryflow.service")
_LENGTH = struct.Struct("<I")
#: Requests that are journalled together, at most.
_MOST_GROUPED = 8
#: Sessions that are committed at once if few requests come.
_MOST_COMMITTED = 4
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
#: Alarms of an answer that has none, as JSON.
NO_ALARMS = b"[]"


class Request(msgspec.Struct, array_like=True, frozen=True):
    """A request to a worker.

    Attributes
    ----------
    id : int
        Repeated in the reply.
    what : {"rows", "labels", "baseline", "command", "delete", "view", "sent", "close"}
    name : str
        The target; of "sent": the alarm.
    kind : str
        Content type of rows, action of a command, or name of a view.
    batch_id : str or None
        From the header of a request with rows or labels.
    body : bytes
        Rows, labels or a command; of "sent": who has the alarm, and whether all have it, as JSON.
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
        Alarms that are to be sent as JSON: name, target, event, and who has it already.
    totals : dict of str → int
        Commits, syncs and the like so far.
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
    """The models and the store of a share of the targets.

    Sessions are committed after `every` batches of the journal, and at the latest `seconds` after the
    first batch. ``totals`` has the batches ``replayed`` at the start and ``applied`` since;
    ``snapshots``, which is how often all sessions changed before were committed; ``commits`` of the
    journal, and the ``batches`` in them.
    """

    def __init__(self, targets: WorkerTargets, parser: Parser, every: int, seconds: float) -> None:
        self.targets, self._parser, self._every, self._seconds = targets, parser, every, seconds
        self._loop, self._store = targets.loop, targets.loop.store
        self.totals = dict.fromkeys(("replayed", "applied", "snapshots", "commits", "batches"), 0)
        self._views = ThreadPoolExecutor(1, "baryflow-views")
        self._backlog: list[Request] = []
        self._since = 0.0  # when the first batch was applied that is not committed
        self._until = 0  # batches up to this number are being committed; 0: none
        self._failed = False  # a batch of the journal is not in its session, or only half of it
        self._in_memory: set[str] = set()
        self._viewing: set[int] = set()  # requests for views that are not answered yet
        self._alarms: dict[str, Message] = {}  # that not all receivers have, by name

    def run(self, inbox: SimpleQueue[Request], send: Callable[[Reply], None]) -> None:
        """Resume from the store, then answer requests until one of them is ``close``."""
        self._send = send
        try:
            self.totals["replayed"] = self.targets.recover()
        except BaseException as error:
            send(_failure(error, 503))
            self._close()
            return
        alarms = self._describe_alarms(self.targets.unsent())
        body = to_json(self.targets.summaries)
        send(Reply(0, body=body, alarms=alarms, totals=self.totals, in_memory=self._moved()))
        is_open = True
        while is_open:
            before = self.totals["applied"]
            is_open = self._answer(inbox)
            self._commit_some(self.totals["applied"] - before)
        if not self._failed:
            self._commit(None)
        self._close()

    def _close(self) -> None:
        self._views.shutdown()
        self._store.close()

    def _moved(self) -> list[str] | None:
        """Return the targets in memory, if they are others than before."""
        now = set(self.targets.sessions.in_memory)
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
            elif request.what == "sent":
                self._note_sent(request)
            elif request.what == "view":
                self._view(request)
            elif request.name in group or len(group) == _MOST_GROUPED:  # after those before it
                self._backlog.append(request)
            else:
                group[request.name] = request
        if self._failed:
            for request in group.values():
                self._refuse(request, RequestError(503, "the service is failed: retry"))
        else:
            self._apply(self._write([*group.values()]))
            self._loop.flush()
        return is_open

    def _receive(self, inbox: SimpleQueue[Request]) -> list[Request]:
        """Return the requests that are waiting; wait for one unless there is something else to do."""
        timeout = None
        if self._backlog or self._until:
            timeout = 0.0
        elif self._is_durable and self.targets.sessions.n_changed and not self._failed:
            timeout = max(0.0, self._since + self._seconds - time.monotonic())
        found = []
        with contextlib.suppress(Empty):
            found.append(inbox.get(timeout=timeout) if timeout != 0.0 else inbox.get_nowait())
            while True:
                found.append(inbox.get_nowait())
        return found

    def _write(self, requests: list[Request]) -> list[tuple[Request, Entry]]:
        """Write the rows and labels of requests to the journal, and return them; refuse the others."""
        accepted = []
        for request in requests:
            try:
                entry = self._prepare(request)
            except Exception as error:
                self._refuse(request, error)
                continue
            if entry is not None:
                accepted.append((request, entry))
        if not accepted:
            return []
        try:
            entries = self._loop.receive([entry for _, entry in accepted])
        except Exception as error:
            for request, _ in accepted:
                self._refuse(request, error)
            return []
        if self._is_durable:
            self.totals["commits"] += 1
            self.totals["batches"] += len(entries)
        return [(request, entry) for (request, _), entry in zip(accepted, entries, strict=True)]

    @property
    def _is_durable(self) -> bool:
        return not self._store.is_temporary

    def _prepare(self, request: Request) -> Entry | None:
        """Return what to write to the journal; None if the request was answered: it is a repeated one.

        Raise RequestError if the request is invalid, and OSError if the disk is full.
        """
        name, targets, parser = request.name, self.targets, self._parser
        if request.what != "rows":
            self._require(name)
        if request.what == "delete":
            return targets.entry_of_deletion(name)
        if request.what == "command":
            return targets.entry_of_command(name, parser.parse_command(request.body, request.kind))
        posted: Posted | PostedLabels
        if request.what == "rows":
            posted = parser.parse(request.body, request.kind, request.batch_id)
        elif request.what == "labels":
            posted = parser.parse_labels(request.body, request.batch_id)
        else:
            normal = getattr(targets.config.model, "normal_class_", None)
            posted = parser.parse_baseline(request.body, request.batch_id, normal)
        answer = targets.find_answer(name, posted)
        if answer is None:
            if isinstance(posted, Posted):
                return targets.entry_of_rows(name, posted)
            return targets.entry_of_labels(name, posted)
        self._reply(Reply(request.id, body=to_json({"target": name, **answer}), counts={"repeated": 1}))
        return None

    def _require(self, name: str) -> None:
        if name not in self.targets.summaries:
            raise no_target(name)

    def _apply(self, accepted: list[tuple[Request, Entry]]) -> None:
        """Apply batches that are in the journal, and answer their requests."""
        for request, entry in accepted:
            if self._failed:
                self._refuse(request, RequestError(503, "the service is failed: retry"))
                continue
            if not self.targets.sessions.n_changed:
                self._since = time.monotonic()
            try:
                answer, alarms = self._loop.apply(entry)
            except Exception as error:
                self._refuse(request, error)
                if self._is_durable:
                    self._fail(error)
                continue
            self.totals["applied"] += 1
            if request.what == "delete":
                self._reply(Reply(request.id, 204))
            else:
                self._reply(self._describe(request, answer, alarms))

    def _describe(self, request: Request, answer: dict[str, Any], alarms: list[Message]) -> Reply:
        """Return the reply to a request that was applied."""
        refused = answer.get("refused")
        return Reply(
            request.id,
            409 if refused else 200,
            to_json(answer),
            refused or "",
            counts=_counts(answer),
            summary=to_json(self.targets.summaries[request.name]),
            alarms=self._describe_alarms(alarms),
        )

    def _describe_alarms(self, alarms: list[Message]) -> bytes:
        self._alarms |= {message.name: message for message in alarms}
        return to_json([[one.name, one.target, one.record, sorted(one.received)] for one in alarms])

    def _note_sent(self, request: Request) -> None:
        """Note which receivers have an alarm."""
        received, finished = msgspec.json.decode(request.body)
        message = self._alarms.pop(request.name) if finished else self._alarms[request.name]
        self._loop.note(message, set(received), finished)

    def _fail(self, error: Exception) -> None:
        """Accept nothing more: a replay applies the batch that failed before any that would follow it.

        Nothing may be committed either, since half of the batch may be in its session.
        """
        self._failed, self._until = True, 0
        problem = BaryflowError(
            f"rows in the journal cannot be applied ({describe_error(error)}): nothing is lost; start "
            "the service again to resume"
        )
        _log.error("%s", problem)
        self._send(_failure(problem, 500))

    def _view(self, request: Request) -> None:
        """Answer a request for a view of a target, in another thread."""
        try:
            self._require(request.name)
            if len(self._viewing) >= _MOST_VIEWS:
                raise RequestError(429, "too many views are being prepared: ask again later")
            state = self.targets.copy(request.name)
        except Exception as error:
            self._refuse(request, error)
            return
        self._viewing.add(request.id)

        def view() -> None:
            try:
                session = self.targets.config.resume(state)
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
        self._send(msgspec.structs.replace(reply, totals=self.totals, in_memory=self._moved()))

    # -- commits ---------------------------------------------------------------------------------

    def _commit_some(self, n_applied: int) -> None:
        """Commit some sessions, if it is time; requests do not wait for all of them.

        Each batch changes one session, and more are committed for each, so the journal stays short.
        """
        changed = self.targets.sessions.n_changed
        if not self._is_durable or self._failed or not changed:
            return
        if not self._until:
            waited = time.monotonic() - self._since
            if len(self._store.pending) < self._every and waited < self._seconds:
                return
            self._until = self._store.seq
        self._commit(max(_MOST_COMMITTED, 2 * n_applied))
        first = self.targets.sessions.first()
        if first is None or first > self._until:
            self._until, self._since = 0, time.monotonic()
            self.totals["snapshots"] += 1
            self._send(Reply(0, totals=self.totals))

    def _commit(self, most: int | None) -> None:
        try:
            self._loop.commit(most, synced=most is None)
        except Exception as error:
            message = "cannot commit: %s; the journal still holds everything"
            _log.error(message, error, exc_info=not isinstance(error, OSError))
            self._until, self._since = 0, time.monotonic()  # try again later


def _counts(answer: dict[str, Any]) -> dict[str, int]:
    """Return what an answer adds to the metrics."""
    if "learned" in answer:
        n_labels = answer["learned"] + answer["pending"]
        return {"labels": n_labels, "rejected_labels": len(answer["rejected"])}
    raised = {"alarms": sum(event.get("change") == "raised" for event in answer["events"])}
    if "rows" not in answer:  # a command
        return raised
    n_drifts = sum(event["event"] == "drift" for event in answer["events"])
    rows, quarantined = answer["rows"], answer["quarantined"]
    return {"rows": rows, "batches": 1, "quarantined": quarantined, "drifts": n_drifts} | raised


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


def fork(n: int, make: Callable[[int], Worker]) -> list[ProcessChannel]:
    """Fork `n` workers; each is made from its number, from 0, in its process, which opens its store."""
    pairs = [socket.socketpair() for _ in range(n)]
    # Objects that are not collected are not written to, so their memory stays shared.
    frozen_before = gc.get_freeze_count() > 0
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
                _run_process(theirs, make, number)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        channels.append(ProcessChannel(ours, pid))
    for _, theirs in pairs:
        theirs.close()
    if not frozen_before:  # what the caller has frozen stays frozen
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
