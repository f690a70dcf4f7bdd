"""A group member that logs what it reads in a folder for each partition: ``URL FOLDER``.

Only one process may own a partition at a time: it waits for a lock that another one holds, and logs it.
``log.ndjson`` of the partition has what it does: taken, each batch with its rows, given back.
"""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

from baryflow.streams import open_source

COLUMNS = ["x0", "x1"]


def lock(file):
    """Lock a file; return whether it was free."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(file, fcntl.LOCK_EX)  # a partition was lost, and its old owner does not know it yet
        return False
    return True


class PartitionRunner:
    def __init__(self, folder):
        self.folder, self.files = Path(folder), {}

    def assigned(self, partition):
        path = self.folder / partition
        path.mkdir(parents=True, exist_ok=True)
        file = (path / "log.ndjson").open("a+", encoding="utf-8")
        waited = not lock(file)
        file.seek(0)
        text = file.read()
        if not text.endswith("\n"):  # killed while it wrote: what is half there never was
            text = text[: text.rfind("\n") + 1]
            file.truncate(len(text.encode()))
        self.files[partition] = file
        cursors = [one["cursor"] for one in map(json.loads, text.splitlines()) if "cursor" in one]
        self.write(partition, event="taken", waited=waited)
        return cursors[-1] if cursors else None

    def revoked(self, partition):
        self.write(partition, event="given")
        self.files.pop(partition).close()

    def write(self, partition, **record):
        file = self.files[partition]
        file.write(json.dumps(record | {"process": os.getpid(), "at": time.monotonic()}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def main(url, folder):
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    partitions = PartitionRunner(folder)
    source = open_source(url, columns=COLUMNS, key="@key", idle=0.1)
    source.attach(partitions.assigned, partitions.revoked)
    while not ended:
        batch = source.read(8, 0.1)
        for notice in batch.notices:
            print(notice, flush=True)
        if not batch or not batch.partition:
            continue
        began = time.monotonic()
        time.sleep(0.01)  # learning
        rows = list(zip(batch.positions.tolist(), batch.offsets, batch.keys, strict=True))
        partitions.write(batch.partition, rows=rows, cursor=batch.cursor, began=began)
        source.acknowledge(batch.cursor)
    source.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
