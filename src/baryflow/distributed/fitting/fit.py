"""Learning from labelled rows in partitions: three looks at them, and a model as in memory."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from baryflow.distributed.fitting.census import Census, Roll, merge_censuses, take_census
from baryflow.distributed.fitting.partitions import Parts, require_parts
from baryflow.distributed.fitting.sources import FitPlan, learn_sources
from baryflow.distributed.fitting.work import Work
from baryflow.distributed.store import place
from baryflow.estimators._classifiers import choose_classifiers
from baryflow.estimators._leave_one_out import Progress
from baryflow.estimators._parameters import follow_settings, source_options
from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators._threads import one_thread
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.validation import as_count

#: Rows of which the classifiers are learned, about.
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
) -> OnlineDaDiL:
    """Learn labelled sources from rows in partitions, which stay where they are.

    Three looks at all rows: counts and moments of every class of every source; how classes spread, for
    the view; and one step of EM for the mixtures of every class of every source. All of it is made of
    small sums, merged as a tree. Where mixtures start, what the classifiers learn, and whether to adapt
    comes from a sample of about `sample_rows` that never leaves the workers: the same part of every
    class of every source, and about 200 rows of each or more (fewer where that were more than four
    times `sample_rows`, but 20). Sets that are smaller than the sample give the model that ``model.fit``
    gives, up to rounding.

    Parameters
    ----------
    model : OnlineDaDiL
        Its parameters are used; rows are not kept, whatever ``keep_sources`` says.
    parts : Parts
        Labelled rows, from :func:`read_parquet`, :func:`from_frame` or :func:`from_arrays`.
    sample_rows : int
        Of all rows, about so many teach the classifiers.
    checkpoint : str, optional
        A folder that the caller and all workers see, or an fsspec URL: results of pieces are kept there,
        so that the same call after a kill goes on.
    storage_options : dict, optional
        For the file system of `checkpoint`.
    client : distributed.Client, optional
        Without it the client that is there, or else threads of this process.
    progress : callable, optional
        Called as ``progress(done, total, what)``.

    Returns
    -------
    OnlineDaDiL
        The model itself. The same call with the same seed and the same pieces gives the same bits.

    Raises
    ------
    InvalidInputError
        If rows or parameters do not fit; the message says what to do.
    BaryflowError
        If workers died again and again.
    UnreachableError
        If the scheduler is gone, or there are no workers.
    """
    job = Fit(model, parts, sample_rows, checkpoint, storage_options, client, progress)
    census, _ = job.count()
    for what, number in census.unused.items():
        warnings.warn(f"{number:,} rows {what} and are not used", UserWarning, stacklevel=2)
    return job.learn()


@dataclass
class Fit:
    """A fit in two steps, for those who want to know in between who is there.

    Parameters
    ----------
    model, parts, sample_rows, checkpoint, storage_options, client, progress
        As in :func:`fit`.
    """

    model: OnlineDaDiL
    parts: Parts
    sample_rows: int = SAMPLE_ROWS
    checkpoint: str | None = None
    storage_options: dict[str, Any] | None = None
    client: Any = None
    progress: Progress | None = None
    _roll: Roll | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, OnlineDaDiL):
            raise InvalidInputError(f"expected an OnlineDaDiL, got a {type(self.model).__name__}")
        require_parts(self.parts)
        if not self.parts.labelled:
            raise InvalidInputError("sources need labels: say which column holds them")
        if not self.parts.pieces:
            raise InvalidInputError("there is no row to learn from: expected at least one partition")
        self.sample_rows = as_count(self.sample_rows, "sample_rows")
        if self.checkpoint is not None and not isinstance(self.model.random_state, (int, np.integer)):
            raise InvalidInputError(
                "with a checkpoint random_state must be a number: to go on is to draw the same again"
            )

    def count(self) -> tuple[Census, Roll]:
        """Take the first look at all rows.

        Returns
        -------
        Census, Roll
            What was counted, and classes and sources in order.

        Raises
        ------
        InvalidInputError
            If rows do not fit.
        """
        parts, work = self.parts, self._work()
        task = partial(_take_census, parts.reader, parts.n_features)
        counted = work.over("census", Census, parts.pieces, task, merge_censuses)
        census = work.compute(counted, "counting rows")
        self._roll = Roll.of(census, parts.columns)
        return census, self._roll

    def learn(self) -> OnlineDaDiL:
        """Take the second and the third look, and learn.

        Returns
        -------
        OnlineDaDiL

        Raises
        ------
        InvalidInputError
            If parameters do not fit.
        """
        roll = self._roll or self.count()[1]
        model, parts = self.model, self.parts
        options = source_options(model, roll.classes, len(roll.sources))
        follow_settings(model, len(roll.classes))  # refuses wrong parameters before the long work
        parameters = {n: v for n, v in model.get_params().items() if n not in ("verbose", "n_jobs")}
        work = self._work(repr(_exactly({**parameters, "sample_rows": self.sample_rows})))
        learned = None if work.store is None else work.store.load(SourceKnowledge, "learned.bary")
        if learned is None:
            plan = FitPlan(
                roll,
                choose_classifiers("linear" if options.paper else model.classifier),
                options,
                validate=bool(model.validate),
                sample_rows=self.sample_rows,
            )
            learned = work.compute(learn_sources(work, parts, plan), "learning")
            if work.store is not None:
                plain = None if learned.plain is None else learned.plain.packed()
                work.store.keep(replace(learned, plain=plain), "learned.bary")
        columns = parts.n_features if parts.columns is None else parts.columns
        return model.adopt(learned, roll.classes, roll.sources, columns)

    def _work(self, told: str = "") -> Work:
        """Return where work is done and kept: apart for other parts, and for other parameters."""
        store = None
        if self.checkpoint is not None:
            store = place(self.checkpoint, self.storage_options) / self.parts.identity
            if told:
                store = store / hashlib.sha256(told.encode()).hexdigest()[:16]
        return Work(self.client, store, self.progress)


def _exactly(value: Any) -> Any:
    """Return a parameter as plain values, to the last digit and entry: arrays do not show all."""
    if isinstance(value, dict):
        return sorted((repr(_exactly(key)), _exactly(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return [_exactly(one) for one in value]
    return _exactly(np.asarray(value).tolist()) if hasattr(value, "__array__") else value


@one_thread  # bits depend on it
def _take_census(reader: Any, n_features: int, piece: Any) -> Census:
    return take_census(reader, piece, n_features)
