"""Learn labelled sources from rows in partitions: count, draw a sample, and fit it as in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import distributed
import joblib
import numpy as np
import pandas as pd

from baryflow.distributed.files import open_files
from baryflow.distributed.partitions import Parts, require_parts
from baryflow.distributed.sampling import (
    RowCounts,
    Sample,
    SamplePlan,
    count_partition,
    describe_out_of_range,
    draw_partition,
    merge_counts,
    merge_samples,
)
from baryflow.distributed.tasks import Progress, TaskRunner
from baryflow.estimators._parameters import follow_settings, source_options
from baryflow.estimators._sensors import find_patience
from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.validation import as_count

#: Approximate number of rows in the sample.
SAMPLE_ROWS = 50_000


def fit(
    model: OnlineDaDiL,
    parts: Parts,
    *,
    sample_rows: int = SAMPLE_ROWS,
    checkpoint: str | None = None,
    storage_options: dict[str, Any] | None = None,
    client: Any = None,
    progress: Progress | None = None,
    on_count: Callable[[RowCounts], None] | None = None,
) -> OnlineDaDiL:
    """Learn labelled sources from rows in partitions. Rows stay on the workers.

    A first pass counts the rows of every class of every source, a second draws a sample of them, and a
    worker fits the model to the sample. The sample holds the same fraction of every class of every
    source, and about 20 rows of each or more. Data smaller than the sample give the same model as
    ``model.fit``, bit for bit.

    Parameters
    ----------
    model : OnlineDaDiL
        Provides the parameters. Rows are not kept, whatever ``keep_sources`` says.
    parts : Parts
        Labelled rows from :func:`read_parquet`, :func:`from_frame` or :func:`from_arrays`.
    sample_rows : int
        Approximate size of the sample, which must fit into the memory of a worker.
    checkpoint : str, optional
        Folder or fsspec URL that the caller and all workers share. Results of partitions are stored
        there, so that the same call resumes after a crash.
    storage_options : dict, optional
        Options of the file system of `checkpoint`.
    client : distributed.Client, optional
        Default: Dask's current client, or else threads of this process.
    progress : callable, optional
        Called as ``progress(done, total, what)``.
    on_count : callable, optional
        Called after the first pass, with ``classes``, ``sources`` and rows of each. It may still change
        parameters of the model.

    Returns
    -------
    OnlineDaDiL
        The model itself. The same rows in the same order give the same bits with the same seed.

    Raises
    ------
    InvalidInputError
        If rows or parameters cannot be used.
    UnreachableError
        If the scheduler is gone, the cluster has no workers, or a partition repeatedly kills them.
    """
    if not isinstance(model, OnlineDaDiL):
        raise InvalidInputError(f"expected an OnlineDaDiL, got {type(model).__name__}")
    require_parts(parts)
    if not parts.labelled:
        raise InvalidInputError("sources need labels: name the column that holds them")
    n_rows = as_count(sample_rows, "sample_rows")

    def runner(name: str) -> TaskRunner:
        if checkpoint is None:
            return TaskRunner(client, None, progress)
        files = open_files(checkpoint, storage_options) / parts.identity / name
        return TaskRunner(client, files, progress)

    counts: RowCounts = runner("counts").reduce(
        *("counting rows", RowCounts, parts.partitions, count_partition, merge_counts), parts.reader
    )
    counts.require_rows()
    for reason, number in counts.unused.items():
        warnings.warn(f"{number:,} rows {reason} and are not used", UserWarning, stacklevel=2)
    if on_count is not None:
        on_count(counts)
    # Check parameters before the long work.
    source_options(model, counts.classes, len(counts.sources))
    follow_settings(model, len(counts.classes))
    plan, parameters = SamplePlan.of(counts, n_rows), model.get_params(deep=False)
    unfitted = OnlineDaDiL(**parameters | {"n_jobs": None, "verbose": False, "keep_sources": False})
    learned = runner(f"sample-{n_rows}").reduce(
        "sampling rows",
        *(Sample, parts.partitions, draw_partition, merge_samples),
        *(parts.reader, plan, parts.n_features),
        then=("learning", partial(_learn, unfitted, plan, parts.columns)),
    )
    for found in learned.warnings:
        warnings.warn(found, UserWarning, stacklevel=2)
    columns = parts.n_features if parts.columns is None else parts.columns
    return model.adopt(learned.knowledge, learned.classes, learned.sources, columns)


@dataclass(frozen=True, eq=False)
class _Learned:
    knowledge: SourceKnowledge
    classes: Any
    sources: list[Any]
    warnings: list[str]


def _learn(model: OnlineDaDiL, plan: SamplePlan, columns: list[Any] | None, sample: Sample) -> _Learned:
    """Fit the model to the sample; runs on a worker."""
    sample, counts = sample.without_spares(), plan.counts
    if not len(sample.X):
        raise InvalidInputError(
            f"there are no rows to learn from: {describe_out_of_range(sample.out_of_range)}"
        )
    X: Any = sample.X
    if columns is not None and all(isinstance(name, str) for name in columns):
        X = pd.DataFrame(X, columns=columns)
    domains = [1 if name is None else name for name in counts.domains]
    y, source = np.array(counts.labels)[sample.cells], np.array(domains)[sample.cells]
    with warnings.catch_warnings(record=True) as caught, _fold_by_fold():
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "Sending large graph")
        model.fit(X, y, sample_domain=source)
    texts = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    if sample.out_of_range:
        texts.append(describe_out_of_range(sample.out_of_range))
    knowledge = model.knowledge_
    if len(sample.X) < sum(counts.rows) - sample.out_of_range and knowledge.limits is not None:
        patience = _find_patience(sample, y, source, plan)
        patience = np.where(np.isinf(knowledge.limits.patience), np.inf, patience)
        knowledge = replace(knowledge, limits=replace(knowledge.limits, patience=patience))
    return _Learned(knowledge, model.classes_, model.sources_, texts)


def _fold_by_fold() -> Any:
    """Return a context in which other workers may fit leave-one-source-out folds of this one's model."""
    try:
        distributed.get_worker()
    except ValueError:  # a thread of the caller
        return joblib.parallel_config(n_jobs=1)
    return joblib.parallel_config(backend="dask", n_jobs=-1)


def _find_patience(sample: Sample, y: Any, source: Any, plan: SamplePlan) -> Any:
    """Return after how many equal values columns are stuck: rows of a sample hardly follow each other.

    Which values were repeated is known of every row drawn, and so is how many rows it stands for.
    """
    (sources, source_codes), (classes, codes) = (
        np.unique(one, return_inverse=True) for one in (source, y)
    )
    shape, d = (len(sources), len(classes)), sample.X.shape[1]
    drawn, counts, repeats = np.zeros(shape), np.zeros(shape), np.zeros((*shape, d))
    np.add.at(drawn, (source_codes, codes), 1.0)
    np.add.at(repeats, (source_codes, codes), sample.repeated)
    counts[source_codes, codes] = np.array(plan.counts.rows)[sample.cells]
    repeats *= (counts / np.maximum(drawn, 1.0))[:, :, None]
    lowest, highest = np.full((2, len(sources), d), [[[np.inf]], [[-np.inf]]])
    np.fmin.at(lowest, source_codes, sample.X)
    np.fmax.at(highest, source_codes, sample.X)
    return find_patience(counts, repeats, highest > lowest)
