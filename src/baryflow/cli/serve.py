"""``baryflow serve``: serve a model over HTTP."""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import click
from threadpoolctl import threadpool_limits

from baryflow.cli import options
from baryflow.cli.console import Interrupted, report_errors
from baryflow.cli.options import AlarmOptions, Command, Count
from baryflow.exceptions import InvalidInputError
from baryflow.streams import read_credentials

log = logging.getLogger("baryflow.cli.serve")


@dataclass(frozen=True)
class ServeOptions:
    """Where a service listens, who may use it, and its limits."""

    host: str = options.option("--host", default="127.0.0.1", help="Address to listen on.")
    port: int = options.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8000,
        help="Port to listen on; 0 picks a free one.",
    )
    checkpoint: str | None = options.option(
        "--checkpoint",
        metavar="FOLDER",
        help="Save the targets here; they survive restarts and kill -9.  [default: not saved]",
    )
    token_file: Path | None = options.option(
        "--token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File holding the required bearer token (or set BARYFLOW_TOKEN).",
    )
    read_token_file: Path | None = options.option(
        "--read-token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File holding a second token that may only read (or set BARYFLOW_READ_TOKEN).",
    )
    tls_cert: Path | None = options.option(
        "--tls-cert",
        type=options.existing_file,
        help="PEM file with the certificate chain; serve HTTPS instead of HTTP.",
    )
    tls_key: Path | None = options.option(
        "--tls-key",
        type=options.existing_file,
        help="PEM file with the unencrypted private key.  [default: in the file of --tls-cert]",
    )
    plaintext: bool = options.option(
        "--plaintext",
        is_flag=True,
        help="Let other computers send the token without TLS: in a trusted network, or behind a proxy.",
    )
    workers: int | None = options.option(
        "--workers",
        type=Count("number"),
        help="Worker processes, which share the targets; 1 uses a thread.  [default: one for each core]",
    )
    credentials: str | None = options.declare(options.credentials)
    batch_size: int = options.declare(options.batch_size)
    drift: str = options.declare(options.drift)
    in_memory: int = options.option(
        "--in-memory",
        type=Count("number"),
        default=256,
        help="Models kept in memory; others are written to disk.",
    )
    snapshot_every: int = options.option(
        "--snapshot-every",
        type=Count("batches"),
        default=1024,
        help="Commit targets after this many batches in the journal; bounds the replay after a kill.",
    )
    max_targets: int = options.option(
        "--max-targets",
        type=Count("number"),
        default=10_000,
        help="Targets, at most; others are refused.",
    )
    max_rows: int = options.option(
        "--max-rows", type=Count("rows"), default=4096, help="Rows of a request, at most."
    )
    max_body: int = options.option(
        "--max-body", type=Count("bytes"), default=8 * 2**20, help="Bytes of a request, at most."
    )
    target_metrics: int = options.option(
        "--target-metrics",
        type=Count("number", 0),
        default=0,
        help="Targets with their own series in /metrics, at most.",
    )


@click.command(
    cls=Command,
    example="baryflow serve pumps.bary --checkpoint state --port 8000",
    docs="docs/howto/serve.md",
)
@options.model_argument
@options.collect(ServeOptions, "how")
@options.alarm_options
@options.log_format
def serve(model: Path, alarm: AlarmOptions, how: ServeOptions, *, log_format: str) -> None:
    """Serve a fitted MODEL over HTTP: many targets, each followed with its own copy of it.

    The live page is at /, the API is described in /openapi.json.
    """
    with report_errors(log_format=log_format):
        from baryflow import service
        from baryflow.service.auth import check_exposure

        token = _read_token(how.token_file, "BARYFLOW_TOKEN")
        read_token = _read_token(how.read_token_file, "BARYFLOW_READ_TOKEN")
        check_exposure(how.host, token, read_token, encrypted=how.plaintext or how.tls_cert is not None)
        limits = service.Limits(
            body=how.max_body,
            buffered=max(8 * how.max_body, service.Limits.buffered),
            rows=how.max_rows,
            targets=how.max_targets,
            in_memory=how.in_memory,
            snapshot_every=how.snapshot_every,
            target_metrics=how.target_metrics,
        )
        fitted, _ = options.load_model(model, {})
        alarms = alarm.config(fitted)
        app = service.create_app(
            fitted,
            state_dir=how.checkpoint,
            token=token,
            read_token=read_token,
            limits=limits,
            batch_size=how.batch_size,
            drift=how.drift,
            alarms=alarms,
            workers=how.workers or service.usable_cores(),
        )
        # Not before: now no other process uses the folder, and workers have been forked.
        outputs = alarm.open(read_credentials("alarms", alarm.alarms, how.credentials))
        app.state.service.outbox = outputs
        if how.checkpoint is None:
            log.info("targets are lost when the service ends: add --checkpoint FOLDER to save them")
        # One thread multiplies matrices of this size faster than two.
        with threadpool_limits(limits=1):
            received = service.run(
                app,
                how.host,
                how.port,
                lambda url: log.info("listening at %s", url),
                tls_cert=how.tls_cert,
                tls_key=how.tls_key,
            )
        if received == signal.SIGINT:
            raise Interrupted("interrupted" + ("; all targets are saved" if how.checkpoint else ""))


def _read_token(path: Path | None, variable: str) -> str | None:
    """Return the token; it is no option, since other users can see command lines."""
    if path is not None:
        token = path.read_text(encoding="utf-8").strip()
        if not token:
            raise InvalidInputError(f"{path} is empty: write a token into it")
    else:
        token = os.environ.get(variable, "").strip()
    if not token.isascii():
        raise InvalidInputError("a token must be ASCII: it is sent in a header")
    return token or None
