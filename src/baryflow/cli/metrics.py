"""``run --metrics-port``: counts for Prometheus and a health check, on the loopback interface."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from baryflow.exceptions import UnreachableError
from baryflow.runtime import Runner

log = logging.getLogger("baryflow.cli.metrics")
#: Fields of Totals, and the description of each metric.
_COUNTS = {
    "read": ("baryflow_rows_read", "Rows read from the input."),
    "predicted": ("baryflow_predictions", "Predictions written."),
    "quarantined": ("baryflow_rows_quarantined", "Rows that could not be used."),
    "labels": ("baryflow_labels", "Labels used."),
    "baseline": ("baryflow_baseline_rows", "Rows used as a baseline."),
    "batches": ("baryflow_batches", "Batches read from the input."),
    "drifts": ("baryflow_drifts", "Batches in which drift was detected."),
    "alarms": ("baryflow_alarms", "Alarms raised."),
}
_AGE = ("baryflow_last_row_age_seconds", "Seconds since the last row was read.")


class RunMetrics:
    """Serve what runners have counted; without a port, do nothing."""

    def __init__(self, port: int | None) -> None:
        self._port = port
        self._runners: dict[str, Runner] = {}
        self._server: ThreadingHTTPServer | None = None
        self.reading = False  # false while a checkpoint is replayed
        self.last_row: float | None = None

    @property
    def url(self) -> str:
        """Address of the server; empty without one."""
        return "" if self._server is None else f"http://127.0.0.1:{self._server.server_port}"

    def observe(self, source: Any) -> Any:
        """Return a source that notes when rows are read."""
        return source if self._port is None else _ObservedSource(source, self)

    @contextlib.contextmanager
    def count(self, partition: str, runner: Runner) -> Iterator[None]:
        """Show the counts of a runner; a stream without partitions has the name ``""``."""
        self._runners[partition] = runner
        try:
            yield
        finally:
            self._runners.pop(partition, None)

    def __enter__(self) -> Self:
        if self._port is None:
            return self
        import prometheus_client  # raises if the extra is missing, before the run begins

        registry = prometheus_client.CollectorRegistry()
        registry.register(self)
        health = self.health

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/metrics":
                    body, kind = prometheus_client.generate_latest(registry), "text/plain; version=0.0.4"
                    self._reply(200, body, kind)
                elif self.path == "/health":
                    found = health()
                    status = 200 if found["status"] == "ok" else 503
                    self._reply(status, json.dumps(found).encode(), "application/json")
                else:
                    self._reply(404, b"not found: use /metrics or /health\n", "text/plain")

            def _reply(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log no requests."""

        try:
            self._server = _Server(("127.0.0.1", self._port), Handler)
        except OSError as error:
            raise UnreachableError(
                f"cannot listen at 127.0.0.1:{self._port}: {error.strerror}"
            ) from error
        threading.Thread(target=self._server.serve_forever, name="baryflow-metrics", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def collect(self) -> Iterator[Any]:
        """Yield the metrics, as prometheus_client asks for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        runners = list(self._runners.items())
        for name, (metric, text) in _COUNTS.items():
            family = CounterMetricFamily(metric, text, labels=["partition"])
            for partition, runner in runners:
                family.add_metric([partition], getattr(runner.totals, name))
            yield family
        if (age := self._age()) is not None:
            yield GaugeMetricFamily(*_AGE, value=age)

    def health(self) -> dict[str, Any]:
        """Return whether rows are being read, and the counts of all partitions together."""
        totals = [runner.totals for runner in list(self._runners.values())]
        counts = {
            f"rows_{name}": sum(getattr(one, name) for one in totals)
            for name in ("read", "predicted", "quarantined")
        }
        return {
            "status": "ok" if self.reading else "starting",
            **counts,
            "batches": sum(one.batches for one in totals),
            "last_row_age_seconds": self._age(),
        }

    def _age(self) -> float | None:
        return None if self.last_row is None else round(time.monotonic() - self.last_row, 3)


class _Server(ThreadingHTTPServer):
    """Prints nothing if a client goes away before it has its answer."""

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log what is not the fault of the client."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            log.error("cannot answer %s: %s", client_address[0], error)


class _ObservedSource:
    """A source that notes in the metrics when rows are read."""

    def __init__(self, source: Any, metrics: RunMetrics) -> None:
        self._source, self._metrics = source, metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def read(self, n: int, timeout: float | None = None) -> Any:
        self._metrics.reading = True
        batch = self._source.read(n, timeout)
        if batch is not None and (len(batch.rows) or batch.rejected):
            self._metrics.last_row = time.monotonic()
        return batch
