"""Two ends of a stream, as simple as they can be."""

import contextlib
import json
import os
import resource
import signal
import struct
from pathlib import Path

import numpy as np

from baryflow.client import forward
from baryflow.runtime import Store
from baryflow.runtime.store import Entry
from baryflow.streams import Batch, Rejected, Sink, Source, open_sink


def journalled(folder, batch):
    """Return a batch as it comes out of the journal of a store."""
    store = Store(folder)
    with store.transaction():
        store.append([Entry(batch)])
    store.close()
    again = Store(folder)
    (seq,) = again.pending
    found = again.read(seq).batch
    again.close()
    return found


def transactions(folder):
    """Return how many transactions a store has had; the first four belong to its creation."""
    path = Path(folder) / "store.mark"
    return struct.unpack("<8s16sQI", path.read_bytes())[2] if path.exists() else 0


@contextlib.contextmanager
def full_disk(size):
    """Let no file grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Rows(Source):
    """Rows of an array; some of them cannot be used."""

    columns = wanted = None

    def __init__(self, X, bad=()):
        self.X, self.bad, self.at = X, set(bad), 0
        self.columns = self.wanted = [f"x{j}" for j in range(X.shape[1])]

    def read(self, n, _=None):
        if self.at >= len(self.X):
            return None
        some = range(self.at, min(self.at + n, len(self.X)))
        self.at = some.stop
        good = [i for i in some if i not in self.bad]
        return Batch(
            rows=self.X[good],
            positions=np.array(good, dtype=np.intp) + 1,
            times=["" for _ in good],
            keys=["" for _ in good],
            rejected=[Rejected(i + 1, "it is bad", "?") for i in some if i in self.bad],
            cursor={"at": self.at},
        )

    def seek(self, cursor):
        self.at = cursor["at"]

    def close(self):
        pass


class Lines(Sink):
    """NDJSON in a file."""

    def __init__(self, path):
        self.file = open(path, "a+b", buffering=0)  # noqa: PTH123, SIM115 - kept open

    @property
    def position(self):
        return self.file.seek(0, os.SEEK_END)

    def write(self, records):
        self.file.write("".join(json.dumps(r) + "\n" for r in records).encode())

    def truncate(self, position):
        self.file.flush()
        self.file.truncate(position)

    def flush(self):
        self.file.flush()

    def close(self, **_):
        self.file.close()


class Acknowledging:
    """A service that takes everything, and kills its process with request `kill_at`."""

    def __init__(self, kill_at):
        self.left = kill_at

    def send(self, *_, **__):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"repeated": False}


def feed_rows(folder, kill_at=0):
    """Feed 400 rows, each fifth of them unusable, from a checkpoint in a folder."""
    kept = Store(Path(folder) / "kept")
    aside = open_sink(Path(folder) / "bad.ndjson", resume=not kept.is_new)
    rows = Rows(np.zeros((400, 2)), range(0, 400, 5))
    forward(rows, Acknowledging(kill_at), "x", store=kept, read_size=8, quarantine=aside)
    aside.close()
    kept.close()
