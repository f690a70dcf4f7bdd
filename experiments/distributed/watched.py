"""A cluster that records the traffic of its client and the peak memory of its workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

from distributed import LocalCluster

from experiments.distributed.data import ENVIRONMENT


class Wire:
    """Forwards TCP to a port and counts bytes in both directions; use it as a context."""

    def __init__(self, port):
        self.target, self.port = port, None
        self.to_client = self.to_scheduler = 0
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    def __enter__(self):
        self._thread.start()
        self._listens.wait()
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()

    async def _run(self):
        self._ended = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()
        await self._ended.wait()
        server.close()

    async def _serve(self, reader, writer):
        there = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(
            self._pass(reader, there[1], "to_scheduler"), self._pass(there[0], writer, "to_client")
        )

    async def _pass(self, reader, writer, count):
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(1 << 20):
                setattr(self, count, getattr(self, count) + len(data))
                writer.write(data)
                await writer.drain()
        writer.close()


class Memory(threading.Thread):
    """Records the peak memory of every worker process, and what was spilled."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.peaks, self.spilled = {}, 0
        self._cluster, self._ended = cluster, threading.Event()

    def run(self):
        while not self._ended.wait(0.1):
            for nanny in list(self._cluster.workers.values()):
                with contextlib.suppress(OSError, IndexError):  # the process has just ended
                    words = Path(f"/proc/{nanny.pid}/status").read_text()
                    self.peaks[nanny.pid] = int(words.split("VmHWM:")[1].split()[0]) / 1024
            spilled = (one.memory.spilled for one in list(self._cluster.scheduler.workers.values()))
            self.spilled = max(self.spilled, sum(spilled))

    def end(self):
        self._ended.set()
        self.join()


class Watched:
    """Workers on this machine, and what is known of them; use it as a context."""

    def __init__(self, workers, memory_limit="auto"):
        self.workers, self.memory_limit = workers, memory_limit

    def __enter__(self):
        self.cluster = LocalCluster(
            n_workers=self.workers, threads_per_worker=1, host="127.0.0.1",
            dashboard_address="127.0.0.1:0", silence_logs=40, memory_limit=self.memory_limit,
        )  # fmt: skip
        self.wire = Wire(int(self.cluster.scheduler_address.rsplit(":", 1)[1])).__enter__()
        self.memory = Memory(self.cluster)
        self._pids = {nanny.pid for nanny in self.cluster.workers.values()}
        self.memory.start()
        return self

    def __exit__(self, *_):
        self.memory.end()
        self.wire.__exit__()
        self.cluster.close()

    def fit(self, rows, *options):
        """Let a client in another process fit; return what it says, and what was seen meanwhile."""
        with tempfile.TemporaryDirectory() as folder:
            words, traffic = self._call(rows, Path(folder) / "model.bary", *options)
            content = (Path(folder) / "model.bary").read_bytes()
        return json.loads(words) | traffic | self._seen(), content

    def idle(self, seconds):
        """Let a client do nothing, and return the bytes that this takes."""
        return self._call("-", "-", "--idle", seconds)[1]

    def _call(self, *arguments):
        before = self.wire.to_client, self.wire.to_scheduler
        command = [
            sys.executable, "-m", "experiments.distributed.client",
            f"tcp://127.0.0.1:{self.wire.port}", *map(str, arguments),
        ]  # fmt: skip
        words = subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE).stdout
        return words, {
            "to_client": self.wire.to_client - before[0],
            "to_scheduler": self.wire.to_scheduler - before[1],
        }

    def _seen(self):
        return {
            "worker_peak_mb": max(self.memory.peaks.values()),
            "spilled_mb": self.memory.spilled / 2**20,
            "workers_lost": len(self.memory.peaks.keys() - self._pids),
        }

    def stages(self):
        """Return the seconds that workers have computed, by the names of tasks."""
        seconds = Counter()
        for name, prefix in self.cluster.scheduler.task_prefixes.items():
            seconds[name.lstrip("_")] += prefix.all_durations.get("compute", 0.0)
        return dict(seconds.most_common())
