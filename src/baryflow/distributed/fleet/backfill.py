"""Backfill: follow every target in a folder of Parquet files, and resume when it is called again."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from baryflow import container
from baryflow.distributed.cluster import connect, current_client, scheduler_errors
from baryflow.distributed.fleet.groups import (
    Group,
    assign_targets,
    bytes_per_target,
    count_epochs,
    count_groups,
    run_group,
)
from baryflow.distributed.fleet.job import BackfillPlan, Counts, JobContext
from baryflow.distributed.fleet.manifest import (
    Manifest,
    add_manifest,
    check_files,
    encode_targets,
    is_named_by_folder,
    load_manifests,
)
from baryflow.distributed.parquet import Folder, refuse_mismatches
from baryflow.distributed.store import Store, open_store
from baryflow.distributed.tasks import complete
from baryflow.drift.monitor import ACTIONS
from baryflow.estimators._progress import Progress
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalModel
from baryflow.persistence import open_content
from baryflow.streams.blocks import Selection
from baryflow.validation import as_choice, as_count

#: Rows of a target between two states: a worker that dies loses at most these, a second or two of work.
EPOCH_ROWS = 2048


@dataclass(frozen=True)
class Summary:
    """Result of all calls of :func:`backfill` with the same state folder.

    Attributes
    ----------
    targets : int
    rows, used, predicted, quarantined : int
        ``rows == used + quarantined``. Every row that is used is predicted. Of raw signals, windows are.
    drifts : int
        Number of detected drifts.
    failed : dict of str → str
        Targets that could not be followed to their end, with the reason. The same call tries them again.
    unlearned : int
        Rows that were predicted, but from which the model failed to learn; an event gives the reason.
    """

    targets: int
    rows: int
    used: int
    predicted: int
    quarantined: int
    drifts: int
    failed: dict[str, str] = field(default_factory=dict)
    unlearned: int = 0


def backfill(
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

    Each target has its own copy of the model. Its predictions are those of ``baryflow run`` on its rows
    alone, bit for bit, and positions count its own rows. They are written to
    ``output/target=…/000000.parquet`` and so on. Rows that cannot be used, and rows on which the model
    fails, go to ``output/_quarantine`` with the reason, and the target continues with the next row.

    After each epoch of a target its state is written. If workers or the caller are killed, the same call
    resumes from there, and the files are the same in the end. The same call also processes files that
    were added since, as later rows. Files must not change: rows are never processed twice. A rewritten
    file causes a warning, and an error if its number of rows differs. Files of finished targets may be
    deleted. Two callers must not use one state folder at the same time with different files.

    Parameters
    ----------
    model : OnlineDaDiL or SignalModel
        Fitted.
    source : str, path or Folder
        Folder of Parquet files, on a file system that fsspec supports and all workers reach.
    key : str
        Column that names the target, in the files or in folder names (``pump=7``).
    output, state : str or path
        Folders for predictions and for states, on the same kinds of file systems.
    batch_size : int
        Number of rows after which the model of a target learns. A partial batch at the end waits for
        more files.
    drift : str
        ``"off"``, or what to do about drift: an action of :class:`~baryflow.drift.DriftMonitor`.
    time : str, optional
        Timestamp column; copied to each prediction.
    events : str or path, optional
        Folder for events: drift, what was learned from each batch, suspicious columns, quarantined rows.
        They are NDJSON, as ``baryflow run --events`` writes them, in ``events/target=…/000000.ndjson``.
    epoch_rows : int
        Rows of a target between two states.
    storage_options : dict, optional
        Options of the file system, such as credentials or endpoints.
    client : distributed.Client, optional
        Default: Dask's current client, or else workers on this computer, one for each core.
    progress : callable, optional
        Called as ``progress(rows_done, rows_total, what)``.

    Returns
    -------
    Summary

    Raises
    ------
    InvalidInputError
        If columns are missing, or the state folder belongs to another model or other settings.
    UnreachableError
        If the scheduler is gone, the cluster has no workers, or they die repeatedly.
    """
    if not isinstance(model, OnlineDaDiL | SignalModel):
        raise InvalidInputError(
            f"model must be a fitted OnlineDaDiL or SignalModel, got {type(model).__name__}"
        )
    as_choice(drift, "drift", ("off", *ACTIONS))
    options, report = storage_options or {}, progress or (lambda *_: None)
    if isinstance(source, Folder):
        folder = replace(source, url=open_store(source.url, {}).url)
    else:
        where = open_store(source, options)
        folder = Folder.open(where.url, where.options, skip_unreadable=True)
    folder, unreadable = _leave_out_unreadable(folder, key)
    _check_key(folder, key)
    stores = [open_store(one, options) for one in (state, output, events) if one is not None]
    _require_separate_folders(folder.url, [store.url for store in stores])
    plan = BackfillPlan(
        source=folder.url,
        output=stores[1].url,
        key=key,
        time=time,
        columns=_choose_columns(model, folder, key, time),
        batch_size=as_count(batch_size, "batch_size"),
        drift=drift,
        epoch_rows=as_count(epoch_rows, "epoch_rows"),
        events=stores[2].url if events is not None else None,
    )
    context = _begin(plan, model.to_bytes(), Store(folder.url, folder.options), *stores)
    with _client(client) as present, scheduler_errors():
        manifests = load_manifests(context)
        if warning := check_files(manifests, folder):
            warnings.warn(warning, UserWarning, stacklevel=2)
        manifests = add_manifest(present, context, folder, manifests, report)
        shared_files = any(key not in partition.folders for partition in folder.partitions)
        found = _run_groups(present, context, manifests, shared_files, report)
    return replace(found, failed=found.failed | unreadable)


