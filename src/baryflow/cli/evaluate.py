"""``baryflow evaluate``: test by leave-one-domain-out whether adapting helps."""

from __future__ import annotations

import warnings
from pathlib import Path
from time import monotonic
from typing import Any

import click
import numpy as np

from baryflow.cli import options
from baryflow.cli.console import Line, bar, duration, echo, report_errors
from baryflow.cli.fit import classifier_option, label_shift_option
from baryflow.cli.labelled_files import LabelledFiles, check_and_describe, labelled_files
from baryflow.cli.options import FIGURES, Command, OutputFile, protect_inputs
from baryflow.estimators._plots import new_figure
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features.labelled import evaluate_signals
from baryflow.model_selection import Evaluation
from baryflow.model_selection import evaluate as leave_out
from baryflow.validation import count_of

#: Difference in accuracy up to which two methods count as equal; verdicts state it.
_NOTICEABLE = 0.01
_TOLERANCE = "Differences of up to 1 point count as equal."


@click.command(
    cls=Command,
    example="baryflow evaluate pump_*.csv --label condition --domain-from-file --time time",
    docs="docs/howto/historian-export.md",
)
@labelled_files
@classifier_option
@label_shift_option
@click.option(
    "--order",
    type=click.Choice(["as_is", "shuffled", "runs", "by_class"]),
    default="as_is",
    help="Order in which the rows of the left-out domain arrive; as_is is that of the file.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=32,
    metavar="ROWS",
    help="Rows the model learns from at a time.",
)
@click.option(
    "--normal-rows",
    type=click.IntRange(1),
    metavar="ROWS",
    help="With --normal-class: rows of normal operation known of the left-out domain.  [default: none]",
)
@click.option(
    "--labels-per-class",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Also show what labels of this many rows for each class of the left-out domain would buy.",
)
@click.option("--figure", type=OutputFile(*FIGURES), help="Draw the result here (PNG, SVG or PDF).")
@options.seed
@options.jobs
def evaluate(
    labelled: LabelledFiles,
    *,
    classifier: tuple[str, ...],
    no_label_shift: bool,
    order: str,
    batch_size: int,
    normal_rows: int | None,
    labels_per_class: int | None,
    figure: Path | None,
    seed: int,
    jobs: int,
) -> None:
    """Test on FILES whether adapting helps: leave out each domain in turn and stream its rows.

    Adapting is compared with plain classifiers: on rows as they are, and standardised by domain.
    """
    with report_errors():
        labelled.check()
        if labelled.normal_class is not None and labelled.window is None:
            raise InvalidInputError("--normal-class is for windows of raw signals: add --window ROWS")
        if normal_rows is not None:
            _check_normal_rows(normal_rows, labelled)
        if figure is not None:
            protect_inputs([*labelled.files, labelled.encoder], [figure])
            new_figure(1.0, 1.0)  # raises if matplotlib is missing, before the work
        model = OnlineDaDiL(
            classifier=list(classifier) or None,
            label_shift=not no_label_shift,
            keep_sources=False,
            random_state=seed,
        )
        table, signals = labelled.read()
        domains = np.unique(table.domain).tolist()
        if len(domains) < 2:
            raise InvalidInputError(
                f"evaluate leaves out one domain at a time and needs two or more; all rows are of "
                f"{domains[0]!r} (see --domain and --domain-from-file)"
            )
        check_and_describe(table, signals, labelled.label)
        with Line() as line, warnings.catch_warnings():
            # check_and_describe has named them.
            warnings.filterwarnings("ignore", "column .* rises from row to row")
            how: dict[str, Any] = {
                "order": order,
                "batch_size": batch_size,
                "labels_per_class": labels_per_class or 0,
                "n_jobs": jobs,
                "verbose": _Progress(line, len(domains), jobs),
            }
            if signals is None:
                found = leave_out(
                    model, table.X, table.y, table.domain, feature_names=table.columns, **how
                )
            else:
                n_normal = (normal_rows - signals.cut.shape[1]) // signals.step + 1 if normal_rows else 0
                how |= {"normal": signals.normal, "n_normal": n_normal}
                found = evaluate_signals(signals.cut, signals.domain, signals.features, model, **how)
        echo(found.table())
        echo(f"\n{give_verdict(found)}")
        if labels_per_class is not None:
            echo(f"\n{found.label_table()}\n\n{judge_labels(found)}")
        if figure is not None:
            found.plot().get_figure().savefig(figure, dpi=150)
            echo(f"figure: {figure}", err=True)


