"""Which files belong to a backfill, and which targets have rows in them.

Every call records the files that it sees for the first time in a manifest. Manifests never change, so
epochs, which are cut by them, are the same for every worker and every later call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from baryflow.distributed.fleet.job import JobContext, write_quarantine
from baryflow.distributed.parquet import NO_VALUE, Folder, Partition, natural_key
from baryflow.distributed.store import Store, numbered
from baryflow.distributed.tasks import TaskRunner
from baryflow.estimators._progress import Progress
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.streams.base import RAW_LENGTH, Rejected
from baryflow.streams.columnar import as_text
from baryflow.streams.numbers import valid_text
from baryflow.validation import Integers

#: Rows per file of the quarantine: as Python objects they take more than a kilobyte each.
_QUARANTINE_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Manifest:
    """Files that one call saw for the first time."""

    partitions: list[Partition]
    targets: list[str]
    rows: Integers  # of each target
    first: Integers  # first partition with rows of each target
    without_target: int  # number of rows that name no target
    versions: dict[str, str] = field(default_factory=dict)  # of each file, as in Folder

    def identify(self, partition: Partition) -> str:
        """Return the identifier of one of the partitions."""
        return identify(partition, self.versions.get(partition.path, ""))


@dataclass(frozen=True, eq=False)
class PartitionCount:
    """Content of an index file: the numbers of rows of the targets in one partition."""

    rows: dict[str, int]
    without_target: int


@dataclass
class MergedCounts:
    """Targets in several partitions: name → (first partition, number of rows)."""

    found: dict[str, tuple[int, int]] = field(default_factory=dict)
    without_target: int = 0


@dataclass(frozen=True)
class CountJob:
    """A partition in which to count rows, and where to write the result."""

    folder: Folder
    partition: Partition
    version: str  # of the file
    number: int  # of the partition
    rows_before: int  # rows of the file before the partition
    key: str
    columns: list[str]
    index: Store
    quarantine: Store


# -- manifests ---------------------------------------------------------------------------------------


def load_manifests(context: JobContext) -> list[Manifest]:
    """Return the manifests of all earlier calls."""
    known: list[Manifest] = []
    while True:
        name = _manifest_name(len(known))
        found = context.state.load(Manifest, name)
        if found is None:
            if context.state.read(name) is not None:
                raise FileFormatError(
                    f"cannot resume: {context.state.url}/{name} is damaged; restore it from a backup"
                )
            return known
        known.append(found)


def check_files(manifests: Sequence[Manifest], folder: Folder) -> str:
    """Raise an error if a file has more or fewer rows now; return a warning if files were rewritten.

    Rewritten files with as many rows are no error: copied or restored folders look the same. Files that
    were processed may be deleted.
    """
    before = {path: n for manifest in manifests for path, n in _count_files(manifest.partitions).items()}
    now = _count_files(folder.partitions)
    for path, rows in before.items():
        if now.get(path, rows) != rows:
            raise InvalidInputError(
                f"{path} had {rows} rows when it was first read, and has {now[path]} now: files must "
                "not change; write new rows to new files"
            )
    versions = {path: version for manifest in manifests for path, version in manifest.versions.items()}
    rewritten = [
        path for path, now in folder.versions.items() if now and versions.get(path, "") not in ("", now)
    ]
    if not rewritten:
        return ""
    files = f"{rewritten[0]} was rewritten after it was first read"
    if len(rewritten) > 1:
        files = (
            f"{len(rewritten):,} files were rewritten after they were first read ({rewritten[0]}, ...)"
        )
    return (
        f"{files}: rows that were processed are not processed again. Write new rows to new files; "
        "ignore this warning if the files are copies of the originals"
    )


def add_manifest(
    client: Any, context: JobContext, folder: Folder, known: list[Manifest], progress: Progress
) -> list[Manifest]:
    """Count the rows of files that no manifest lists, if there are any, and record them in a new one."""
    listed = {partition.path for manifest in known for partition in manifest.partitions}
    new = [partition for partition in folder.partitions if partition.path not in listed]
    manifests, number = list(known), len(known)
    if new:
        index = _index(context, number)
        # A call that was killed while it counted may have left temporary files.
        for store in (context.state, context.state / "manifests", index, context.unassigned):
            store.delete_unfinished()
        manifest = _count_rows(client, context, folder, new, index, progress)
        context.state.save(manifest, _manifest_name(number))
        manifests.append(manifest)
    if manifests:
        _delete_foreign_quarantine(context, manifests[-1], len(manifests) - 1)
    return manifests


def _manifest_name(number: int) -> str:
    return f"manifests/{numbered(number)}.bary"


def _index(context: JobContext, number: int) -> Store:
    return context.state / "index" / numbered(number)


def _count_rows(
    client: Any,
    context: JobContext,
    folder: Folder,
    partitions: Sequence[Partition],
    index: Store,
    progress: Progress,
) -> Manifest:
    plan, bare = context.plan, Folder(folder.url, folder.options, [], {})
    columns = [name for name in plan.columns if name in folder.types]
    merged: list[MergedCounts] = []
    jobs: list[CountJob] = []
    rows_before: dict[str, int] = {}
    for number, partition in enumerate(partitions):
        path = partition.path
        if is_named_by_folder(partition, plan.key):
            merged.append(MergedCounts({partition.folders[plan.key]: (number, partition.n_rows)}))
        else:
            version, before = folder.versions.get(path, ""), rows_before.get(path, 0)
            where = (plan.key, columns, index, context.unassigned)
            jobs.append(CountJob(bare, partition, version, number, before, *where))
        rows_before[path] = rows_before.get(path, 0) + partition.n_rows
    if jobs:
        n_rows = sum(job.partition.n_rows for job in jobs)

        def report(done: int, total: int, what: str) -> None:  # in rows instead of tasks
            progress(n_rows * done // total, n_rows, what)

        runner = TaskRunner(client, progress=report)
        tree = runner.reduce("count-rows", MergedCounts, jobs, count_partition, merge_counts)
        merged.append(runner.compute(tree, "counting rows"))
    together = merge_counts(merged)
    targets = sorted(together.found, key=natural_key)
    return Manifest(
        list(partitions),
        targets,
        np.array([together.found[name][1] for name in targets], dtype=np.int64),
        np.array([together.found[name][0] for name in targets], dtype=np.int64),
        together.without_target,
        {path: folder.versions[path] for path in rows_before if path in folder.versions},
    )


def _delete_foreign_quarantine(context: JobContext, manifest: Manifest, number: int) -> None:
    """Delete quarantined rows that belong to no partition of the manifest: they would count twice.

    Files may have been rewritten, or partitioned differently, since a killed call counted them.
    """
    store, start = context.unassigned, f"{numbered(number)}-"
    if names := [name for name in store.names() if name.startswith(start)]:
        known = {manifest.identify(partition) for partition in manifest.partitions}
        for name in names:
            if name.removeprefix(start).split("-")[0] not in known:
                store.delete(name)


def _count_files(partitions: Iterable[Partition]) -> dict[str, int]:
    """Return the number of rows of each file."""
    found: dict[str, int] = {}
    for partition in partitions:
        found[partition.path] = found.get(partition.path, 0) + partition.n_rows
    return found


# -- counting the rows of each target ----------------------------------------------------------------


def count_partition(job: CountJob) -> MergedCounts:
    """Count the rows of each target in a partition, and quarantine rows that name none.

    The result is stored in the index, and read from there if it exists.
    """
    name = f"{identify(job.partition, job.version)}.bary"
    found = job.index.load(PartitionCount, name)
    if found is None:
        found = _count_targets(job.folder, job.partition, job.key)
        if found.without_target:
            _quarantine_unassigned(job)
        job.index.save(found, name)
    rows = {target: (job.number, n) for target, n in found.rows.items()}
    return MergedCounts(rows, found.without_target)


def merge_counts(parts: Sequence[MergedCounts]) -> MergedCounts:
    """Return the counts of several sets of partitions together."""
    together = MergedCounts()
    for part in parts:
        together.without_target += part.without_target
        for target, (first, n) in part.found.items():
            known_first, known = together.found.get(target, (first, 0))
            together.found[target] = (min(first, known_first), n + known)
    return together


def read_counts(
    context: JobContext, folder: Folder, manifest: Manifest, number: int, partition: Partition
) -> dict[str, int]:
    """Return the number of rows of each target in a partition of a manifest."""
    key = context.plan.key
    if is_named_by_folder(partition, key):
        return {partition.folders[key]: partition.n_rows}
    found = _index(context, number).load(PartitionCount, f"{manifest.identify(partition)}.bary")
    if found is None:  # lost or damaged: count again
        found = _count_targets(folder, partition, key)
    return dict(found.rows)


def is_named_by_folder(partition: Partition, key: str) -> bool:
    """Return whether a folder name gives the target of all rows, so that none has to be read."""
    return partition.folders.get(key, "") not in NO_VALUE


def encode_targets(column: Any) -> tuple[list[str], Integers]:
    """Return the distinct names in a column as text, and for each row its number; "" is no target."""
    try:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    except pa.ArrowNotImplementedError as error:
        raise InvalidInputError(
            f"a column of type {column.type} cannot name targets: use a column of text, numbers or times"
        ) from error
    # Integers beside missing values are floats in some files: 7.0 there is 7 elsewhere.
    values = coded.dictionary.to_pylist()
    whole = [isinstance(value, float) and value.is_integer() for value in values]
    names = [as_text(int(v) if is_whole else v) for v, is_whole in zip(values, whole, strict=True)]
    # Widen the codes: the one for "no target" may exceed the range of the column's own.
    codes = coded.indices.cast(pa.int64()).fill_null(len(names)).to_numpy(zero_copy_only=False)
    return [*names, ""], codes.astype(np.intp, copy=False)


def identify(partition: Partition, version: str) -> str:
    """Return an identifier of a partition that changes when its file is rewritten.

    A number would change as soon as a file with an earlier name is added.
    """
    content = (partition.path, tuple(partition.groups), partition.n_rows, version)
    return sha256(repr(content).encode()).hexdigest()[:32]


def _count_targets(folder: Folder, partition: Partition, key: str) -> PartitionCount:
    if key in partition.folders:
        return PartitionCount({}, partition.n_rows)
    counts: dict[str, int] = {}
    for batch in folder.batches(partition, [key]):
        names, codes = encode_targets(batch.column(0))
        for name, n in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True):
            if n:
                counts[name] = counts.get(name, 0) + n
    without_target = counts.pop("", 0)
    return PartitionCount(counts, without_target)


def _quarantine_unassigned(job: CountJob) -> None:
    start = f"{job.index.url.rsplit('/', 1)[-1]}-{identify(job.partition, job.version)}"
    for number, rows in enumerate(_describe_unassigned(job)):
        write_quarantine(job.quarantine, f"{start}-{numbered(number)}.ndjson", "", rows)


def _describe_unassigned(job: CountJob) -> Iterator[list[Rejected]]:
    """Yield the rows that name no target, some at a time, with their positions in the file."""
    reason = f"column {job.key!r}, which names the target, is empty in {job.partition.path}."
    before = job.rows_before
    for batch in job.folder.batches(job.partition, [job.key, *job.columns]):
        if job.key in job.partition.folders:
            unassigned = np.arange(batch.num_rows)
        else:
            names, codes = encode_targets(batch.column(job.key))
            unassigned = np.flatnonzero(np.array([not name for name in names])[codes])
        cells = batch.select([name for name in batch.schema.names if name != job.key])
        for start in range(0, len(unassigned), _QUARANTINE_ROWS):
            some = unassigned[start : start + _QUARANTINE_ROWS]
            rows = zip(some.tolist(), cells.take(some).to_pylist(), strict=True)
            texts = ((row, valid_text(",".join(map(str, values.values())))) for row, values in rows)
            yield [Rejected(before + row + 1, reason, text[:RAW_LENGTH]) for row, text in texts]
        before += batch.num_rows


def cut_epochs(rows: Iterable[int], size: int) -> Iterator[tuple[int, int]]:
    """Cut the rows of a target into epochs of at most `size` rows that do not cross manifests.

    `rows` is the number of rows of the target in each manifest.
    """
    start = 0
    for n in rows:
        end = start + n
        while start < end:
            stop = min(start + size, end)
            yield start, stop
            start = stop
