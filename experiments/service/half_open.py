"""Half-sent requests, more than the process may have file descriptors: are others still answered?"""

from __future__ import annotations

import resource
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import httpx

from experiments.service.process import Serve, prepare, write

#: What each connection sends, in turn: nothing, half of the headers, half of a body.
HALVES = (
    b"",
    b"POST /v1/targets/a/rows HTTP/1.1\r\nHost: localhost\r\nContent-Ty",
    b"POST /v1/targets/a/rows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 5000\r\n\r\n" + b" " * 2500,
)  # fmt: skip


def main(quick):
    n_half, descriptors, n_asked = (200, 256, 10) if quick else (1100, 1024, 100)
    table = [("after", "descriptor_limit", "half_open", "requests", "failed", "slowest_s", "log_bytes")]
    # This process has the other ends of the connections open.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, rows = prepare(folder, 3, 8)
        log = Path(folder) / "log"
        serve = stack.enter_context(
            Serve(model, "--checkpoint", Path(folder) / "state", log=log, descriptors=descriptors)
        )

        def note(after):
            slowest, failed = 0.0, 0
            for n in range(n_asked):
                began = time.monotonic()
                try:  # a new connection for each, as a client has that comes by
                    if n % 2:
                        answer = httpx.get(f"{serve.url}/v1/targets", timeout=30, trust_env=False)
                    else:
                        body = {"rows": rows[n % 100 : n % 100 + 4].tolist()}
                        where = f"{serve.url}/v1/targets/a/rows"
                        answer = httpx.post(where, json=body, timeout=30, trust_env=False)
                    failed += answer.status_code != 200
                except httpx.TransportError:
                    failed += 1
                slowest = max(slowest, time.monotonic() - began)
            n_open = len(half)
            table.append(
                (after, descriptors, n_open, n_asked, failed, round(slowest, 3), log.stat().st_size)
            )
            print(*table[-1], flush=True)

        def attack():
            for n in range(n_half):
                sock = socket.socket()
                sock.connect(("127.0.0.1", serve.port))
                sock.sendall(HALVES[n % len(HALVES)])
                half.append(stack.enter_context(sock))

        half = []
        note("nothing")
        attack()
        note("half-sent requests")
        attack()
        note("as many again")
        serve.end()
    if not quick:
        write("half_open", table)
    good = all(failed == 0 and slowest < 2 and log < 2**20 for *_, failed, slowest, log in table[1:])
    print("others are answered" if good else "OTHERS ARE NOT ANSWERED")
    return 0 if good else 1
