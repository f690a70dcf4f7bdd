"""``baryflow predict``: label rows with a model that learns nothing from them."""

from __future__ import annotations

import contextlib
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from baryflow.cli import options
from baryflow.cli.console import ConsoleReporter, report_errors
from baryflow.cli.options import Command, Count, protect_inputs
from baryflow.cli.run import balance, fail_without_result, open_sinks
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalModel
from baryflow.runtime import Event, SessionConfig, Totals
from baryflow.runtime.session import by_key
from baryflow.streams import open_source
from baryflow.streams.urls import is_url

log = logging.getLogger("baryflow.cli.predict")


@click.command(
    cls=Command,
    example="baryflow predict pump_e.bary pump_e.csv --time time -o labels.csv",
    docs="docs/howto/historian-export.md",
)
@options.model_argument
@click.argument("source", metavar="INPUT")
@click.option(
    "-o",
    "--output",
    default="-",
    metavar="FILE",
    help="Predictions: a .ndjson, .csv or .parquet file, or - for standard output (NDJSON).",
)
@options.quarantine
@options.time
@click.option("--batch-size", type=Count("rows"), default=1024, help="Rows held in memory at a time.")
def predict(
    model: Path, source: str, *, output: str, quarantine: str | None, time: str | None, batch_size: int
) -> None:
    """Label the rows of INPUT, a file or - for standard input, with a fitted or adapted MODEL.

    The model does not change. Use 'baryflow run' to adapt it to the rows.
    """
    with (
        report_errors(),
        fail_without_result(kept=quarantine is not None) as count,
        contextlib.ExitStack() as stack,
    ):
        if is_url(source) or is_url(output):
            raise InvalidInputError("predict reads and writes files: use 'baryflow run' for URLs")
        partial = [f"{output}.partial.ndjson"] if output.endswith(".parquet") else []
        protect_inputs([model, source], [output, quarantine, *partial])
        fitted, columns = options.load_model(model, {"time": time})
        rows = open_source(source, columns=columns, time=time)
        stack.callback(rows.close)
        sinks = open_sinks([output, None, quarantine], None, {})
        for sink in filter(None, sinks):
            stack.push(lambda error, *_, sink=sink: sink.close(finished=error is None))
        totals = label_rows(fitted, rows, sinks[0], sinks[2], batch_size)
        log.info("%s", balance(totals, windows=isinstance(fitted, SignalModel)))
        count(totals.read, totals.quarantined)


def label_rows(fitted: Any, rows: Any, predictions: Any, quarantine: Any, batch_size: int) -> Totals:
    """Predict the rows of a source batch by batch, and write predictions and unusable rows."""
    # A session learns once a batch is full: with one this large it never does.
    session = SessionConfig(fitted, sys.maxsize, "off").begin()
    totals, report = Totals(), ConsoleReporter(log, keeps_quarantine=quarantine is not None)
    while (batch := rows.read(batch_size)) is not None:
        rejected = list(batch.rejected)
        for _, some in by_key(batch):
            result = session.apply(some)
            session.waiting = session.waiting.pick([])  # rows to learn from
            rejected += result.rejected
            totals.predicted += len(result.records)
            if result.records:
                predictions.write(result.records)
        rejected.sort(key=lambda row: row.position)
        for row in rejected:
            report(Event.rejected(row, row.position))
        totals.batches += 1
        totals.read += len(batch.rows) + len(batch.rejected)
        totals.quarantined += len(rejected)
        if quarantine is not None and rejected:
            records = [asdict(row) for row in rejected]
            quarantine.write([{k: v for k, v in one.items() if v or k != "offset"} for one in records])
    totals.used = totals.read - totals.quarantined
    return totals
