"""Which files belong to a backfill, and which targets have rows in them.

Every call records the files that it sees for the first time in a manifest. Manifests never change, so
epochs, which are cut by them, are the same for every worker and every later call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from baryflow.distributed.files import numbered
from baryflow.distributed.output import Job
from baryflow.distributed.parquet import NO_VALUE, Folder, Partition
from baryflow.distributed.tasks import Progress, TaskRunner
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.streams.decoding import as_text
from baryflow.validation import Integers

#: The name of the target of rows that name none.
NO_TARGET = ""


@dataclass(frozen=True, eq=False)
class Manifest:
    """Files that one call saw for the first time."""

    partitions: list[Partition]
    rows: dict[str, int]  # of each target, in the order of the files
    versions: dict[str, str] = field(default_factory=dict)  # of each file, as in Folder


def load_manifests(job: Job) -> list[Manifest]:
    """Return the manifests of all calls so far."""
    known: list[Manifest] = []
    while job.state.read(name := _manifest_name(len(known))) is not None:
        if (found := job.state.load(Manifest, name)) is None:
            raise FileFormatError(
                f"cannot resume: {job.state.url}/{name} is damaged, or was written by another version; "
                "restore it from a backup, or finish the backfill with that version"
            )
        known.append(found)
    return known


def check_files(manifests: Sequence[Manifest], folder: Folder) -> str:
    """Raise an error if a file has more or fewer rows now; return a warning if files were rewritten.

    Rewritten files with as many rows are no error: copied or restored folders look the same. Files that
    were processed may be deleted.
    """
    before = _count_files(partition for manifest in manifests for partition in manifest.partitions)
    now = _count_files(folder.partitions)
    for path, rows in before.items():
        if now.get(path, rows) != rows:
            raise InvalidInputError(
                f"{path} had {rows} rows when it was first read, and has {now[path]} now: files must "
                "not change; write new rows to new files"
            )
    versions = {path: version for manifest in manifests for path, version in manifest.versions.items()}
    rewritten = [path for path, one in folder.versions.items() if versions.get(path, one) != one]
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
    client: Any, job: Job, folder: Folder, known: list[Manifest], progress: Progress
) -> list[Manifest]:
    """Count the rows of files that no manifest lists, if there are any, and record them in a new one."""
    listed = {partition.path for manifest in known for partition in manifest.partitions}
    new = [partition for partition in folder.partitions if partition.path not in listed]
    if not new:
        return known
    rows, key = Counter[str](), job.plan.key
    shared = [partition for partition in new if key not in partition.folders]
    for partition in new:
        if key in partition.folders:
            rows[named_by_folder(partition, key)] += partition.n_rows
    if shared:
        total = sum(partition.n_rows for partition in shared)

        def report(done: int, n: int, what: str) -> None:  # in rows instead of partitions
            progress(total * done // n, total, what)

        runner = TaskRunner(client, progress=report)
        rows += runner.reduce(
            *("counting rows", Counter, shared, count_targets, merge_counts),
            *(folder.without_partitions(), key),
        )
    versions = {one.path: folder.versions[one.path] for one in new if one.path in folder.versions}
    manifest = Manifest(new, dict(rows), versions)
    for place in (job.state, job.state / "manifests"):  # of a call that was killed
        place.delete_unfinished()
    job.state.save(manifest, _manifest_name(len(known)))
    return [*known, manifest]


def _manifest_name(number: int) -> str:
    return f"manifests/{numbered(number)}.bary"


def _count_files(partitions: Iterable[Partition]) -> Counter[str]:
    """Return the number of rows of each file."""
    found = Counter[str]()
    for partition in partitions:
        found[partition.path] += partition.n_rows
    return found


# -- whose rows ------------------------------------------------------------------------------------


def count_targets(partition: Partition, folder: Folder, key: str) -> Counter[str]:
    """Count the rows of each target in a partition."""
    rows = Counter[str]()
    for batch in folder.batches(partition, [key]):
        names, codes = encode_targets(batch.column(0))
        for name, n in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True):
            if n:
                rows[name] += n
    return rows


def merge_counts(parts: Iterable[Counter[str]]) -> Counter[str]:
    """Add counts; names stay in the order of the parts."""
    return sum(parts, Counter[str]())


def named_by_folder(partition: Partition, key: str) -> str:
    """Return the target that a folder name gives to all rows."""
    name = partition.folders[key]
    return NO_TARGET if name in NO_VALUE else name


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
    return [*names, NO_TARGET], codes.astype(np.intp, copy=False)
