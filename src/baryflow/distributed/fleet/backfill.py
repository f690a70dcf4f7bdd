"""Fleets and backfills: thousands of targets, each with a model of its own, from files to files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from baryflow import container
from baryflow.distributed.cluster import connect, require, told_if_gone
from baryflow.distributed.columns import refuse_odd
from baryflow.distributed.fleet.assign import Group, count_done, deal, follow_group, weigh
from baryflow.distributed.fleet.index import Progress, list_arrivals
from baryflow.distributed.fleet.manifest import named_by_folder, split_keys
from baryflow.distributed.fleet.submit import complete
from baryflow.distributed.fleet.worker import Counts, JobContext, Plan
from baryflow.distributed.parquet import Folder
from baryflow.distributed.store import Store, place
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalModel
from baryflow.persistence import open_content
from baryflow.streams.blocks import Selection
from baryflow.validation import as_count

#: Groups for each worker: enough that none is idle for long at the end ...
_GROUPS = 8
#: ... but fewer where targets share files, since every group reads all files in which it has a target.
_GROUPS_SHARED = 3
#: Groups at least, so that workers who come later find work. Where files are shared, reading them for
#: sixteen should cost less than 2 % (0.29 µs a row and group, where following a row takes 300).
_LEAST, _LEAST_SHARED = 64, 16
#: Rows of a target from one state to the next: a worker that dies costs so many, a second's work or two.
EPOCH_ROWS = 2048


@dataclass(frozen=True)
class Summary:
    """What is done of a fleet, in all calls together: ``rows`` is ``used`` and ``quarantined`` together.

    Attributes
    ----------
    targets : int
    rows, used, predicted, quarantined : int
        Each row used is predicted, unless rows are raw signals: then windows of them are.
    drifts : int
        How often a target was seen to drift.
    failed : dict of str → str
        Targets that could not be followed to their end, and why. Their rows count as far as they got;
        the same call goes on with them.
    """

    targets: int
    rows: int
    used: int
    predicted: int
    quarantined: int
    drifts: int
    failed: dict[str, str] = field(default_factory=dict)


def follow(
    model: OnlineDaDiL | SignalModel,
    source: str | Path | Folder,
    *,
    key: str,
    output: str | Path,
    state: str | Path,
    batch_size: int = 32,
    drift: str = "off",
    time: str | None = None,
    events: str | Path | None = None,
    epoch_rows: int = EPOCH_ROWS,
    storage_options: dict[str, Any] | None = None,
    client: Any = None,
    progress: Progress | None = None,
) -> Summary:
    """Follow every target in a folder of Parquet files: predict each row, then learn from it.

    Each target has its own copy of the model, and its predictions are those of ``baryflow run`` on its
    rows alone, bit for bit; positions count its own rows. They are in ``output/target=…/000000.parquet``
    and so on, rows that cannot be used in ``output/_quarantine``.

    Work is cut into epochs of a target. A state is written after each, and whatever is killed, workers
    or the caller, the same call goes on from there; in the end the files are the same. When more files
    have come, the same call takes them, too: those that come later are later rows. Files that were read
    must not change: rows are not followed twice, so a file that was written again is warned of, and
    refused if it has more or fewer rows. They may be removed once their targets are done. Two callers
    must not work on one folder of states at the same time with different files.

    Parameters
    ----------
    model : OnlineDaDiL or SignalModel
        Fitted.
    source : str, path or Folder
        A folder of Parquet files, on any file system that fsspec knows and all workers reach.
    key : str
        Column that names the target, in the files or in the names of folders (``machine=7``).
    output, state : str or path
        Folders for predictions and for states, likewise.
    batch_size : int
        A target's model learns once so many of its rows are waiting. At the end they stay waiting: more
        may come.
    drift : {"off", "report", "forget", "restart"}
        Whether drift is watched for, and what to do about it.
    time : str, optional
        Column that is repeated beside each prediction.
    events : str or path, optional
        Folder for what happened to each target, likewise: when it drifted, what it learned from each
        batch, columns that are not as they should be, rows that cannot be used. They are lines of NDJSON
        in ``events/target=…/000000.ndjson`` and so on, as ``baryflow run --events`` writes them.
    epoch_rows : int
        Rows of a target from one state to the next.
    storage_options : dict, optional
        For file systems other than this machine's: credentials, endpoints.
    client : distributed.Client, optional
        Without it the present one, or else workers on this machine, one for each core.
    progress : callable, optional
        Called with rows that are done, rows in all, and what is being done, in words.

    Returns
    -------
    Summary

    Raises
    ------
    InvalidInputError
        If columns are missing, or `state` was begun with another model or other settings.
    UnreachableError
        If the scheduler is gone, there are no workers, or they die again and again.
    ModuleNotFoundError
        If Dask is not there: ``pip install 'baryflow[dask]'``.
    """
    require()
    if not isinstance(model, OnlineDaDiL | SignalModel):
        raise InvalidInputError(
            f"model must be a fitted OnlineDaDiL or SignalModel, got a {type(model).__name__}"
        )
    if drift not in _DRIFT:
        raise InvalidInputError(f"drift must be one of {', '.join(_DRIFT)}, got {drift!r}")
    options = storage_options or {}
    places = [place(one, options) for one in (state, output, events) if one is not None]
    if isinstance(source, Folder):
        folder = replace(source, url=place(source.url, {}).url)
    else:
        there = place(source, options)
        folder = Folder.open(there.url, there.options, spare=True)
    folder, left_out = _leave_out(folder, key)
    _try_key(folder, key)
    _keep_apart(folder.url, [one.url for one in places])
    plan = Plan(
        folder.url, places[1].url, key, time, _columns(model, folder, key, time),
        as_count(batch_size, "batch_size"), drift, as_count(epoch_rows, "epoch_rows"),
        places[2].url if events is not None else None,
    )  # fmt: skip
    context = _begin(plan, model.to_bytes(), Store(folder.url, folder.options), *places)
    with _client(client) as present, told_if_gone():
        return _Backfill(present, context, progress or (lambda *_: None), left_out).run(folder)


_DRIFT = ("off", "report", "forget", "restart")


@dataclass
class _Backfill:
    """One call."""

    client: Any
    context: JobContext
    progress: Progress
    left_out: dict[str, str]  # targets that are not gone on with, and why
    done: dict[int, int] = field(default_factory=dict)  # rows of each group

    def run(self, folder: Folder) -> Summary:
        known = list_arrivals(self.client, self.context, folder, self.progress)
        shared = any(self.context.plan.key not in piece.folders for piece in folder.pieces)
        n_groups = _count_groups(sum(self.client.nthreads().values()), shared)
        plan, topic = self.context.plan, f"baryflow-{uuid4().hex}"
        dealt = deal(known, n_groups, weigh(plan))
        groups = [Group(n, self.context, keys, len(known), topic) for n, keys in enumerate(dealt)]
        nameless = sum(arrival.nameless for arrival in known)
        total = sum(int(arrival.rows.sum()) for arrival in known)
        what = f"following {sum(map(len, dealt)):,} targets"

        def listen() -> None:
            self.progress(sum(self.done.copy().values()) + nameless, total + nameless, what)

        counts, failed = Counts(), dict[str, str]()
        self.client.subscribe_topic(topic, self._hear)
        try:
            work = complete(self.client, follow_group, groups, progress=count_done, listen=listen)
            for number, outcome in work:
                if isinstance(outcome, BaseException):
                    failed |= dict.fromkeys(groups[number].keys, _words(outcome))
                else:
                    counts += outcome.counts
                    failed |= outcome.failed
                    self.done[number] = outcome.counts.rows
        finally:
            with contextlib.suppress(Exception):  # what went wrong before matters more
                self.client.unsubscribe_topic(topic)
        listen()
        return Summary(
            sum(map(len, dealt)), counts.rows + nameless, counts.used, counts.predicted,
            counts.quarantined + nameless, counts.drifts, failed | self.left_out,
        )  # fmt: skip

    def _hear(self, event: tuple[float, tuple[int, int]]) -> None:
        number, rows = event[1]
        self.done[number] = max(rows, self.done.get(number, 0))


def _count_groups(n_workers: int, shared: bool) -> int:
    """Return how many groups are wanted: workers that are there now may be only the first of many."""
    if shared:
        return max(_LEAST_SHARED, _GROUPS_SHARED * n_workers)
    return max(_LEAST, _GROUPS * n_workers)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _leave_out(folder: Folder, key: str) -> tuple[Folder, dict[str, str]]:
    """Return a folder without targets of which a file cannot be read, and these, with the reason.

    Later rows of theirs must not come before those. A file in which anybody may have rows is refused.
    """
    found: dict[str, str] = {}
    for piece, why in folder.unreadable:
        if not named_by_folder(piece, key):
            raise InvalidInputError(why)
        found.setdefault(piece.folders[key], why)
    pieces = [piece for piece in folder.pieces if piece.folders.get(key) not in found]
    return replace(folder, pieces=pieces), found


def _keep_apart(source: str, others: list[str]) -> None:
    for one in others:
        if f"{one}/".startswith(f"{source}/"):
            raise InvalidInputError(
                f"{one} is in {source}, where rows are read from: name another folder"
            )
        if others.count(one) > 1:
            raise InvalidInputError(
                f"states, predictions and events need folders of their own, got {one} twice"
            )


def _columns(model: OnlineDaDiL | SignalModel, folder: Folder, key: str, time: str | None) -> list[str]:
    """Return the columns that the model wants, having checked that they are there."""
    named = getattr(model, "feature_names_in_", None)
    texts = [key] if time is None else [key, time]
    by_folder = folder.pieces[0].folders if folder.pieces else {}
    wanted = None if named is None else [str(name) for name in named]
    refuse_odd(folder.odd, [*(wanted or ()), *texts])
    chosen = Selection(wanted, texts, list(by_folder)).choose(list(folder.types), folder.url)
    for what, column in (("key", key), ("time", time)):
        if column in chosen:
            raise InvalidInputError(f"{column!r} is a feature of the model, not the {what}")
    for column in chosen:
        if column in by_folder:
            raise InvalidInputError(
                f"{column!r} is the name of folders in {folder.url}, but the model needs its numbers in "
                "the files"
            )
    width = (model.model if isinstance(model, SignalModel) else model).n_features_in_
    if not isinstance(model, SignalModel) and len(chosen) != width:
        raise InvalidInputError(
            f"the model was fitted on {width} columns without names, and {folder.url} has {len(chosen)} "
            f"beside {' and '.join(map(repr, texts))}: fit it on columns with names"
        )
    return chosen


def _try_key(folder: Folder, key: str) -> None:
    """Refuse a column that cannot name targets before anything is written: states remember their key."""
    if folder.pieces and folder.types.get(key) == "other":  # lists and the like, but times too
        split_keys(next(folder.batches(folder.pieces[0], [key])).column(0))


def _begin(
    plan: Plan, model: bytes, source: Store, state: Store, output: Store, events: Store | None = None
) -> JobContext:
    """Write down what is wanted, or check that it is what was wanted before."""
    before = state.load(Plan, "plan.bary")
    if before is None:
        for what, store in (("predictions", output), ("events", events)):
            if store is not None and not store.is_empty():
                raise InvalidInputError(
                    f"{store.url} holds files already, but {state.url} does not know of them: name an "
                    f"empty folder for {what}, or the states that belong to these"
                )
        state.keep(plan, "plan.bary")
        before = plan
    for one in fields(Plan):
        was, now = getattr(before, one.name), getattr(plan, one.name)
        if was != now:
            raise InvalidInputError(
                f"{state.url} was begun with {one.name}={was!r}, got {now!r}: give what it was begun "
                "with, or name another folder for states"
            )
    kept = state.read("model.bary")
    if kept is None:
        kept = model
        state.write("model.bary", model)
    elif kept != model and _write_again(kept, f"{state.url}/model.bary") != model:
        raise InvalidInputError(
            f"{state.url} was begun with another model than the one given: give that one "
            f"({state.url}/model.bary), or name another folder for states"
        )
    mark = sha256(kept + repr(plan).encode()).hexdigest()
    return JobContext(source, state, output, mark, events)


def _write_again(model: bytes, name: str) -> bytes:
    """Return a model as this release writes it: the same model of an earlier one is other bytes."""
    content: bytes = open_content(container.from_bytes(model, name=name)).to_bytes()
    return content


@contextlib.contextmanager
def _client(given: Any) -> Iterator[Any]:
    """Give the client that was given, the present one, or one of workers on this machine."""
    distributed = require()
    with contextlib.ExitStack() as stack:
        if given is None:
            try:
                given = distributed.get_client()
            except ValueError:
                given = stack.enter_context(connect("local"))
        yield given
