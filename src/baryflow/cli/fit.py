"""``baryflow fit``: learn labelled sources from files, in this process or on Dask."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from baryflow.cli import options
from baryflow.cli.console import Line, Progress, echo, file_size, report_errors, stop_on_signals
from baryflow.cli.labelled_files import (
    LabelledFiles,
    check_and_describe,
    describe_counts,
    labelled_files,
    parse_class_prior,
)
from baryflow.cli.options import Command, find_class, protect_inputs, refuse_options
from baryflow.estimators._classifiers import CLASSIFIERS
from baryflow.estimators._input import InOrder
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features.labelled import fit_signals
from baryflow.validation import count_of

_NO_FEATURES = "workers make no features of raw signals; make them first"
#: Options that do not apply with --dask, and the reasons.
_LOCAL_ONLY = {
    "window": _NO_FEATURES,
    "step": _NO_FEATURES,
    "encoder": _NO_FEATURES,
    "keep_rows": "rows stay where they are",
    "jobs": "use --workers",
}

classifier_option = click.option(
    "--classifier",
    multiple=True,
    type=click.Choice(list(CLASSIFIERS)),
    help="Source classifier to use; repeatable. 'linear' alone is the fastest.  [default: all]",
)

label_shift_option = click.option(
    "--no-label-shift",
    is_flag=True,
    help="Assume that classes are as frequent as expected; do not estimate it from the target's rows.",
)

class_prior_option = click.option(
    "--class-prior",
    multiple=True,
    metavar="CLASS=SHARE",
    help="Expected share of a class in the target, 0 to 1; repeatable.  [default: learned]",
)
#: Values of --adapt, and those of the parameter.
ADAPT: dict[str, bool | str] = {"yes": True, "standardise": "standardise", "no": False}


@dataclass(frozen=True)
class FitOptions:
    """What a model is made of, and where it is fitted and written."""

    classifier: tuple[str, ...] = options.declare(classifier_option)
    class_prior: tuple[str, ...] = options.declare(class_prior_option)
    no_label_shift: bool = options.declare(label_shift_option)
    adapt: str = options.option(
        "--adapt",
        type=click.Choice(list(ADAPT)),
        default="yes",
        help="yes: adapt to the target; standardise: only standardise it by its own mean and "
        "deviation; no: neither. 'baryflow evaluate' shows which is best.",
    )
    output: Path = options.declare(options.model_output)
    keep_rows: bool = options.option(
        "--keep-rows", is_flag=True, help="Keep the rows in the model, for 'baryflow add-source'."
    )
    seed: int = options.declare(options.seed)
    jobs: int | None = options.declare(options.fit_jobs)
    dask: str | None = options.option(
        "--dask",
        metavar="ADDRESS|local",
        is_eager=True,
        help="Learn on Dask workers; FILES are folders of Parquet files, or URLs such as s3://bucket/folder.",
    )
    workers: int | None = options.declare(options.workers)
    checkpoint: str | None = options.option(
        "--checkpoint",
        metavar="FOLDER",
        help="With --dask: save progress here; after a kill the same command resumes.",
    )

    @property
    def stopped(self) -> str:
        """The message after Ctrl-C."""
        if self.checkpoint is None:
            return "interrupted"
        return "interrupted; finished work is kept, run the same command again to resume"


@click.command(
    cls=Command,
    example="baryflow fit pump_*.csv --label condition --domain-from-file --time time -o pumps.bary",
    docs="docs/howto/historian-export.md",
)
@labelled_files
@options.collect(FitOptions, "how")
def fit(labelled: LabelledFiles, how: FitOptions) -> None:
    """Learn labelled sources from FILES (CSV, NDJSON, Parquet, NPZ) and write one model.

    'baryflow run' follows a new target with it. Each domain in the files is a source. With --window,
    rows are raw signals, and features are made of them here and in 'run'.
    """
    model = OnlineDaDiL(
        classifier=list(how.classifier) or None,
        label_shift=not how.no_label_shift,
        adapt=ADAPT[how.adapt],
        keep_sources=how.keep_rows and how.dask is None,
        n_jobs=how.jobs,
        random_state=how.seed,
    )
    if how.dask is not None:
        with report_errors(how.stopped):
            refuse_options(_LOCAL_ONLY, "with --dask")
            labelled.check()
            _fit_on_dask(model, labelled, how)
        return
    with report_errors():
        if how.workers is not None or how.checkpoint is not None:
            raise InvalidInputError("--workers and --checkpoint need --dask")
        protect_inputs([*labelled.files, labelled.encoder], [how.output])
        labelled.check()
        _fit_here(model, labelled, how)


def _fit_here(model: OnlineDaDiL, labelled: LabelledFiles, how: FitOptions) -> None:
    table, signals = labelled.read()
    prior = parse_class_prior(how.class_prior, table.y)
    normal = labelled.normal_class
    if normal is not None:
        normal = find_class(normal, table.y, "--normal-class")
    check_and_describe(table, signals, labelled.label)
    with Line() as line, warnings.catch_warnings():
        # check_and_describe has named them.
        warnings.filterwarnings("ignore", "column .* rises from row to row")
        model.set_params(class_prior=prior, verbose=Progress(line))
        found: Any = model
        if signals is None:
            model.fit(InOrder(table.X, table.columns), table.y, sample_domain=table.domain)
        else:
            line.show(f"features of {count_of(len(signals.cut), 'window')}")
            found = fit_signals(
                signals.cut,
                signals.domain,
                signals.features,
                model,
                step=signals.step,
                normal=signals.normal,
            )
            model.feature_names_in_ = signals.features.get_feature_names_out()
    model.set_params(verbose=False)
    if normal is not None:
        model.normal_class_ = normal
    found.save(how.output)
    if signals is not None:
        echo(found.describe())
    _finish(model, how.output)


def _finish(model: OnlineDaDiL, output: Path) -> None:
    echo(model.report())
    echo(f"model: {output} ({file_size(output)})", err=True)


def _fit_on_dask(model: OnlineDaDiL, labelled: LabelledFiles, how: FitOptions) -> None:
    from baryflow.distributed.cluster import connect
    from baryflow.distributed.fitting import fit as learn_sources
    from baryflow.distributed.partitions import read_parquet

    parts = read_parquet(
        [str(file) for file in labelled.files],
        label=labelled.label,
        domain=labelled.domain,
        domain_from_file=labelled.domain_from_file,
        ignore=[*labelled.ignore, *([] if labelled.time is None else [labelled.time])],
    )
    normal = labelled.normal_class

    def describe(counts: Any) -> None:
        nonlocal normal
        line.end()
        echo(_describe_parts(parts, counts), err=True)
        model.set_params(class_prior=parse_class_prior(how.class_prior, counts.classes))
        if normal is not None:
            normal = find_class(normal, counts.classes, "--normal-class")

    with (
        stop_on_signals() as stop,
        Line() as line,
        connect(how.dask or "local", how.workers) as client,
    ):
        learn_sources(
            model,
            parts,
            checkpoint=how.checkpoint,
            client=client,
            progress=Progress(line, "fit", "partition", True, stop, how.stopped),
            on_count=describe,
        )
        if normal is not None:
            model.normal_class_ = normal
        model.save(how.output)
        line.end()
        _finish(model, how.output)


def _describe_parts(parts: Any, counts: Any) -> str:
    rows = counts.rows
    lines = describe_counts(
        f"{count_of(sum(rows), 'row')} in {count_of(len(parts.partitions), 'partition')}",
        [str(name) for name in parts.columns or range(parts.n_features)],
        _counted(counts.sources, [1 if name is None else name for name in counts.domains], rows),
        _counted(counts.classes.tolist(), counts.labels, rows),
    )
    lines += [f"left out: {name}: {why}" for name, why in parts.left_out.items()]
    return "\n".join(lines)


def _counted(names: list[Any], cells: list[Any], rows: list[int]) -> list[str]:
    """Return each name with the number of its rows; `cells` are the names of the counts in `rows`."""
    total = Counter[Any]()
    for name, n in zip(cells, rows, strict=True):
        total[name] += n
    return [f"{name} ({total[name]:,})" for name in names]
