"""Sources and a target of any size, written to Parquet chunk by chunk.

Classes live in eight dimensions and move there with the source, each in its own way, as those of
``make_domains`` do; each has two halves that stand apart. Sensors see that space mixed, with noise of
their own, and every source has its own offsets and gains. Which rows there are depends on the seed and
on nothing else: not on how files and row groups are cut.
"""

from __future__ import annotations

import csv
import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RESULTS = Path(__file__).parent / "results"
FOLDER = Path("/tmp/baryflow-distributed")  # noqa: S108 - large, may be deleted at any time
#: For child processes: BLAS threads would compete for the cores.
ENVIRONMENT = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
HIDDEN = 8
#: Rows that are drawn at a time.
CHUNK = 16_384
LABEL, DOMAIN = "state", "plant"


@dataclass(frozen=True)
class Problem:
    """Sources and a target; rows are drawn on demand."""

    n_sources: int = 6
    n_classes: int = 12
    n_columns: int = 64
    seed: int = 0

    @cached_property
    def _parameters(self):
        rng = np.random.default_rng([self.seed, 0])
        s, c, d = self.n_sources, self.n_classes, self.n_columns
        steps = rng.standard_normal((s, 1, HIDDEN)) + rng.standard_normal((s, c, HIDDEN))
        mixing = rng.dirichlet(np.ones(s))
        means = 1.3 * rng.standard_normal((c, HIDDEN)) + 1.2 * steps
        spreads = 0.6 * np.exp(0.3 * rng.standard_normal((s, c, HIDDEN)))
        own = 0.15 * rng.standard_normal((c, HIDDEN))
        # The target is the last of them: where it lies follows from the sources, but for its own part.
        means = np.concatenate([means, (np.tensordot(mixing, means, 1) + own)[None]])
        spreads = np.concatenate([spreads, np.tensordot(mixing, spreads, 1)[None]])
        return {
            "means": means,
            "spreads": spreads,
            "halves": 0.5 * rng.standard_normal((c, HIDDEN)),
            "sensors": rng.standard_normal((HIDDEN, d)) / np.sqrt(HIDDEN),
            "noise": 0.3 * np.exp(0.5 * rng.standard_normal(d)),
            "offsets": 0.5 * rng.standard_normal((s + 1, d)),
            "gains": np.exp(0.2 * rng.standard_normal((s + 1, d))),
            "shares": rng.dirichlet(np.full(c, 10.0), size=s + 1),
        }

    def draw(self, source, n, part):
        """Return rows of a source and their classes; source `n_sources` is the target."""
        p, rng = self._parameters, np.random.default_rng([self.seed, 1 + source, part])
        y = rng.choice(self.n_classes, size=n, p=p["shares"][source])
        side = np.where(rng.random((n, 1)) < 0.6, 0.8, -1.2)
        hidden = p["means"][source, y] + side * p["halves"][y]
        hidden += p["spreads"][source, y] * rng.standard_normal((n, HIDDEN))
        X = hidden @ p["sensors"] + p["noise"] * rng.standard_normal((n, self.n_columns))
        return p["offsets"][source] + p["gains"][source] * X, y

    def chunks(self, n_rows):
        """Yield rows, classes and the source's number, from 1: `n_rows` in all, source by source."""
        each = n_rows // self.n_sources
        for source in range(self.n_sources):
            for part, start in enumerate(range(0, each, CHUNK)):
                yield *self.draw(source, min(CHUNK, each - start), part), 1 + source

    def rows(self, n_rows):
        """Return all of it: rows, classes, sources."""
        found = list(self.chunks(n_rows))
        sources = np.concatenate([np.full(len(y), source) for _, y, source in found])
        return (
            np.concatenate([X for X, _, _ in found]),
            np.concatenate([y for _, y, _ in found]),
            sources,
        )

    def held_out(self, n_rows):
        """Return as many rows again, which no file holds."""
        each = n_rows // self.n_sources
        found = [self.draw(source, each, 1_000_000) for source in range(self.n_sources)]
        sources = np.repeat(1 + np.arange(self.n_sources), each)
        return np.concatenate([X for X, _ in found]), np.concatenate([y for _, y in found]), sources

    def target(self, n_rows):
        """Return rows of the target and their classes."""
        return self.draw(self.n_sources, n_rows, 0)

    def write(self, folder, n_rows):
        """Return a folder with a file for each source; it is written unless it is there already."""
        name = f"{self.n_sources}x{self.n_classes}x{self.n_columns}-{self.seed}-{n_rows}"
        path = Path(folder) / name
        if path.exists():
            return path
        unfinished = path.with_name(f"{name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        writer = None
        for X, y, source in self.chunks(n_rows):
            table = as_table(X, y, source)
            file = unfinished / f"source-{source}.parquet"
            if not file.exists():
                if writer is not None:
                    writer.close()
                writer = pq.ParquetWriter(file, table.schema, compression="none", use_dictionary=False)
            writer.write_table(table)
        writer.close()
        return unfinished.rename(path)


def as_table(X, y, source):
    columns = {f"sensor_{number:02d}": column for number, column in enumerate(X.T)}
    return pa.table(columns | {LABEL: y, DOMAIN: np.broadcast_to(source, len(y)).copy()})


def size(folder):
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def save(name, rows, append=False):
    """Write dictionaries as a CSV file, and print them."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.csv"
    known = load(name) if append else []
    rows = known + [{key: _short(value) for key, value in row.items()} for row in rows]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)
    for row in rows[len(known) :]:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def load(name):
    """Return the rows of a CSV file of results; none if there is none."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _short(value):
    return f"{value:.6g}" if isinstance(value, float) else value
