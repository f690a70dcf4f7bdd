"""Commands that learn from labelled files: ``fit`` and ``evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from baryflow.cli.clusters import refuse_options
from baryflow.cli.histories import Histories, as_shares, describe_plan, of_files
from baryflow.cli.partitions import ALONE, Wish, fit_on_cluster
from baryflow.cli.words import Line, OutputFile, WholeNumber, keep_inputs, spoken
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.estimators.plots import new_figure
from baryflow.exceptions import InvalidInputError
from baryflow.features.labelled import evaluate_signals, fit_signals
from baryflow.model_selection import Evaluation
from baryflow.model_selection import evaluate as leave_out

#: Points by which two ways must differ for one to be called better.
_WORTH_TELLING = 0.01


@click.command()
@of_files
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
        wish = Wish(dask, workers, histories, usual, output, seed, checkpoint)
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
        click.echo(describe_plan(table, signals), err=True)
        with Line(log_every=30.0) as line:
            model = OnlineDaDiL(
                class_prior=prior,
                keep_sources=keep_rows,
                n_jobs=jobs,
                random_state=seed,
                verbose=lambda done, total, what: line.show(f"{done}/{total} steps  {what}"),
            )
            found: Any
            if signals is None:
                model.fit(table.X, table.y, sample_domain=table.domain)
                names, found = np.array(table.columns, dtype=object), model
            else:
                line.show(f"features of {len(signals.cut):,} windows")
                how = {"step": signals.step, "normal": signals.normal}
                found = fit_signals(signals.cut, signals.domain, signals.features, model, **how)
                names = signals.features.get_feature_names_out()
        model.set_params(verbose=False)
        model.feature_names_in_ = names
        found.save(output)
        if signals is not None:
            click.echo(found.describe())
        click.echo(model.report())
        click.echo(f"model: {output} ({output.stat().st_size / 1e6:.1f} MB)", err=True)


@click.command()
@of_files
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
@click.option("--figure", type=OutputFile(), help="Draw it (PNG, SVG or PDF).")
@click.option("--seed", type=WholeNumber(0), default=0, show_default=True)
@click.option("--jobs", type=WholeNumber(1), default=2, show_default=True, help="Processes.")
def evaluate(
    histories: Histories,
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
        model = OnlineDaDiL(keep_sources=False, random_state=seed)
        how: dict[str, Any] = {"order": order, "batch_size": batch, "n_jobs": jobs}
        if histories.window is None:
            table = histories.read()
            click.echo(describe_plan(table, times=len(np.unique(table.domain))), err=True)
            found = leave_out(model, table.X, table.y, table.domain, **how)
        else:
            table, signals = histories.read_windows()
            click.echo(describe_plan(table, signals, times=len(np.unique(table.domain))), err=True)
            n_normal = (normal_rows - histories.window) // signals.step + 1 if normal_rows else 0
            how |= {"normal": signals.normal, "n_normal": n_normal}
            found = evaluate_signals(signals.cut, signals.domain, signals.features, model, **how)
        click.echo(found.table())
        click.echo(f"\n{give_verdict(found)}")
        if figure is not None:
            found.plot().get_figure().savefig(figure, dpi=150)
            click.echo(f"figure: {figure}", err=True)


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
    last = "end" if np.isnan(mean.refined) else "refined"
    rivals = {"not adapting": "source", "standardising each domain by itself": "standardised_end"}
    ours = getattr(mean, last)
    best = max(rivals, key=lambda name: getattr(mean, rivals[name]))
    gain = ours - getattr(mean, rivals[best])
    often = sum(
        getattr(one, last) >= max(one.source, one.standardised_end) - _WORTH_TELLING for one in domains
    )
    where = f"on {often} of {len(domains)} domains adapting is at least as good as both"
    points = f"{100 * abs(gain):.1f} points"
    if gain > _WORTH_TELLING:
        return f"Verdict: adapting helps here, by {points} over {best} on the mean; {where}."
    if gain < -_WORTH_TELLING:
        return f"Verdict: {best} is better here than adapting, by {points} on the mean; {where}."
    return f"Verdict: adapting and {best} are about as good here on the mean; {where}."
