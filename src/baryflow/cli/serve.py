"""The command that serves many targets: ``serve``."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import click
from threadpoolctl import threadpool_limits

from baryflow.cli.console import Interrupted, WholeNumber, echo, spoken
from baryflow.exceptions import InvalidInputError


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free one."
)
@click.option("--state", metavar="FOLDER", help="Keep targets here: they survive kill -9 and restarts.")
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
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file with the certificate chain; serve HTTPS instead of HTTP.",
)
@click.option(
    "--tls-key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file with the unencrypted private key (default: in the file of --tls-cert).",
)
@click.option("--batch", type=WholeNumber(1), default=32, show_default=True, help="Rows to learn from.")
@click.option(
    "--drift", type=click.Choice(["tell", "forget", "restart", "off"]), default="tell",
    show_default=True,
    help="What to do if a target changes: tell, count what was before less, or start anew.",
)  # fmt: skip
@click.option(
    "--in-memory", type=WholeNumber(1), default=256, show_default=True, metavar="NUMBER",
    help="Targets whose models are kept in memory; others are written out.",
)  # fmt: skip
@click.option(
    "--snapshot-every", type=WholeNumber(1), default=256, show_default=True, metavar="NUMBER",
    help="Batches between two snapshots: so many are replayed after a kill, at most.",
)  # fmt: skip
@click.option("--max-targets", type=WholeNumber(1), default=10_000, show_default=True)
@click.option("--max-rows", type=WholeNumber(1), default=4096, show_default=True, help="Of a request.")
@click.option(
    "--max-body", type=WholeNumber(1), default=8 * 2**20, show_default=True, metavar="BYTES",
    help="Of a request.",
)  # fmt: skip
@click.option(
    "--target-metrics", type=WholeNumber(0), default=0, show_default=True, metavar="NUMBER",
    help="Targets with lines of their own in /metrics.",
)  # fmt: skip
def serve(
    model: Path,
    *,
    host: str,
    port: int,
    state: str | None,
    token_file: Path | None,
    read_token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    batch: int,
    drift: str,
    in_memory: int,
    snapshot_every: int,
    max_targets: int,
    max_rows: int,
    max_body: int,
    target_metrics: int,
) -> None:
    """Serve a fitted MODEL over HTTP: many targets, each followed by its own copy of it."""
    with spoken():
        try:
            from baryflow import service
            from baryflow.service.auth import check_exposure
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"{error.name} is missing: pip install 'baryflow[serve]'"
            ) from error
        token = _token(token_file, "BARYFLOW_TOKEN")
        read_token = _token(read_token_file, "BARYFLOW_READ_TOKEN")
        check_exposure(host, token, read_token)
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
        limits = service.Limits(
            body=max_body, buffered=max(8 * max_body, service.Limits.buffered), rows=max_rows,
            targets=max_targets, in_memory=in_memory, snapshot_every=snapshot_every,
            target_metrics=target_metrics,
        )  # fmt: skip
        app = service.create_app(
            model, state_dir=state, token=token, read_token=read_token, limits=limits,
            batch_size=batch, drift=drift,
        )  # fmt: skip
        if state is None:
            echo("targets are gone when this ends: --state FOLDER keeps them", err=True)
        # Matrices of this size are multiplied faster by one thread than by two that wait for each other.
        with threadpool_limits(limits=1):
            told = service.run(
                app, host, port, lambda url: echo(f"listening at {url}", err=True),
                tls_cert=tls_cert, tls_key=tls_key,
            )  # fmt: skip
    if told == signal.SIGINT:
        raise Interrupted("interrupted" + ("; everything is on disk" if state is not None else ""))


def _token(path: Path | None, variable: str) -> str | None:
    """Return the token of a file or an environment variable: other users can see the command line."""
    if path is not None:
        token = path.read_text(encoding="utf-8").strip()
        if not token:
            raise InvalidInputError(f"{path} is empty: write a token into it")
    else:
        token = os.environ.get(variable, "").strip()
    if not token.isascii():
        raise InvalidInputError("a token must be ASCII: it is sent in a header")
    return token or None
