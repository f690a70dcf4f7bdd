"""``baryflow serve``: serve a model over HTTP."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import click
from threadpoolctl import threadpool_limits

from baryflow.cli import options
from baryflow.cli.console import Interrupted, report_errors
from baryflow.cli.options import AlarmOptions, Command, Count
from baryflow.exceptions import InvalidInputError
from baryflow.streams import read_credentials

log = logging.getLogger("baryflow.cli.serve")


@click.command(
    cls=Command,
    example="baryflow serve pumps.bary --checkpoint state --port 8000",
    docs="docs/howto/serve.md",
)
@options.model_argument
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, help="Port to listen on; 0 picks a free one."
)
@click.option(
    "--checkpoint",
    metavar="FOLDER",
    help="Save the targets here; they survive restarts and kill -9.  [default: not saved]",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File holding the required bearer token (or set BARYFLOW_TOKEN).",
)
@click.option(
    "--read-token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File holding a second token that may only read (or set BARYFLOW_READ_TOKEN).",
)
@click.option(
    "--tls-cert",
    type=options.existing_file,
    help="PEM file with the certificate chain; serve HTTPS instead of HTTP.",
)
@click.option(
    "--tls-key",
    type=options.existing_file,
    help="PEM file with the unencrypted private key.  [default: in the file of --tls-cert]",
)
@click.option(
    "--plaintext",
    is_flag=True,
    help="Let other computers send the token without TLS: in a trusted network, or behind a proxy.",
)
@click.option(
    "--workers",
    type=Count("number"),
    help="Worker processes, which share the targets; 1 uses a thread.  [default: one for each core]",
)
@options.alarm_options
@options.credentials
@options.batch_size
@options.drift
@click.option(
    "--in-memory",
    type=Count("number"),
    default=256,
    help="Models kept in memory; others are written to disk.",
)
@click.option(
    "--snapshot-every",
    type=Count("batches"),
    default=1024,
    help="Commit targets after this many batches in the journal; bounds the replay after a kill.",
)
@click.option(
    "--max-targets", type=Count("number"), default=10_000, help="Targets, at most; others are refused."
)
@click.option("--max-rows", type=Count("rows"), default=4096, help="Rows of a request, at most.")
@click.option("--max-body", type=Count("bytes"), default=8 * 2**20, help="Bytes of a request, at most.")
@click.option(
    "--target-metrics",
    type=Count("number", 0),
    default=0,
    help="Targets with their own series in /metrics, at most.",
)
@options.log_format
def serve(
    model: Path,
    alarm: AlarmOptions,
    *,
    host: str,
    port: int,
    checkpoint: str | None,
    credentials: str | None,
    token_file: Path | None,
    read_token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    plaintext: bool,
    workers: int | None,
    batch_size: int,
    drift: str,
    in_memory: int,
    snapshot_every: int,
    max_targets: int,
    max_rows: int,
    max_body: int,
    target_metrics: int,
    log_format: str,
) -> None:
    """Serve a fitted MODEL over HTTP: many targets, each followed with its own copy of it.

    The live page is at /, the API is described in /openapi.json.
    """
    with report_errors(log_format=log_format):
        from baryflow import service
        from baryflow.service.auth import check_exposure

        token = _read_token(token_file, "BARYFLOW_TOKEN")
        read_token = _read_token(read_token_file, "BARYFLOW_READ_TOKEN")
        check_exposure(host, token, read_token, encrypted=plaintext or tls_cert is not None)
        limits = service.Limits(
            body=max_body,
            buffered=max(8 * max_body, service.Limits.buffered),
            rows=max_rows,
            targets=max_targets,
            in_memory=in_memory,
            snapshot_every=snapshot_every,
            target_metrics=target_metrics,
        )
        fitted, _ = options.load_model(model, {})
        alarms = alarm.config(fitted)
        app = service.create_app(
            fitted,
            state_dir=checkpoint,
            token=token,
            read_token=read_token,
            limits=limits,
            batch_size=batch_size,
            drift=drift,
            alarms=alarms,
            workers=workers or service.usable_cores(),
        )
        # Not before: now no other process uses the folder, and workers have been forked.
        outputs = alarm.open(read_credentials("alarms", alarm.alarms, credentials))
        app.state.service.outbox = outputs
        if checkpoint is None:
            log.info("targets are lost when the service ends: add --checkpoint FOLDER to save them")
        # One thread multiplies matrices of this size faster than two.
        with threadpool_limits(limits=1):
            received = service.run(
                app,
                host,
                port,
                lambda url: log.info("listening at %s", url),
                tls_cert=tls_cert,
                tls_key=tls_key,
            )
        if received == signal.SIGINT:
            raise Interrupted("interrupted" + ("; all targets are saved" if checkpoint else ""))


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
