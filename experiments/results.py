"""Results in CSV files, read whole and appended to as soon as a piece of work is done."""

from __future__ import annotations

import csv


def read(path):
    """Return the rows of a file; none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path, fields, rows):
    """Append rows, after a header if the file is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)
