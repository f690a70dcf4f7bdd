"""Read from an OPC UA server that is not asyncua's: node-opcua, written in JavaScript.

``python -m experiments.plantfloor.node_opcua`` installs npm's ``node-opcua`` into a temporary folder,
starts the server in ``node_opcua.js`` (three variables that change every 100 ms, and their history), and
writes ``results/node_opcua.json``:

- ``subscription``: rows made of the changes that the server reports.
- ``gap``: the source is closed and another one continues; it reads what it missed from the history.
- ``cut``: the network carries nothing for ten seconds and then drops the connection; the source
  reconnects and reads the history.
- ``since``: a first source begins in the history, at a given time.

Every row is compared with the values that the server had at that instant.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from baryflow.streams import open_source
from tests.streams.proxy import Proxy

RESULTS = Path(__file__).parent / "results" / "node_opcua.json"
PACKAGE = "node-opcua@2.186.4"
COLUMNS = ["flow", "pressure", "temperature"]
#: Seconds after which something that must happen is given up.
PATIENCE = 120.0


class Server:
    """The server, for as long as the block lasts."""

    def __init__(self, folder):
        npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", folder]
        subprocess.run([*npm, PACKAGE], check=True, stdout=subprocess.DEVNULL)
        script = folder / "server.js"
        script.write_text(Path(__file__).with_suffix(".js").read_text())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        # Certificates of the server go to its home folder.
        self._process = subprocess.Popen(
            ["node", script, str(self.port)],  # noqa: S607
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)},
        )

    def __enter__(self):
        for line in self._process.stdout:
            if line.startswith("{"):  # the library logs to standard output, too
                found = json.loads(line)
                break
        else:
            raise RuntimeError("the server does not start")
        self.start, self.step = found["start"], found["step"]
        self.node = f"?node=ns={found['namespace']};s=Plant"
        return self

    def __exit__(self, *_):
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def open(self, port=None, options=""):
        url = f"opc.tcp://127.0.0.1:{port or self.port}/plant{self.node}{options}"
        return open_source(url, columns=COLUMNS, sample_interval=self.step, idle=0.5)

    def compare(self, rows):
        """Count the rows (time, values) that are missing, repeated or wrong."""
        steps = [
            round((datetime.fromisoformat(at).timestamp() - self.start) / self.step) for at, _ in rows
        ]
        wrong = sum(
            values != [1000.0 * number + step / 4 for number in range(len(COLUMNS))]
            for step, (_, values) in zip(steps, rows, strict=True)
        )
        return {
            "rows": len(rows),
            "first_step": steps[0],
            "missing": len(set(range(steps[0], steps[-1] + 1)) - set(steps)),
            "twice": len(steps) - len(set(steps)),
            "in_order": steps == sorted(steps),
            "wrong_values": wrong,
        }


def read(source, n, notices=None):
    """Return (time, values) of `n` rows, and the last cursor."""
    rows, cursor, deadline = [], None, time.monotonic() + PATIENCE
    while len(rows) < n and time.monotonic() < deadline:
        batch = source.read(min(32, n - len(rows)), 0.5)
        rows += zip(batch.times, batch.rows.tolist(), strict=True)
        cursor = batch.cursor
        if notices is not None:
            notices += batch.notices
    return rows, cursor


def subscription(server, n=300):
    source = server.open()
    try:
        return server.compare(read(source, n)[0])
    finally:
        source.close()


def gap(server, n=100, seconds=10):
    source = server.open()
    rows, cursor = read(source, n)
    source.close()
    time.sleep(seconds)
    source = server.open()
    source.seek(cursor)
    try:
        more, _ = read(source, n + round(seconds / server.step))
    finally:
        source.close()
    return {"seconds_closed": seconds} | server.compare(rows + more)


def cut(server, seconds=10):
    notices = []
    with Proxy(server.port) as wire:
        source = server.open(wire.port)
        try:
            rows, _ = read(source, 50, notices)
            wire.cut()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                rows += read_for(source, 1.0, notices)
            wire.heal()
            rows += read(source, 100 + round(seconds / server.step) - len(rows), notices)[0]
        finally:
            source.close()
    notices = [notice.replace(f"127.0.0.1:{wire.port}", "host:4840") for notice in notices]
    return {"seconds_cut": seconds, "notices": notices} | server.compare(rows)


def read_for(source, seconds, notices):
    """Return what arrives in some seconds."""
    batch = source.read(1000, seconds)
    notices += batch.notices
    return list(zip(batch.times, batch.rows.tolist(), strict=True))


def since(server):
    """Begin at step 20, which is long past."""
    begin = datetime.fromtimestamp(server.start, UTC) + timedelta(seconds=20 * server.step)
    source = server.open(options=f"&since={begin:%Y-%m-%dT%H:%M:%SZ}")
    try:
        return server.compare(read(source, 200)[0])
    finally:
        source.close()


PARTS = {"subscription": subscription, "gap": gap, "cut": cut, "since": since}


def main():
    found = {"package": PACKAGE}
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server:
        for part, function in PARTS.items():
            found[part] = function(server)
            print(part, json.dumps(found[part]), flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
