"""Commands that learn from labelled files: ``fit`` and ``evaluate``."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

import click
import numpy as np

from baryflow.cli.backfill import refuse_options
from baryflow.cli.console import (
    FIGURES,
    Line,
    OutputFile,
    WholeNumber,
    bar,
    duration,
    echo,
    keep_inputs,
    spoken,
)
from baryflow.cli.fit_dask import ALONE, Wish, fit_on_cluster
from baryflow.cli.labelled_files import (
    Histories,
    Signals,
    as_shares,
    check_rows,
    describe_plan,
    of_files,
)
from baryflow.estimators._classifiers import CLASSIFIERS
from baryflow.estimators._plots import new_figure
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features.labelled import evaluate_signals, fit_signals
from baryflow.model_selection import Evaluation
from baryflow.model_selection import evaluate as leave_out
from baryflow.streams import Table
from baryflow.validation import count_of

#: Points by which two ways must differ for one to be called better.
_WORTH_TELLING = 0.01


of_classifiers = click.option(
    "--classifier",
    multiple=True,
    type=click.Choice(list(CLASSIFIERS)),
    help="Plain classifier to use; repeat for several. 'linear' alone is the fastest.  [default: all]",
)


@click.command()
@of_files
@of_classifiers
@click.option("--usual", multiple=True, metavar="CLASS=SHARE", help="What you know of the target's mix.")
@click.option("-o", "--output", required=True, type=OutputFile(".bary"), help="The model, a .bary file.")
@click.option("--keep-rows", is_flag=True, help="Keep the rows in the file, to add sources later.")
@click.option("--seed", type=WholeNumber(0), default=0, show_default=True)
@click.option("--jobs", type=WholeNumber(1), default=2, show_default=True, help="Processes.")
@click.option(
    "--dask", metavar="ADDRESS|local", is_eager=True,
    help="FILES are folders of Parquet, or URLs such as s3://bucket/folder: learn on a cluster.",
)  # fmt: skip
@click.option("--workers", type=WholeNumber(1), help="Processes for --dask local.  [default: all cores]")
@click.option(
    "--checkpoint", metavar="FOLDER", help="With --dask: call it again after a kill, it goes on."
)
def fit(
    histories: Histories,
    *,
    classifier: tuple[str, ...],
    usual: tuple[str, ...],
    output: Path,
    keep_rows: bool,
    seed: int,
    jobs: int,
    dask: str | None,
    workers: int | None,
    checkpoint: str | None,
) -> None:
    """Learn labelled histories from FILES (CSV, NDJSON, Parquet, NPZ) into one model.

    The domains may be in a column (--domain) or in files of their own (--domain-from-file). Afterwards
    'baryflow run' follows a new machine with the model. If rows are raw signals (--window), features
    are made of them here as there.
    """
    if dask is not None:
        chosen = list(classifier) or None
        wish = Wish(dask, workers, histories, chosen, usual, output, seed, checkpoint)
        with spoken():
            refuse_options(click.get_current_context(), ALONE)
            fit_on_cluster(wish)
        return
    with spoken():
        if workers is not None or checkpoint is not None:
            raise InvalidInputError("--workers and --checkpoint are for --dask")
        keep_inputs([*histories.files, histories.encoder], [output])
        histories.check()
        signals = None
        if histories.window is None:
            table = histories.read()
        else:
            table, signals = histories.read_windows()
        prior = as_shares(usual, table.y)
        _describe(table, signals, histories)
        with Line(log_every=30.0) as line:
            model = OnlineDaDiL(
                classifier=list(classifier) or None,
                class_prior=prior,
                keep_sources=keep_rows,
                n_jobs=jobs,
                random_state=seed,
                verbose=lambda done, total, what: line.show(
                    f"fit {bar(done / total)}  {done} of {count_of(total, 'step')}: {what}"
                ),
            )
            found: Any
            if signals is None:
                model.fit(table.X, table.y, sample_domain=table.domain)
                names, found = np.array(table.columns, dtype=object), model
            else:
                line.show(f"features of {count_of(len(signals.cut), 'window')}")
                how = {"step": signals.step, "normal": signals.normal}
                found = fit_signals(signals.cut, signals.domain, signals.features, model, **how)
                names = signals.features.get_feature_names_out()
        model.set_params(verbose=False)
        model.feature_names_in_ = names
        found.save(output)
        if signals is not None:
            echo(found.describe())
        echo(model.report())
        echo(f"model: {output} ({output.stat().st_size / 1e6:.1f} MB)", err=True)


@click.command()
@of_files
@of_classifiers
@click.option(
    "--order",
    type=click.Choice(["as_is", "shuffled", "runs", "by_class"]),
    default="as_is",
    show_default=True,
    help="In which the rows of a domain flow: as they stand in the file, or otherwise.",
)
@click.option("--batch", type=WholeNumber(1), default=32, show_default=True, help="Rows at a time.")
@click.option(
    "--normal-rows",
    type=WholeNumber(1),
    metavar="ROWS",
    help="With --normal: so many normal rows of the domain left out are known to be normal.",
)
@click.option("--figure", type=OutputFile(*FIGURES), help="Draw it (PNG, SVG or PDF).")
@click.option("--seed", type=WholeNumber(0), default=0, show_default=True)
@click.option("--jobs", type=WholeNumber(1), default=2, show_default=True, help="Processes.")
def evaluate(
    histories: Histories,
    *,
    classifier: tuple[str, ...],
    order: str,
    batch: int,
    normal_rows: int | None,
    figure: Path | None,
    seed: int,
    jobs: int,
) -> None:
    """Would it help on your data? Each domain in FILES is left out in turn and flows past as a stream.

    Beside it stand a classifier that does not adapt, and one that standardises each domain by itself.
    """
    with spoken():
        histories.check()
        if normal_rows is not None:
            _check_normal_rows(normal_rows, histories)
        if figure is not None:
            keep_inputs([*histories.files, histories.encoder], [figure])
            new_figure(1.0, 1.0)  # if matplotlib is missing, this says so before the work
        model = OnlineDaDiL(classifier=list(classifier) or None, keep_sources=False, random_state=seed)
        signals = None
        if histories.window is None:
            table = histories.read()
        else:
            table, signals = histories.read_windows()
        domains = np.unique(table.domain).tolist()
        if len(domains) < 2:
            raise InvalidInputError(
                f"evaluate leaves out one domain at a time, so it needs two or more: all rows are of "
                f"{domains[0]!r} (see --domain and --domain-from-file)"
            )
        _describe(table, signals, histories)
        with Line() as line:
            progress = _Domains(line, len(domains), jobs)
            how: dict[str, Any] = {
                "order": order,
                "batch_size": batch,
                "n_jobs": jobs,
                "verbose": progress,
            }
            if signals is None:
                found = leave_out(model, table.X, table.y, table.domain, **how)
            else:
                n_normal = (normal_rows - signals.cut.shape[1]) // signals.step + 1 if normal_rows else 0
                how |= {"normal": signals.normal, "n_normal": n_normal}
                found = evaluate_signals(signals.cut, signals.domain, signals.features, model, **how)
        echo(found.table())
        echo(f"\n{give_verdict(found)}")
        if figure is not None:
            found.plot().get_figure().savefig(figure, dpi=150)
            echo(f"figure: {figure}", err=True)


def _describe(table: Table, signals: Signals | None, histories: Histories) -> None:
    """Print what was read, and what is doubtful about it."""
    doubts = check_rows(table, histories.label)
    echo(describe_plan(table, signals), err=True)
    for doubt in doubts:
        echo(f"warning: {doubt}", err=True)


class _Domains:
    """Shows how many domains are evaluated, and how long the others take at the pace measured so far."""

    def __init__(self, line: Line, total: int, jobs: int) -> None:
        self._line, self._jobs, self._began = line, jobs, monotonic()
        line.show(f"evaluate {bar(0.0)}  0 of {count_of(total, 'domain')}")

    def __call__(self, done: int, total: int, what: str) -> None:
        # Domains that are worked on at the same time end at about the same time.
        rounds, ended = -(-total // self._jobs), -(-done // self._jobs)
        left = (monotonic() - self._began) * (rounds - ended) / ended
        ending = f", {duration(left)} left" if done < total else ""
        self._line.step(
            f"evaluate {bar(done / total)}  {done} of {count_of(total, 'domain')}: {what}{ending}"
        )


def _check_normal_rows(n_rows: int, histories: Histories) -> None:
    if histories.normal is None:
        raise InvalidInputError("--normal-rows needs --normal: say which class is normal operation")
    if histories.window is not None and n_rows < histories.window:
        raise InvalidInputError(
            f"--normal-rows {n_rows} is less than one window of {histories.window} rows: take more"
        )


def give_verdict(found: Evaluation) -> str:
    """Say in a sentence whether adapting would help, also where something simpler does better."""
    mean, domains = found.summary(), found.by_domain()
    rivals = {"not adapting": "source", "standardising each domain by itself": "standardised_end"}
    ours = mean.end
    best = max(rivals, key=lambda name: getattr(mean, rivals[name]))
    gain = ours - getattr(mean, rivals[best])
    often = sum(one.end >= max(one.source, one.standardised_end) - _WORTH_TELLING for one in domains)
    where = f"on {often} of {len(domains)} domains adapting is at least as good as both"
    points = f"{100 * abs(gain):.1f} points"
    if gain > _WORTH_TELLING:
        return f"Verdict: adapting helps here, by {points} over {best} on the mean; {where}."
    if gain < -_WORTH_TELLING:
        return f"Verdict: {best} is better here than adapting, by {points} on the mean; {where}."
    return f"Verdict: adapting and {best} are about as good here on the mean; {where}."
