"""Backfill: follow every target in a folder of Parquet files, and resume when it is called again."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from baryflow import container
from baryflow.distributed.cluster import connect, current_client, scheduler_errors
from baryflow.distributed.files import open_files
from baryflow.distributed.groups import Group, assign_targets, count_groups, run_group
from baryflow.distributed.manifest import (
    NO_TARGET,
    Manifest,
    add_manifest,
    check_files,
    encode_targets,
    load_manifests,
    named_by_folder,
)
from baryflow.distributed.output import BackfillPlan, Job, Summary, latest_state, load_config
from baryflow.distributed.parquet import Folder, refuse_mismatches
from baryflow.distributed.tasks import Progress, complete
from baryflow.drift.monitor import ACTIONS
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.features import SignalModel
from baryflow.persistence import open_content
from baryflow.streams.decoding import Selection
from baryflow.validation import as_choice, as_count

#: Rows of a target between two states: a worker that dies loses at most these, a second or two of work.
EPOCH_ROWS = 2048


def backfill(
    model: OnlineDaDiL | SignalModel,
    source: str | Path,
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
    source : str or path
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
    where = open_files(source, options)
    folder = Folder.open(where.url, where.options, skip_unreadable=True)
    folder, unreadable = _leave_out_unreadable(folder, key)
    _check_key(folder, key)
    folders = [open_files(one, options) for one in (state, output, events) if one is not None]
    _require_separate_folders(folder.url, [files.url for files in folders])
    plan = BackfillPlan(
        source=folder.url,
        output=folders[1].url,
        key=key,
        time=time,
        columns=_choose_columns(model, folder, key, time),
        batch_size=as_count(batch_size, "batch_size"),
        drift=drift,
        epoch_rows=as_count(epoch_rows, "epoch_rows"),
        events=folders[2].url if events is not None else None,
    )
    job = _begin(Job(plan, where, *folders), model.to_bytes())
    with _client(client) as present, scheduler_errors():
        manifests = load_manifests(job)
        if warning := check_files(manifests, folder):
            warnings.warn(warning, UserWarning, stacklevel=2)
        manifests = add_manifest(present, job, folder, manifests, report)
        shared_files = any(key not in partition.folders for partition in folder.partitions)
        found = _run_groups(present, job, manifests, shared_files, report)
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
    files = open_files(state, storage_options)
    plan = files.load(BackfillPlan, "plan.bary")
    if plan is None:
        raise FileFormatError(f"{files.url}/plan.bary is missing or damaged: not a state folder")
    config, found = load_config(files, plan), latest_state(files, key)
    if found is None or found[1].session is None:
        raise InvalidInputError(f"{files.url} has no state of a target called {key!r}")
    return config.resume(found[1].session).model


def _run_groups(
    client: Any, job: Job, manifests: list[Manifest], shared_files: bool, progress: Progress
) -> Summary:
    n_groups = count_groups(sum(client.nthreads().values()), shared_files)
    assigned = assign_targets(manifests, n_groups, job.plan)
    topic, names = f"baryflow-{uuid4().hex}", {name for names in assigned for name in names}
    groups = [Group(n, job, names, len(manifests), topic) for n, names in enumerate(assigned)]
    n_targets = len(names - {NO_TARGET})
    total = sum(sum(manifest.rows.values()) for manifest in manifests)
    rows_done: dict[int, int] = {}  # of each group

    def receive(event: tuple[float, tuple[int, int]]) -> None:
        number, rows = event[1]
        rows_done[number] = max(rows, rows_done.get(number, 0))

    def report() -> None:
        progress(sum(rows_done.copy().values()), total, f"following {n_targets:,} targets")

    summary = Summary()
    client.subscribe_topic(topic, receive)
    try:
        for number, result in complete(client, run_group, groups, report):
            if isinstance(result, BaseException):
                reason = f"{type(result).__name__}: {result}"
                summary += Summary(failed=dict.fromkeys(groups[number].targets, reason))
            else:
                summary += result
                rows_done[number] = result.rows
    finally:
        with contextlib.suppress(Exception):  # do not hide the first error
            client.unsubscribe_topic(topic)
    report()
    return replace(summary, targets=n_targets)


def _leave_out_unreadable(folder: Folder, key: str) -> tuple[Folder, dict[str, str]]:
    """Leave out targets with an unreadable file, since later rows must not be processed before it.

    An unreadable file that may hold rows of any target raises an error.
    """
    found: dict[str, str] = {}
    for partition, reason in folder.unreadable:
        if key not in partition.folders:
            raise InvalidInputError(reason)
        found.setdefault(named_by_folder(partition, key), reason)
    readable = [
        one
        for one in folder.partitions
        if key not in one.folders or named_by_folder(one, key) not in found
    ]
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


def _begin(job: Job, model: bytes) -> Job:
    """Write plan and model, or check that they equal those of the first call."""
    state, before = job.state, job.state.load(BackfillPlan, "plan.bary")
    if before is None:
        for what, files in (("predictions", job.output), ("events", job.events)):
            if files is not None and not files.is_empty():
                raise InvalidInputError(
                    f"{files.url} is not empty, but {state.url} is not its state folder: use an empty "
                    f"folder for {what}, or the state folder that belongs to it"
                )
        state.save(job.plan, "plan.bary")
        before = job.plan
    for one in fields(BackfillPlan):
        was, now = getattr(before, one.name), getattr(job.plan, one.name)
        if was != now:
            raise InvalidInputError(
                f"cannot resume: {state.url} was started with {one.name}={was!r}, got {now!r}; use "
                "the same setting, or another checkpoint folder"
            )
    stored = state.read("model.bary")
    if stored is None:
        state.write("model.bary", model)
    elif stored != model and _rewrite(stored, f"{state.url}/model.bary") != model:
        raise InvalidInputError(
            f"cannot resume: {state.url} was started with another model; use {state.url}/model.bary, or "
            "another checkpoint folder"
        )
    return job


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
