"""Learn labelled sources from rows in partitions: three passes over the rows, then as in memory."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from dask.delayed import delayed

from baryflow.core.mixture import Mixture
from baryflow.distributed.fitting.partitions import Parts, require_parts
from baryflow.distributed.fitting.passes import (
    CellMixtures,
    CellStatistics,
    EMSums,
    ScatterAndSample,
    SourceCatalog,
    complete_scatter,
    measure_partition,
    merge_samples,
    merge_statistics,
    merge_sums,
    sample_partition,
    sampling_fractions,
    sum_partition,
)
from baryflow.distributed.store import open_store
from baryflow.distributed.tasks import TaskRunner
from baryflow.estimators._classifiers import Fit as FitClassifier
from baryflow.estimators._classifiers import choose_classifiers
from baryflow.estimators._leave_one_out import (
    MOST_FOLDS,
    Fold,
    FoldResult,
    fit_fold,
    know_evenly,
    learn_evidence,
    make_folds,
    run_fold,
    with_committee,
    with_novelty,
    without_folds,
)
from baryflow.estimators._parameters import follow_settings, source_options
from baryflow.estimators._progress import Progress
from baryflow.estimators._sensors import Limits, describe_units
from baryflow.estimators._source_table import SourceTable
from baryflow.estimators._sources import (
    COMPONENTS_PER_CLASS,
    LabelledRows,
    Outlook,
    PlainClassifiers,
    SourceKnowledge,
    SourceModel,
    SourceOptions,
    build_model,
    fit_plain,
    mix_class,
    mix_sources,
)
from baryflow.estimators._threads import one_thread
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.validation import as_count

#: Approximate number of rows from which the classifiers learn.
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
    """Learn labelled sources from rows in partitions. Only small summaries leave the workers.

    Three passes over all rows compute counts and moments of every class of every source, the scatter of
    the classes, and one step of EM for the mixture of every class of every source. The mixtures start
    from a sample. The classifiers and the leave-one-source-out folds learn from the same sample. It
    holds the same fraction of every class of every source, and about 200 rows of each or more (fewer, at
    least about 20, where that would exceed four times `sample_rows`). Data smaller than the sample give
    the same model as ``model.fit``, up to rounding.

    Parameters
    ----------
    model : OnlineDaDiL
        Provides the parameters. Rows are not kept, whatever ``keep_sources`` says.
    parts : Parts
        Labelled rows from :func:`read_parquet`, :func:`from_frame` or :func:`from_arrays`.
    sample_rows : int
        Approximate size of the sample.
    checkpoint : str, optional
        Folder or fsspec URL that the caller and all workers share. Results of partitions are stored
        there, so that the same call resumes after a crash.
    storage_options : dict, optional
        Options of the file system of `checkpoint`.
    client : distributed.Client, optional
        Default: Dask's current client, or else threads of this process.
    progress : callable, optional
        Called as ``progress(done, total, what)``.

    Returns
    -------
    OnlineDaDiL
        The model itself. The same call with the same seed and partitions gives the same bits.

    Raises
    ------
    InvalidInputError
        If rows or parameters cannot be used.
    UnreachableError
        If the scheduler is gone, the cluster has no workers, or a partition repeatedly kills them.
    """
    job = Fit(model, parts, sample_rows, checkpoint, storage_options, client, progress)
    statistics, _ = job.count()
    for reason, number in statistics.unused.items():
        warnings.warn(f"{number:,} rows {reason} and are not used", UserWarning, stacklevel=2)
    return job.learn()


@dataclass
class Fit:
    """A fit in two steps, for callers that need the classes and sources before learning starts."""

    model: OnlineDaDiL
    parts: Parts
    sample_rows: int = SAMPLE_ROWS
    checkpoint: str | None = None
    storage_options: dict[str, Any] | None = None
    client: Any = None
    progress: Progress | None = None
    _catalog: SourceCatalog | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, OnlineDaDiL):
            raise InvalidInputError(f"expected an OnlineDaDiL, got {type(self.model).__name__}")
        require_parts(self.parts)
        if not self.parts.labelled:
            raise InvalidInputError("sources need labels: name the column that holds them")
        self.sample_rows = as_count(self.sample_rows, "sample_rows")
        if self.checkpoint is not None and not isinstance(self.model.random_state, (int, np.integer)):
            raise InvalidInputError(
                "a checkpoint needs a number as random_state: resuming must draw the same rows again"
            )

    def count(self) -> tuple[CellStatistics, SourceCatalog]:
        """Run the first pass; return the statistics, and classes and sources in order."""
        parts, runner = self.parts, self._runner()
        task = partial(measure_partition, parts.reader, n_features=parts.n_features)
        merged = runner.reduce("statistics", CellStatistics, parts.partitions, task, merge_statistics)
        statistics = runner.compute(merged, "counting rows")
        self._catalog = SourceCatalog.of(statistics, parts.columns)
        return statistics, self._catalog

    def learn(self) -> OnlineDaDiL:
        """Run the second and third pass, and learn."""
        catalog = self._catalog or self.count()[1]
        model, parts = self.model, self.parts
        for found in describe_units(catalog.units, catalog.sources, parts.columns):
            warnings.warn(found, UserWarning, stacklevel=2)
        options = source_options(model, catalog.classes, len(catalog.sources))
        follow_settings(model, len(catalog.classes))  # check parameters before the long work
        parameters = {n: v for n, v in model.get_params().items() if n not in ("verbose", "n_jobs")}
        runner = self._runner(repr(_exact({**parameters, "sample_rows": self.sample_rows})))
        learned = None if runner.store is None else runner.store.load(SourceKnowledge, "learned.bary")
        if learned is None:
            plan = FitPlan(
                catalog,
                choose_classifiers(model.classifier),
                options,
                validate=bool(model.validate),
                sample_rows=self.sample_rows,
            )
            learned = runner.compute(_learn_sources(runner, parts, plan), "learning")
            if runner.store is not None:
                runner.store.save(replace(learned, plain=learned.plain.packed()), "learned.bary")
        columns = parts.n_features if parts.columns is None else parts.columns
        return model.adopt(learned, catalog.classes, catalog.sources, columns)

    def _runner(self, parameters: str = "") -> TaskRunner:
        """Return a runner with a store of its own for these rows and parameters."""
        store = None
        if self.checkpoint is not None:
            store = open_store(self.checkpoint, self.storage_options) / self.parts.identity
            if parameters:
                store = store / hashlib.sha256(parameters.encode()).hexdigest()[:16]
        return TaskRunner(self.client, store, self.progress)


def _exact(value: Any) -> Any:
    """Return a parameter as plain values: the repr of an array leaves out digits and entries."""
    if isinstance(value, dict):
        return sorted((repr(_exact(key)), _exact(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return [_exact(one) for one in value]
    return _exact(np.asarray(value).tolist()) if hasattr(value, "__array__") else value


# -- tasks -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FitPlan:
    """What all tasks need: the result of the first pass, and the parameters."""

    catalog: SourceCatalog
    classifiers: dict[str, FitClassifier]
    options: SourceOptions
    validate: bool
    sample_rows: int

    @property
    def table(self) -> SourceTable:
        """Statistics of the sources."""
        return self.catalog.table


def _learn_sources(runner: TaskRunner, parts: Parts, plan: FitPlan) -> Any:
    """Return a delayed object that gives the source knowledge; all of it is computed by workers.

    The second pass runs at once, so that no rows are kept in memory for the third. While the third pass
    improves the mixtures, the classifiers and folds learn from the sample.
    """
    shared = delayed(plan, traverse=False)  # one node of the graph, however many tasks use it
    catalog, partitions = delayed(plan.catalog, traverse=False), parts.partitions
    sample = partial(sample_partition, parts.reader, n_rows=plan.sample_rows, seed=plan.options.seed)
    merged = runner.reduce("sample", ScatterAndSample, partitions, sample, merge_samples, catalog)
    second = runner.persist(merged, "sampling rows")
    outlook = delayed(_outlook)(second, shared)
    rows, proportional = (delayed(_labelled)(second, shared, which) for which in (False, True))
    start = delayed(_start)(rows, outlook, shared)
    add_up = partial(sum_partition, parts.reader)
    sums = runner.reduce("em", EMSums, partitions, add_up, merge_sums, catalog, outlook, start)
    model = delayed(_build)(delayed(_mix)(rows, outlook, start, sums, shared), outlook, shared)
    knowledge = delayed(_know)(model, delayed(_fit_plain)(proportional, outlook, shared), shared)
    return delayed(_finish)(knowledge, _run_folds(proportional, plan, shared), proportional, shared)


def _run_folds(rows: Any, plan: FitPlan, shared: Any) -> Any:
    """Return a delayed object that gives the evidence and results of all folds; None without folds."""
    if not plan.validate:
        return None
    folds = delayed(_make_folds)(rows, shared)
    fitted = [
        delayed(_fit_fold)(folds, number, shared)
        for number in range(min(MOST_FOLDS, len(plan.table.counts)))
    ]
    evidence = delayed(_learn_evidence)(fitted)
    results = [delayed(_run_fold)(number, fold, evidence) for number, fold in enumerate(fitted)]
    return delayed(_collect)(evidence, results)


@one_thread
def _outlook(second: ScatterAndSample, plan: FitPlan) -> Outlook:
    return Outlook.of(plan.table, complete_scatter(second.scatter, plan.table))


def _labelled(second: ScatterAndSample, plan: FitPlan, proportional: bool) -> LabelledRows:
    return second.sample.labelled(plan.table, proportional=proportional)


@one_thread
def _fit_plain(rows: LabelledRows, outlook: Outlook, plan: FitPlan) -> PlainClassifiers:
    seed = plan.options.seed
    return fit_plain(rows, plan.table, plan.classifiers, basis=outlook.basis, seed=seed)


@one_thread
def _start(rows: LabelledRows, outlook: Outlook, plan: FitPlan) -> CellMixtures:
    """Fit mixtures to the sample, for the cells that have more rows than the sample."""
    options, table = plan.options, plan.table
    found = {}
    for number, c in np.argwhere(sampling_fractions(table, plan.sample_rows) < 1.0).tolist():
        V = outlook.see(rows.rows[number][rows.codes[number] == c], number)
        cell = number * table.n_classes + c
        found[cell] = mix_class(V, outlook.unit, COMPONENTS_PER_CLASS, options.seed)
    return CellMixtures.of(found, COMPONENTS_PER_CLASS, len(outlook.unit))


@one_thread
def _mix(
    rows: LabelledRows, outlook: Outlook, start: CellMixtures, sums: EMSums, plan: FitPlan
) -> tuple[list[list[Mixture | None]], list[Mixture]]:
    """Return the mixture of every class of every source, and of every class over all sources."""
    mixtures, together = mix_sources(rows, outlook, plan.options)
    n_classes = plan.table.n_classes
    for cell, mixture in sums.update(start, outlook.unit).items():
        mixtures[cell // n_classes][cell % n_classes] = mixture
    return mixtures, together


@one_thread
def _build(mixtures: Any, outlook: Outlook, plan: FitPlan) -> SourceModel:
    return build_model(outlook, *mixtures, options=plan.options)


def _know(model: SourceModel, plain: PlainClassifiers, plan: FitPlan) -> SourceKnowledge:
    return know_evenly(model, plain, Limits.of(plan.table), plan.options)


@one_thread
def _make_folds(rows: LabelledRows, plan: FitPlan) -> list[Fold]:
    return make_folds(rows, plan.options)


def _fit_fold(folds: list[Fold], number: int, plan: FitPlan) -> Any:
    return None if number >= len(folds) else fit_fold(folds[number], plan.classifiers)


@one_thread
def _learn_evidence(fitted: list[Any]) -> Any:
    folds = [fold for fold in fitted if fold is not None]
    return learn_evidence(folds) if folds else None


def _run_fold(number: int, fold: Any, evidence: Any) -> FoldResult | None:
    return None if fold is None else run_fold(number, fold, evidence)


def _collect(evidence: Any, results: list[FoldResult | None]) -> Any:
    return evidence, [result for result in results if result is not None]


@one_thread
def _finish(
    knowledge: SourceKnowledge, validated: Any, rows: LabelledRows, plan: FitPlan
) -> SourceKnowledge:
    if validated is None:
        return with_novelty(knowledge, rows, [])
    evidence, results = validated
    if evidence is None:
        knowledge = without_folds(knowledge, len(plan.table.counts))
    else:
        knowledge = with_committee(knowledge, evidence, results)
    return with_novelty(knowledge, rows, results)
