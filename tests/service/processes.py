"""The ``serve`` command in a process of its own."""

import os
import socket
import subprocess
import sys
import time

import httpx

from tests.waiting import PATIENCE

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
        self._arguments = [str(model), "--state", str(state), "--port", str(self.port), *options]
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
