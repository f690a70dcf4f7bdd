"""Batches on which the model failed: kept with the reason, and skipped when the journal is replayed."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

from baryflow.service.refusals import to_json
from baryflow.streams import Batch

_log = logging.getLogger("baryflow.service")
#: Bytes after which a new file is begun; the file before it is kept, older ones are not.
_FILE = 64 * 2**20


class Quarantine:
    """Quarantined batches, one on each line of ``quarantine.ndjson`` in the state folder.

    Parameters
    ----------
    folder : path or None
        The state folder; without it nothing is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "quarantine.ndjson"
        self._old = None if folder is None else folder / "quarantine-old.ndjson"
        self._reasons: dict[str, str] = {}
        for path in (self._old, self._path):
            if path is not None and path.exists():
                for line in path.read_bytes().splitlines():
                    self._read(line)

    def _read(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            self._reasons[record["id"]] = record["reason"]
        except (ValueError, KeyError, TypeError):  # a kill has cut it off
            return

    def reason(self, batch: Batch) -> str | None:
        """Return why a batch of the journal is quarantined; None if it is not.

        Parameters
        ----------
        batch : Batch

        Returns
        -------
        str or None
        """
        return self._reasons.get(batch.cursor.get("id", ""))

    def add(self, batch: Batch, reason: str) -> None:
        """Keep a batch. It is on disk when this returns, unless the disk is full.

        Without the record a replay tries the batch again, which loses nothing.

        Parameters
        ----------
        batch : Batch
        reason : str
        """
        if self._path is None or self._old is None or "id" not in batch.cursor:
            return
        self._reasons[batch.cursor["id"]] = reason
        record = {
            "id": batch.cursor["id"],
            "target": batch.cursor["target"],
            "batch_id": batch.cursor.get("batch_id"),
            "first": int(batch.positions[0]),
            "last": int(batch.positions[-1]),
            "reason": reason,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "rows": batch.rows,
            "times": batch.times,
        }
        try:
            if self._path.exists() and self._path.stat().st_size > _FILE:
                self._path.replace(self._old)
            with self._path.open("ab") as file:
                file.write(b"\n" + to_json(record))  # the newline first ends a line that a kill cut off
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            _log.error("cannot write %s: %s", self._path, error)
