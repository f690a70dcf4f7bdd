"""Learning from labelled rows in partitions: three looks at them, and a model as in memory."""

from __future__ import annotations

import hashlib
import warnings
from functools import partial
from typing import Any

import numpy as np

from baryflow.distributed.census import Census, Roll, merge_censuses, take_census
from baryflow.distributed.learning import Plan, learn_sources
from baryflow.distributed.parts import Parts
from baryflow.distributed.store import Store
from baryflow.distributed.work import Work
from baryflow.estimators.learned import Learned
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.estimators.parameters import manner_of, source_options, switches
from baryflow.estimators.rehearsal import Progress
from baryflow.estimators.threads import one_thread
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
    the view; a mixture of every class of every source, merged from mixtures of the pieces. All of it is
    made of small summaries, merged as a tree. The classifiers, and the rehearsal that decides about
    adapting, learn from a sample of about `sample_rows` that never leaves the workers: the same part of
    every class of every source, and at least 200 rows of each. Sets that are smaller than the sample
    give the model that ``model.fit`` gives, up to rounding.

    Parameters
    ----------
    model : OnlineDaDiL
        Its parameters are used; rows are not kept, whatever ``keep_sources`` says.
    parts : Parts
        Labelled rows, from :func:`read_parquet`, :func:`from_frame` or :func:`from_arrays`.
    sample_rows : int
        Of all rows, about so many teach the classifiers.
    checkpoint : str, optional
        An fsspec URL: results of pieces are kept there, so that the same call after a kill goes on.
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
    """
    if not isinstance(model, OnlineDaDiL):
        raise InvalidInputError(f"expected an OnlineDaDiL, got a {type(model).__name__}")
    if not parts.labelled:
        raise InvalidInputError("sources need labels: say which column holds them")
    work = Work(client, _open(checkpoint, storage_options, model, parts, sample_rows), progress)
    census = look_through(work, parts)
    warn_of_rows(census)
    return finish(model, parts, work, census, as_count(sample_rows, "sample_rows"))


def look_through(work: Work, parts: Parts) -> Census:
    """Take the first look at all rows."""
    if not parts.pieces:
        raise InvalidInputError("there is no row to learn from: expected at least one partition")
    task = partial(_take_census, parts.reader, parts.n_features)
    counted = work.over("census", Census, parts.pieces, task, merge_censuses)
    return work.compute(counted, "counting rows")  # type: ignore[no-any-return]


def warn_of_rows(census: Census) -> None:
    """Say which rows are not used."""
    counts = {
        "have no label": census.unlabelled,
        "have no domain": census.nowhere,
        "hold infinite values": census.rejected,
    }
    for what, number in counts.items():
        if number:
            warnings.warn(f"{number:,} rows {what} and are not used", UserWarning, stacklevel=3)


def finish(
    model: OnlineDaDiL, parts: Parts, work: Work, census: Census, sample_rows: int
) -> OnlineDaDiL:
    """Take the second and the third look, and learn."""
    roll = Roll.of(census, parts.columns)
    options = source_options(model, roll.classes, len(roll.sources))
    manner_of(model, len(roll.classes))  # refuses what cannot be before the long work
    learned = None if work.store is None else work.store.load(Learned, "learned.bary")
    if learned is None:
        plan = Plan(
            roll, options, switches(model), model.predictor, rehearsing=model.rehearse,
            sample_rows=sample_rows,
        )  # fmt: skip
        learned = work.compute(learn_sources(work, parts, plan), "learning")
        if work.store is not None:
            work.store.keep(learned, "learned.bary")
    columns = parts.n_features if parts.columns is None else parts.columns
    return model.adopt(learned, roll.classes, roll.sources, columns)


def _open(
    checkpoint: str | None,
    options: dict[str, Any] | None,
    model: OnlineDaDiL,
    parts: Parts,
    sample_rows: int,
) -> Store | None:
    """Return the place of this very fit among those in a folder."""
    if checkpoint is None:
        return None
    if not isinstance(model.random_state, (int, np.integer)):
        raise InvalidInputError(
            "with a checkpoint random_state must be a number: to go on is to draw the same again"
        )
    parameters = {name: value for name, value in model.get_params().items() if name != "verbose"}
    told = repr((parts.identity, sample_rows, sorted(parameters.items())))
    return Store(checkpoint, options or {}) / hashlib.sha256(told.encode()).hexdigest()[:16]


@one_thread  # bits depend on it
def _take_census(reader: Any, n_features: int, piece: Any) -> Census:
    return take_census(reader, piece, n_features)
