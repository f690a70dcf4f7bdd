"""All that labelled sources teach: their model, whom to believe, and what is usual."""

from __future__ import annotations

from dataclasses import dataclass

from baryflow.estimators.adaptation import EVEN, Options
from baryflow.estimators.decision import Decision, weights_of
from baryflow.estimators.novelty import Novelty
from baryflow.estimators.rehearsal import Progress, rehearse
from baryflow.estimators.source_model import SourceModel
from baryflow.estimators.source_table import SourceTable
from baryflow.estimators.sources import LabelledRows, SourceOptions, learn_sources
from baryflow.validation import Floats, Integers


@dataclass(frozen=True, eq=False)
class Learned:
    """What is known before the first row of a target; many targets can share it."""

    model: SourceModel
    decision: Decision
    novelty: Novelty


def learn(
    rows: list[Floats],
    codes: list[Integers],
    n_classes: int,
    source_options: SourceOptions,
    options: Options,
    *,
    predictor: str,
    rehearsing: bool,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Learned:
    """Learn from complete rows, a list entry for each source.

    Parameters
    ----------
    predictor : {"auto", "combined", "map", "plan", "source"}
        Who predicts; ``"auto"`` leaves it to a rehearsal.
    rehearsing : bool
        Play sources as targets to see whom to believe; otherwise the predictor is believed at once.
    n_jobs, progress
        As in :func:`~baryflow.estimators.rehearsal.rehearse`.
    """
    weights = weights_of(predictor)
    scatter = None
    if source_options.view:
        scatter = LabelledRows(rows, codes).measure(SourceTable.of(rows, codes, n_classes))
    model = learn_sources(rows, codes, n_classes, source_options, scatter)
    if predictor == "source":
        decision = Decision(reason="chosen by you: predictor is 'source'")
    elif not rehearsing:
        decision = Decision.fixed(weights or EVEN, "chosen by you: rehearse is False")
    else:
        decision = rehearse(
            rows,
            codes,
            n_classes,
            source_options,
            options,
            weights,
            scatter=scatter,
            n_jobs=n_jobs,
            progress=progress,
        )
    return Learned(model, decision, Novelty.learn(model, rows, decision))
