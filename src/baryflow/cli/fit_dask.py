"""``fit --dask``: labelled histories in folders of Parquet files, on many workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baryflow.cli.backfill import Bar
from baryflow.cli.console import Line, echo, spoken
from baryflow.cli.labelled_files import Histories, as_shares, list_some
from baryflow.cli.run_stream import heed_signals
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.validation import Floats, count_of

if TYPE_CHECKING:  # Dask need not be there
    from baryflow.distributed.fitting.partitions import Parts
    from baryflow.distributed.fitting.passes import CellStatistics, SourceCatalog

#: Options of ``fit`` that are for one machine, and what to say about them.
ALONE = {
    "window": "workers do not make features of raw signals: make them first",
    "step": "workers do not make features of raw signals: make them first",
    "normal": "workers do not make features of raw signals: make them first",
    "encoder": "workers do not make features of raw signals: make them first",
    "keep_rows": "rows stay where they are",
    "jobs": "a cluster has as many processes as it has (--workers for 'local')",
}
#: Seconds between two lines in a log.
_LOG_EVERY = 30.0


@dataclass(frozen=True)
class Wish:
    """What is to be learned on a cluster.

    Attributes
    ----------
    address : str
        Of a scheduler, or ``"local"``.
    workers : int or None
    histories : Histories
    classifier : list of str or None
    usual : tuple of str
    output : Path
    seed : int
    checkpoint : str or None
    """

    address: str
    workers: int | None
    histories: Histories
    classifier: list[str] | None
    usual: tuple[str, ...]
    output: Path
    seed: int
    checkpoint: str | None


def fit_on_cluster(wish: Wish) -> None:
    """Learn from folders of Parquet files, telling how far it is.

    Parameters
    ----------
    wish : Wish

    Raises
    ------
    InvalidInputError
        If rows or options do not fit.
    """
    histories = wish.histories
    histories.check()
    from baryflow.distributed.cluster import connect
    from baryflow.distributed.fitting.fit import Fit
    from baryflow.distributed.fitting.partitions import read_parquet

    stopped = "interrupted"
    if wish.checkpoint is not None:
        stopped += "; what is done is kept, call it again to go on"
    parts = read_parquet(
        [str(file) for file in histories.files],
        label=histories.label,
        domain=histories.domain,
        domain_from_file=histories.domain_from_file,
        ignore=[*histories.ignore, *([] if histories.time is None else [histories.time])],
    )
    with (
        heed_signals() as stop,
        spoken(stopped),
        Line(log_every=_LOG_EVERY) as line,
        connect(wish.address, wish.workers) as client,
    ):
        model = OnlineDaDiL(classifier=wish.classifier, keep_sources=False, random_state=wish.seed)
        bar = Bar(line, stop, "steps", stopped)
        fit = Fit(model, parts, checkpoint=wish.checkpoint, client=client, progress=bar)
        census, roll = fit.count()
        line.say(describe(parts, census, roll))
        model.set_params(class_prior=as_shares(wish.usual, roll.classes))
        fit.learn()
        model.save(wish.output)
        echo(model.report())
        line.say(f"model: {wish.output} ({wish.output.stat().st_size / 1e6:.1f} MB)")


def describe(parts: Parts, census: CellStatistics, roll: SourceCatalog) -> str:
    """Say what there is to learn from.

    Parameters
    ----------
    parts : Parts
    census : CellStatistics
    roll : SourceCatalog

    Returns
    -------
    str
    """
    counts = roll.table.counts
    domains = _counted(roll.sources, counts.sum(axis=1))
    classes = _counted(roll.classes.tolist(), counts.sum(axis=0))
    columns = list_some([str(name) for name in parts.columns or range(parts.n_features)])
    pieces = f"{count_of(int(counts.sum()), 'row')} in {count_of(len(parts.partitions), 'partition')}"
    lines = [
        f"{pieces}, {count_of(parts.n_features, 'column')}: {columns}",
        f"{count_of(len(domains), 'domain')}: {list_some(domains)}",
        f"{count_of(len(classes), 'class', 'classes')}: {list_some(classes)}",
    ]
    lines += [f"left out: {name}: {why}" for name, why in parts.left_out.items()]
    lines += [f"{number:,} rows {what} and are not used" for what, number in census.unused.items()]
    return "\n".join(lines)


def _counted(names: list[Any], counts: Floats) -> list[str]:
    return [f"{name} ({int(n):,})" for name, n in zip(names, counts.tolist(), strict=True)]
