"""``baryflow evaluate``: test by leave-one-domain-out whether adapting helps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np

from baryflow.cli import options
from baryflow.cli.console import Line, Progress, echo, report_errors
from baryflow.cli.fit import classifier_option, label_shift_option
from baryflow.cli.labelled_files import (
    LabelledFiles,
    check_and_describe,
    labelled_files,
    parse_class_prior,
)
from baryflow.cli.options import FIGURES, Command, Count, OutputFile, find_class, protect_inputs
from baryflow.cli.recommendation import Recommendation
from baryflow.estimators._plots import new_figure
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features.labelled import evaluate_signals
from baryflow.model_selection import Evaluation
from baryflow.model_selection import evaluate as leave_out
from baryflow.model_selection.evaluation import EQUAL
from baryflow.validation import count_of

_TOLERANCE = "Differences of up to 1 point count as equal."


@click.command(
    cls=Command,
    example="baryflow evaluate pump_*.csv --label condition --domain-from-file --time time",
    docs="docs/guide/evaluation.md",
)
@labelled_files
@classifier_option
@label_shift_option
@click.option(
    "--class-proportions",
    multiple=True,
    metavar="CLASS=SHARE",
    help="Let the left-out domain flow with this share of a class, as in operation; repeatable.  "
    "[default: as in the files]",
)
@click.option(
    "--class-prior",
    multiple=True,
    metavar="CLASS=SHARE",
    help="Also try a class prior: the known share of a class; repeatable.  "
    "[default: those of --class-proportions]",
)
@click.option(
    "--baseline-rows",
    type=Count("rows", 0),
    default=0,
    help="Also try a baseline: this many rows known to be of --normal-class.",
)
@click.option(
    "--labels",
    type=Count("number", 0),
    default=0,
    help="Also try this many labels in all, of rows that the model asks for.",
)
@click.option(
    "--order",
    type=click.Choice(["as_is", "shuffled", "runs", "by_class"]),
    default="as_is",
    help="Order in which the rows of the left-out domain arrive; as_is is that of the file.",
)
@options.batch_size
@click.option(
    "--normal-rows",
    type=Count("rows"),
    help="With --window: rows of the left-out domain known to be of --normal-class.  [default: none]",
)
@click.option(
    "--labels-per-class",
    type=Count("number", 0),
    default=0,
    help="Also show what labels add after the stream: this many times the number of classes.",
)
@click.option(
    "--seeds",
    type=Count("number"),
    help="Streams of each left-out domain.  [default: 3 with --class-proportions, else 1]",
)
@click.option(
    "--scoring",
    type=click.Choice(["accuracy", "balanced_accuracy"]),
    default="accuracy",
    help="What to compare; balanced accuracy counts every class the same.",
)
@click.option(
    "--write",
    type=OutputFile(".toml"),
    help="Write the recommended settings here, for example to baryflow.toml.",
)
@click.option("--figure", type=OutputFile(*FIGURES), help="Draw the result here (PNG, SVG or PDF).")
@options.seed
@options.jobs
def evaluate(
    labelled: LabelledFiles,
    *,
    classifier: tuple[str, ...],
    no_label_shift: bool,
    class_proportions: tuple[str, ...],
    class_prior: tuple[str, ...],
    normal_rows: int | None,
    seeds: int | None,
    write: Path | None,
    figure: Path | None,
    seed: int,
    jobs: int,
    **how: Any,
) -> None:
    """Test on FILES whether adapting helps: leave out each domain in turn and stream its rows.

    Adapting is compared with plain classifiers: on rows as they are, and standardised by domain. The
    verdict ends with the settings to use, and says what knowing more about a target would buy.
    """
    with report_errors():
        labelled.check()
        _check_normal(how["baseline_rows"], normal_rows, labelled, [*class_proportions, *class_prior])
        if write is not None and write.exists():
            raise InvalidInputError(f"{write} exists already: name another file, or remove it")
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
        if how["baseline_rows"] and labelled.normal_class is not None:
            how["baseline_class"] = find_class(labelled.normal_class, table.y, "--normal-class")
        how |= {
            "class_proportions": parse_class_prior(class_proportions, table.y, "--class-proportions"),
            "class_prior": parse_class_prior(class_prior, table.y),
            "n_seeds": seeds or (3 if class_proportions else 1),
            "random_state": seed,
            "n_jobs": jobs,
        }
        check_and_describe(table, signals, labelled.label)
        with Line(every=0.0) as line, warnings.catch_warnings():
            # check_and_describe has named them.
            warnings.filterwarnings("ignore", "column .* rises from row to row")
            how["verbose"] = Progress(line, "evaluate", "domain")
            how["verbose"](0, len(domains), "the first takes longest")
            if signals is None:
                found = leave_out(
                    model, table.X, table.y, table.domain, feature_names=table.columns, **how
                )
            else:
                n_normal = (normal_rows - signals.cut.shape[1]) // signals.step + 1 if normal_rows else 0
                how |= {"normal": signals.normal, "n_normal": n_normal}
                found = evaluate_signals(signals.cut, signals.domain, signals.features, model, **how)
        echo(found.table())
        echo(f"\n{found.settings_table()}")
        options_of = Recommendation(found, labelled, classifier, no_label_shift, how["batch_size"])
        echo(f"\n{give_verdict(found)}\n\n{options_of.describe()}")
        if write is not None:
            write.write_text(options_of.as_toml(), encoding="utf-8")
            echo(f"settings: {write}", err=True)
        if how["labels_per_class"]:
            echo(f"\n{found.label_table()}\n\n{judge_labels(found)}")
        if figure is not None:
            found.plot().get_figure().savefig(figure, dpi=150)
            echo(f"figure: {figure}", err=True)


def _check_normal(
    baseline_rows: int, normal_rows: int | None, labelled: LabelledFiles, shares: list[str]
) -> None:
    """Refuse rows of normal operation that do not fit to the kind of rows, or have no class."""
    normal, window = labelled.normal_class, labelled.window
    if baseline_rows and window is not None:
        raise InvalidInputError("--baseline-rows is for plain rows; with --window use --normal-rows")
    if baseline_rows and normal is None and not shares:
        raise InvalidInputError("--baseline-rows needs --normal-class, the class of these rows")
    if normal is not None and not baseline_rows and window is None:
        raise InvalidInputError(
            "--normal-class is for --baseline-rows, or for windows of raw signals: --window ROWS"
        )
    if normal_rows is not None and normal is None:
        raise InvalidInputError("--normal-rows needs --normal-class")
    if normal_rows is not None and window is not None and normal_rows < window:
        raise InvalidInputError(
            f"--normal-rows {normal_rows} is less than one window of {window} rows: use more"
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
        getattr(one, figure) >= max(getattr(rival, figure) for rival in one.rivals()) - EQUAL
        for one in domains
    )
    every = count_of(len(domains), "domain")
    where = f"on {often} of {every} adapting is at least as good as every plain classifier"
    points = f"{100 * abs(gain):.1f} points"
    if gain > EQUAL:
        return f"adapting helps, by {points} over {best.name} on average; {where}"
    if gain < -EQUAL:
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
    if abs(gain) > EQUAL:
        text = (
            f"{n} of rows {best} {'add' if gain > 0 else 'cost'} {100 * abs(gain):.1f} points on average"
        )
    if beaten > EQUAL:
        text += f", and a plain classifier with labels is {100 * beaten:.1f} points better"
    return f"Verdict: {text}. {_TOLERANCE}"
