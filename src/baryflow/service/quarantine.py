"""Rows on which a model failed, kept with the reason."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from baryflow.service.errors import to_json
from baryflow.streams import Batch, Rejected

_log = logging.getLogger("baryflow.service")
#: Bytes after which a new file is begun; the file before it is kept, older ones are not.
_FILE = 64 * 2**20


class Quarantine:
    """Quarantined rows, one on each line of ``quarantine.ndjson`` in the state folder.

    Parameters
    ----------
    folder : path or None
        The state folder; without it nothing is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "quarantine.ndjson"
        self._old = None if folder is None else folder / "quarantine-old.ndjson"
        self._known: set[str] = set()  # ids of batches in the files: a replay finds their rows again
        for path in (self._old, self._path):
            if path is not None and path.exists():
                for line in path.read_bytes().splitlines():
                    self._read(line)

    def _read(self, line: bytes) -> None:
        try:
            self._known.add(json.loads(line)["id"])
        except (ValueError, KeyError, TypeError):  # a kill has cut it off
            return

    def add(self, batch: Batch, rejected: Sequence[Rejected]) -> None:
        """Log rows of a batch and keep them. They are on disk when this returns, unless it is full.

        Parameters
        ----------
        batch : Batch
        rejected : sequence of Rejected
        """
        name, n = batch.cursor["target"], len(rejected)
        _log.error("the model of %s failed on %d rows: %s", name, n, rejected[0].reason)
        if self._path is None or self._old is None or batch.cursor["id"] in self._known:
            return
        self._known.add(batch.cursor["id"])
        place = {position: i for i, position in enumerate(batch.positions.tolist())}
        lines = [
            to_json(
                {
                    "id": batch.cursor["id"],
                    "target": name,
                    "batch_id": batch.cursor.get("batch_id"),
                    "position": row.position,
                    "reason": row.reason,
                    "quarantined": datetime.now(UTC).isoformat(timespec="seconds"),
                    "time": batch.times[place[row.position]],
                    "values": batch.rows[place[row.position]],
                }
            )
            for row in rejected
        ]
        try:
            if self._path.exists() and self._path.stat().st_size > _FILE:
                self._path.replace(self._old)
            with self._path.open("ab") as file:
                # The newline first ends a line that a kill has cut off.
                file.write(b"".join(b"\n" + line for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            _log.error("cannot write %s: %s", self._path, error)