class _Progress:
    """Show how many domains are done, and how long the others take at this rate."""

    def __init__(self, line: Line, total: int, jobs: int) -> None:
        self._line, self._jobs, self._began = line, jobs, monotonic()
        line.show(f"evaluate {bar(0.0)}  0 of {count_of(total, 'domain')}")

    def __call__(self, done: int, total: int, what: str) -> None:
        # Domains that are processed in parallel finish at about the same time.
        rounds, ended = -(-total // self._jobs), -(-done // self._jobs)
        left = (monotonic() - self._began) * (rounds - ended) / ended
        ending = f", {duration(left)} left" if done < total else ""
        self._line.step(
            f"evaluate {bar(done / total)}  {done} of {count_of(total, 'domain')}: {what}{ending}"
        )


def _check_normal_rows(n_rows: int, labelled: LabelledFiles) -> None:
    if labelled.normal_class is None:
        raise InvalidInputError("--normal-rows needs --normal-class")
    if labelled.window is not None and n_rows < labelled.window:
        raise InvalidInputError(
            f"--normal-rows {n_rows} is less than one window of {labelled.window} rows: use more"
        )


def give_verdict(found: Evaluation) -> str:
    """Return whether adapting helps, also if a plain classifier is better.

    First while rows flow, which is what ``run`` delivers, then after the stream.
    """
    if np.isnan(found.summary().flowing):
        return f"Verdict: {_compare(found, 'end')}. {_TOLERANCE}"
    flowing, end = _compare(found, "flowing"), _compare(found, "end")
    return f"Verdict: while rows flow, {flowing}. After the stream, {end}. {_TOLERANCE}"


def _compare(found: Evaluation, figure: str) -> str:
    """Return how adapting compares with the plain classifier that is best by a figure."""
    mean, domains = found.summary(), found.by_domain()
    best = max(mean.rivals(), key=lambda rival: getattr(rival, figure))
    gain = getattr(mean, figure) - getattr(best, figure)
    often = sum(
        getattr(one, figure) >= max(getattr(rival, figure) for rival in one.rivals()) - _NOTICEABLE
        for one in domains
    )
    every = count_of(len(domains), "domain")
    where = f"on {often} of {every} adapting is at least as good as every plain classifier"
    points = f"{100 * abs(gain):.1f} points"
    if gain > _NOTICEABLE:
        return f"adapting helps, by {points} over {best.name} on average; {where}"
    if gain < -_NOTICEABLE:
        return f"{best.name} is better than adapting, by {points} on average; {where}"
    return f"adapting and {best.name} are about equally good on average; {where}"


def judge_labels(found: Evaluation) -> str:
    """Return a sentence on what labels buy, also if they buy nothing or a plain classifier is better."""
    labels = found.summary().labels
    if labels is None:
        raise ValueError("the evaluation has no labels")
    ways = {"drawn at random": labels.random, "that the model asks for": labels.queried}
    best = max(ways, key=lambda name: ways[name])
    gain, beaten = ways[best] - labels.without, labels.plain - ways[best]
    n = count_of(labels.n_labels, "label")
    text = f"{n} of rows {best} make no noticeable difference on average"
    if abs(gain) > _NOTICEABLE:
        text = (
            f"{n} of rows {best} {'add' if gain > 0 else 'cost'} {100 * abs(gain):.1f} points on average"
        )
    if beaten > _NOTICEABLE:
        text += f", and a plain classifier with labels is {100 * beaten:.1f} points better"
    return f"Verdict: {text}. {_TOLERANCE}"