def open_target(
    state: str | Path, key: str, *, storage_options: dict[str, Any] | None = None
) -> OnlineDaDiL:
    """Return the model of one target, as of its last epoch in :func:`backfill`.

    It is an adapted copy of the fleet's model: it predicts, reports which sources the target resembles,
    and can be saved. Using it does not change the state of the backfill.

    Parameters
    ----------
    state : str or path
        State folder of the backfill.
    key : str
        Name of the target.
    storage_options : dict, optional
        Options of the file system.

    Returns
    -------
    OnlineDaDiL
        For raw signals, the model of features.

    Raises
    ------
    InvalidInputError
        If the folder has no state of this target.
    FileFormatError
        If the folder is not the state of a backfill, or damaged.
    """
    store = open_store(state, storage_options)
    context = JobContext(store, store, store, fingerprint="")
    config, found = context.load_config(), context.latest_state(key)
    if found is None:
        raise InvalidInputError(f"{store.url} has no state of a target called {key!r}")
    return config.resume(found[1].session).model


def _run_groups(
    client: Any, context: JobContext, manifests: list[Manifest], shared_files: bool, progress: Progress
) -> Summary:
    n_groups = count_groups(sum(client.nthreads().values()), shared_files)
    assigned = assign_targets(manifests, n_groups, bytes_per_target(context.plan))
    topic, n_targets = f"baryflow-{uuid4().hex}", sum(map(len, assigned))
    groups = [Group(n, context, names, len(manifests), topic) for n, names in enumerate(assigned)]
    without_target = sum(manifest.without_target for manifest in manifests)
    total = sum(int(manifest.rows.sum()) for manifest in manifests) + without_target
    rows_done: dict[int, int] = {}  # of each group

    def receive(event: tuple[float, tuple[int, int]]) -> None:
        number, rows = event[1]
        rows_done[number] = max(rows, rows_done.get(number, 0))

    def report() -> None:
        done = sum(rows_done.copy().values()) + without_target
        progress(done, total, f"following {n_targets:,} targets")

    counts, failed = Counts(), dict[str, str]()
    client.subscribe_topic(topic, receive)
    try:
        results = complete(client, run_group, groups, progress=count_epochs, on_poll=report)
        for number, result in results:
            if isinstance(result, BaseException):
                reason = f"{type(result).__name__}: {result}"
                failed |= dict.fromkeys(groups[number].targets, reason)
            else:
                counts += result.counts
                failed |= result.failed
                rows_done[number] = result.counts.rows
    finally:
        with contextlib.suppress(Exception):  # do not hide the first error
            client.unsubscribe_topic(topic)
    report()
    return Summary(
        targets=n_targets,
        rows=counts.rows + without_target,
        used=counts.used,
        predicted=counts.predicted,
        quarantined=counts.quarantined + without_target,
        drifts=counts.drifts,
        failed=failed,
        unlearned=counts.unlearned,
    )


