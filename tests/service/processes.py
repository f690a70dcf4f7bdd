"""The ``serve`` command in a process of its own."""

import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from baryflow.client import Client
from tests.waiting import PATIENCE, wait_until

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Process:
    """``baryflow serve``, at the same port after each restart."""

    def __init__(self, model, state, *options):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._arguments = [str(model), "--checkpoint", str(state), "--port", str(self.port), *options]
        self.restart()

    def restart(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "baryflow", "serve", *self._arguments],
            env=ENVIRONMENT,
            stderr=subprocess.PIPE,
            text=True,
        )
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.05)

    def end(self, number):
        self.process.send_signal(number)
        _, self.words = self.process.communicate(timeout=300)
        self.code = self.process.returncode


class Load:
    """Two clients that send rows to the targets of a service until the end of the context.

    Attributes
    ----------
    sent : dict of str → int
        Rows of each target that were acknowledged.
    """

    def __init__(self, process, rows, names, patience=600):
        self.process, self.rows, self.patience = process, rows, patience
        self.sent, self._stop = dict.fromkeys(names, 0), threading.Event()

    def __enter__(self):
        self._pool = ThreadPoolExecutor(2)
        names = list(self.sent)
        self._working = [self._pool.submit(self._work, names[n::2]) for n in range(2)]
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._pool.shutdown()
        for one in self._working:
            one.result()

    def _work(self, names):
        with Client(self.process.url, patience=self.patience) as client:
            while not self._stop.is_set():
                for name in names:
                    n = self.sent[name]
                    answer = client.send(name, self.rows[n % 200 : n % 200 + 7], batch_id=f"{n}")
                    assert answer["last"] == n + 7  # neither lost nor twice, all the time
                    self.sent[name] = n + 7

    def wait_for_more(self):
        """Wait until more rows of every target were acknowledged, or a client has failed."""
        before = dict(self.sent)
        wait_until(
            lambda: (
                any(one.done() for one in self._working)
                or all(n > before[name] for name, n in self.sent.items())
            )
        )
