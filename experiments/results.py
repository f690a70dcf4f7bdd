"""Results in CSV files, read whole and appended to as soon as a piece of work is done; their tables."""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

from benchmarks import pages


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


def parser(doc, path, sets, n_targets):
    """Return a parser with the options of an experiment whose results resume."""
    found = argparse.ArgumentParser(description=doc.splitlines()[0])
    found.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    found.add_argument("--out", type=Path, default=path)
    found.add_argument("--sets", nargs="*", choices=sets, default=sets)
    found.add_argument("--targets", type=int, default=n_targets, help="of each set, at most")
    found.add_argument("--tables", action="store_true", help="only make the table again")
    return found


def make(options, run, table, path, page, name):
    """Do what is left and print the table; that of `path` goes into a page."""
    if not options.tables:
        run(options)
    found = table(read(options.out))
    if options.out == path:
        pages.fill(page, name, found)
    print(found)
    return 0