def _leave_out_unreadable(folder: Folder, key: str) -> tuple[Folder, dict[str, str]]:
    """Leave out targets with an unreadable file, since later rows must not be processed before it.

    An unreadable file that may hold rows of any target raises an error.
    """
    found: dict[str, str] = {}
    for partition, reason in folder.unreadable:
        if not is_named_by_folder(partition, key):
            raise InvalidInputError(reason)
        found.setdefault(partition.folders[key], reason)
    readable = [one for one in folder.partitions if one.folders.get(key) not in found]
    return replace(folder, partitions=readable), found


def _require_separate_folders(source: str, others: list[str]) -> None:
    for one in others:
        if f"{one}/".startswith(f"{source}/"):
            raise InvalidInputError(
                f"{one} is inside {source}, from which rows are read: use another folder"
            )
        if others.count(one) > 1:
            raise InvalidInputError(
                f"states, predictions and events need separate folders, got {one} twice"
            )


def _choose_columns(
    model: OnlineDaDiL | SignalModel, folder: Folder, key: str, time: str | None
) -> list[str]:
    """Return the columns of the model, after checking that the files have them."""
    named = getattr(model, "feature_names_in_", None)
    texts = [key] if time is None else [key, time]
    by_folder = folder.partitions[0].folders if folder.partitions else {}
    wanted = None if named is None else [str(name) for name in named]
    refuse_mismatches(folder.mismatches, [*(wanted or ()), *texts])
    chosen = Selection(wanted, texts, list(by_folder)).choose(list(folder.types), folder.url)
    for what, column in (("key", key), ("time", time)):
        if column in chosen:
            raise InvalidInputError(f"{column!r} is a feature of the model and cannot be the {what}")
    for column in chosen:
        if column in by_folder:
            raise InvalidInputError(
                f"{column!r} is a feature of the model, but {folder.url} has it in folder names only: "
                "write it to the files"
            )
    width = (model.model if isinstance(model, SignalModel) else model).n_features_in_
    if not isinstance(model, SignalModel) and len(chosen) != width:
        raise InvalidInputError(
            f"the model was fitted on {width} unnamed columns, but {folder.url} has {len(chosen)} "
            f"beside {' and '.join(map(repr, texts))}: fit the model on named columns"
        )
    return chosen


def _check_key(folder: Folder, key: str) -> None:
    """Refuse a column that cannot name targets before the plan is written."""
    if folder.partitions and folder.types.get(key) == "other":  # lists, for example, but also timestamps
        encode_targets(next(folder.batches(folder.partitions[0], [key])).column(0))


def _begin(
    plan: BackfillPlan,
    model: bytes,
    source: Store,
    state: Store,
    output: Store,
    events: Store | None = None,
) -> JobContext:
    """Write plan and model, or check that they equal those of the first call."""
    before = state.load(BackfillPlan, "plan.bary")
    if before is None:
        for what, store in (("predictions", output), ("events", events)):
            if store is not None and not store.is_empty():
                raise InvalidInputError(
                    f"{store.url} is not empty, but {state.url} is not its state folder: use an empty "
                    f"folder for {what}, or the state folder that belongs to it"
                )
        state.save(plan, "plan.bary")
        before = plan
    for one in fields(BackfillPlan):
        was, now = getattr(before, one.name), getattr(plan, one.name)
        if was != now:
            raise InvalidInputError(
                f"cannot resume: {state.url} was started with {one.name}={was!r}, got {now!r}; use "
                "the same setting, or another checkpoint folder"
            )
    stored = state.read("model.bary")
    if stored is None:
        stored = model
        state.write("model.bary", model)
    elif stored != model and _rewrite(stored, f"{state.url}/model.bary") != model:
        raise InvalidInputError(
            f"cannot resume: {state.url} was started with another model; use {state.url}/model.bary, or "
            "another checkpoint folder"
        )
    fingerprint = sha256(stored + repr(plan).encode()).hexdigest()
    return JobContext(source, state, output, fingerprint, events)


def _rewrite(model: bytes, name: str) -> bytes:
    """Return a model as this release writes it: other releases write the same model differently."""
    content: bytes = open_content(container.from_bytes(model, name=name)).to_bytes()
    return content


@contextlib.contextmanager
def _client(given: Any) -> Iterator[Any]:
    """Yield the given client, Dask's current one, or one with workers on this computer."""
    present = current_client(given)
    if present is not None:
        yield present
        return
    with connect("local") as started:
        yield started
