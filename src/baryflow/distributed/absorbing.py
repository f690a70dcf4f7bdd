"""Adapt a model to a target whose rows are in partitions, one partition after the other."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Any

import pandas as pd
from dask.delayed import delayed

from baryflow.distributed.files import open_files
from baryflow.distributed.partitions import Parts, Reader, require_parts
from baryflow.distributed.prediction import require_columns, require_fitted, unpack
from baryflow.distributed.sampling import describe_out_of_range
from baryflow.distributed.tasks import Progress, TaskRunner
from baryflow.estimators._sensors import describe_new_faults
from baryflow.estimators._state import TargetState
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError


def absorb(
    model: OnlineDaDiL,
    parts: Parts,
    *,
    checkpoint: str | None = None,
    storage_options: dict[str, Any] | None = None,
    client: Any = None,
    progress: Progress | None = None,
) -> OnlineDaDiL:
    """Adapt a fitted model to a target whose rows are in partitions. Rows stay on the workers.

    Partitions are absorbed one after the other, as ``partial_fit`` absorbs batches: a worker reads one,
    and passes the state of the target to the next.

    Parameters
    ----------
    model : OnlineDaDiL
        Fitted. Rows of the target that it has seen before count as well.
    parts : Parts
        Rows of the target. Labels are ignored.
    checkpoint : str, optional
        Folder or fsspec URL that the caller and all workers share, to resume after a crash.
    storage_options : dict, optional
        Options of the file system of `checkpoint`.
    client : distributed.Client, optional
        Default: Dask's current client, or else threads of this process.
    progress : callable, optional
        Called as ``progress(done, total, what)``.

    Returns
    -------
    OnlineDaDiL
        An adapted copy. The model itself does not change.

    Raises
    ------
    InvalidInputError
        If columns of the model are missing.
    UnreachableError
        If the scheduler is gone, the cluster has no workers, or a partition repeatedly kills them.
    """
    require_fitted(model)
    require_parts(parts)
    if model.knowledge_.limits is None:
        raise InvalidInputError(
            "cannot absorb rows: the model was made from mixtures, not fitted on rows"
        )
    reader = parts.reader.features_only(require_columns(model, parts.columns, parts.n_features))
    packed, seen, first, files = model.to_bytes(), Absorbed(model.state_), 0, None
    if checkpoint is not None:
        digest = hashlib.sha256(packed).hexdigest()[:16]
        files = open_files(checkpoint, storage_options) / f"target-{parts.identity}-{digest}"
        if (found := files.latest(Absorbed)) is not None:
            first, seen = found[0] + 1, found[1]
    runner = TaskRunner(client)
    base = runner.persist(delayed(packed))
    for number in range(first, len(parts.partitions)):
        partition = parts.partitions[number]
        seen = runner.compute("absorbing", delayed(_absorb)(reader, partition, base, seen))
        if files is not None:
            files.save_next(number, seen, keep=1)
        if progress is not None:
            progress(number + 1, len(parts.partitions), "absorbing the target")
    if seen.out_of_range:
        warnings.warn(describe_out_of_range(seen.out_of_range), UserWarning, stacklevel=2)
    adapted = model.spawn(seen.state)
    if faults := describe_new_faults(model.columns_, adapted.columns_):
        warnings.warn(faults, UserWarning, stacklevel=2)
    return adapted


@dataclass(frozen=True, eq=False)
class Absorbed:
    """What is known of the target after some partitions."""

    state: TargetState
    out_of_range: int = 0  # rows that are not used


def _absorb(reader: Reader, partition: Any, packed: bytes, seen: Absorbed) -> Absorbed:
    """Absorb the rows of a partition; runs on a worker."""
    model, out_of_range = unpack(packed).spawn(seen.state), seen.out_of_range
    names = getattr(model, "feature_names_in_", None)
    for block in reader.blocks(partition):
        out_of_range += block.out_of_range
        if len(block.X):
            model.absorb(block.X if names is None else pd.DataFrame(block.X, columns=names))
    return Absorbed(model.state_, out_of_range)
