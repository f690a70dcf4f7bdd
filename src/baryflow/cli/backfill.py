"""``baryflow backfill``: follow many targets in a folder of Parquet files, on Dask."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from baryflow.cli import options
from baryflow.cli.console import CommandError, Line, Progress, report_errors, stop_on_signals
from baryflow.cli.options import Command
from baryflow.cli.run import balance
from baryflow.exceptions import InvalidInputError
from baryflow.runtime import Totals
from baryflow.validation import count_of

#: Failed targets that are named.
_NAMED = 5
_INTERRUPTED = "interrupted; finished work is kept, run the same command again to resume"
log = logging.getLogger("baryflow.cli.backfill")


@click.command(
    cls=Command,
    example="baryflow backfill pumps.bary rows/ --key pump -o predictions/ --checkpoint state/",
    docs="docs/howto/dask.md",
)
@options.model_argument
@click.argument("source", metavar="FOLDER")
@click.option("--key", required=True, metavar="COLUMN", help="Column that names the target of a row.")
@click.option("-o", "--output", required=True, metavar="FOLDER", help="Write the predictions here.")
@click.option(
    "--checkpoint",
    required=True,
    metavar="FOLDER",
    help="Save the state of each target here; the same command resumes, and reads files added since.",
)
@click.option("--events", metavar="FOLDER", help="Write the events of each target here, as NDJSON.")
@click.option(
    "--dask",
    metavar="ADDRESS|local",
    default="local",
    help="Address of a Dask scheduler, or local for workers on this machine.",
)
@options.workers
@options.time
@options.batch_size
@options.drift
@options.log_format
def backfill(
    model: Path,
    source: str,
    *,
    checkpoint: str,
    dask: str,
    workers: int | None,
    log_format: str,
    **how: Any,
) -> None:
    """Follow every target in a FOLDER of Parquet files with its own copy of a fitted MODEL.

    Folders can be URLs such as s3://bucket/folder. Unusable rows are in _quarantine under the output.
    """
    with report_errors(_INTERRUPTED, log_format):
        for option, folder in (
            ("-o", how["output"]),
            ("--checkpoint", checkpoint),
            ("--events", how["events"]),
        ):
            if folder == "-":
                raise InvalidInputError(f"backfill writes folders: name one, {option} FOLDER")
        fitted, _ = options.load_model(model, {"time": how["time"], "key": how["key"]})
        from baryflow.distributed.cluster import connect
        from baryflow.distributed.fleet import backfill as run_backfill

        with stop_on_signals() as stop, Line(log) as line:
            with connect(dask, workers) as client:
                found = run_backfill(
                    fitted,
                    source,
                    state=checkpoint,
                    client=client,
                    progress=Progress(line, "backfill", "row", True, stop, _INTERRUPTED),
                    **how,
                )
            totals = Totals(
                read=found.rows,
                used=found.used,
                predicted=found.predicted,
                quarantined=found.quarantined,
                drifts=found.drifts,
                unlearned=found.unlearned,
            )
            targets = count_of(found.targets, "target")
            log.info("%s", balance(totals, windows=found.predicted != found.used, of=f" of {targets}"))
            for name in list(found.failed)[:_NAMED]:
                fields = {"event": "failed", "key": name}
                log.error("%s: %s", name, found.failed[name], extra={"fields": fields})
            if len(found.failed) > _NAMED:
                log.error("... and %s more", f"{len(found.failed) - _NAMED:,}")
        if found.failed:
            raise CommandError(
                f"{len(found.failed):,} of {targets} not finished: run the same command again to resume"
            )
