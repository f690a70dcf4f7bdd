"""``baryflow forward``: send the rows of a stream to a service."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from baryflow.cli import options
from baryflow.cli.console import (
    ConsoleReporter,
    raise_if_interrupted,
    report_errors,
    stop_on_signals,
)
from baryflow.cli.options import Command, Count, StreamOptions, protect_inputs
from baryflow.cli.run import LARGEST_BATCH, fail_without_result, open_sinks
from baryflow.exceptions import InvalidInputError
from baryflow.runtime import Event, Store
from baryflow.streams import Batch, read_credentials
from baryflow.streams.urls import is_url
from baryflow.validation import count_of

#: Rows that are tried before any is sent.
_TRIED = 32
log = logging.getLogger("baryflow.cli.forward")


@dataclass(frozen=True)
class ForwardOptions:
    """What ``forward`` sends, and what it keeps."""

    model: Path | None = options.option(
        "--model",
        type=options.existing_file,
        help="Send the columns of this model.  [default: all but --time and --key]",
    )
    ca: Path | None = options.option(
        "--ca",
        type=options.existing_file,
        help="PEM file with certificates to trust for https:// (or set BARYFLOW_CA).",
    )
    quarantine: str | None = options.declare(options.quarantine)
    checkpoint: str | None = options.option(
        "--checkpoint",
        metavar="FOLDER",
        help="Save progress here; after a crash or kill -9 the same command resumes.",
    )
    batch_size: int = options.option(
        "--batch-size",
        type=Count("rows"),
        default=32,
        help="Rows of a request, at most; with --key, of all targets together, at least 1024.",
    )


@click.command(
    cls=Command,
    example="baryflow forward rows.csv http://127.0.0.1:8000/pump-7 --checkpoint sent",
    docs="docs/howto/serve.md",
)
@options.stream_options
@click.argument("url")
@options.collect(ForwardOptions, "how")
@options.log_format
def forward(stream: StreamOptions, url: str, how: ForwardOptions, *, log_format: str) -> None:
    """Send the rows of INPUT to the target at URL of a service ('baryflow serve'), which predicts them.

    URL is http://HOST:PORT/NAME, with the name of the target. With --key, rows go to the targets that
    their keys name, and NAME can be left out. The service counts a row once, however often it is sent.
    A token comes from BARYFLOW_TOKEN.
    """
    with (
        report_errors(log_format=log_format),
        fail_without_result(kept=how.quarantine is not None) as count,
        contextlib.ExitStack() as stack,
    ):
        from baryflow.client import forward as send
        from baryflow.client import open_target

        protect_inputs([how.model, how.ca, *stream.files], [how.quarantine])
        columns = None
        if how.model is not None:
            columns = options.load_model(how.model, {"time": stream.time, "key": stream.key})[1]
        elif is_url(stream.source):
            raise InvalidInputError(
                f"{stream.source.partition('?')[0]} has no header: add --model MODEL"
            )
        else:
            _try_first_rows(stream)
        rows = stream.open(columns, durable=how.checkpoint is not None)
        stack.callback(rows.close)
        stop = stack.enter_context(stop_on_signals())  # not before: Ctrl-C interrupts a slow connection
        if rows.shared:
            raise InvalidInputError("forward cannot share an input: leave 'group' out of the URL")
        client, name = open_target(url, stop, ca=how.ca)
        stack.callback(client.close)
        if not name and stream.key is None:
            raise InvalidInputError(
                f"{url} names no target: append its name (http://HOST:PORT/NAME), or add --key COLUMN"
            )
        kept = None
        if how.checkpoint is not None:
            kept = stack.enter_context(contextlib.closing(Store(how.checkpoint)))
            kept.keep_options(stream.shaping())
        credentials = read_credentials("output", [how.quarantine], stream.credentials)
        (aside,) = open_sinks([how.quarantine], kept, credentials)
        if aside is not None:
            stack.push(lambda error, *_: aside.close(finished=error is None and not stop()))
            aside.stop_when(stop)
        rows.stop_when(stop)
        sent = send(
            rows,
            client,
            name,
            keyed=stream.key is not None,
            columns=columns or rows.wanted,
            store=kept,
            read_size=how.batch_size if stream.key is None else max(how.batch_size, LARGEST_BATCH),
            timeout=stream.timeout,
            stop=stop,
            listen=partial(_report, ConsoleReporter(log, keeps_quarantine=aside is not None)),
            quarantine=aside,
        )
        total = count_of(sent.rows + sent.rejected, "row")
        text = f"{total} = {sent.rows:,} sent + {sent.rejected:,} quarantined"
        if sent.stopped:
            text += "; stopped before the service had answered for all rows that were read"
            text += ": the rest is in the checkpoint" if kept is not None else ""
        log.info("%s", text)
        if not stop():
            count(sent.rows + sent.rejected, sent.rejected)
        raise_if_interrupted(stop, how.checkpoint)


def _try_first_rows(stream: StreamOptions) -> None:
    """Refuse a file if none of its first rows can be sent, for instance because a column holds text."""
    if not Path(stream.source).is_file():
        return
    with contextlib.closing(replace(stream, tail=False).open(None)) as rows:
        batch = rows.read(_TRIED)
    if batch is not None and batch.rejected and not len(batch.rows):
        raise InvalidInputError(
            f"none of the first rows of {stream.source} can be sent: row {batch.rejected[0].position}: "
            f"{batch.rejected[0].reason.rstrip('.')}; add --model MODEL to send only its columns"
        )


def _report(reporter: ConsoleReporter, batch: Batch, _: list[dict[str, Any]]) -> None:
    """Report notices of the input, and quarantined rows."""
    for notice in batch.notices:
        reporter(Event("warning", int(max(batch.positions, default=0)), notice))
    for row in batch.rejected:
        reporter(Event.rejected(row, row.position))
