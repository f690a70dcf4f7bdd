"""A small fleet: a model, rows of some targets, and layouts of their files."""

from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.runtime import Outputs, Runner, SessionConfig
from baryflow.streams import open_sink, open_source

COLUMNS = ["flow", "speed", "heat", "noise"]
P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)
TARGETS = ("1", "2", "10", "a/b .", "ü=%")
#: Rows of each: not multiples of an epoch or a batch.
ROWS = (70, 33, 100, 5, 64)


def fit(seed=0):
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=seed)
    model.fit(P.X, P.y, sample_domain=P.domain)
    model.feature_names_in_ = np.array(COLUMNS, dtype=object)
    return model


def rows_of(number, count=None, skip=0):
    """Return the rows of a target as a table, with timestamps."""
    rng = np.random.default_rng(number)
    values = P.X_target[rng.integers(len(P.X_target), size=1000)] + 0.3 * rng.normal(size=4)
    count = ROWS[number] if count is None else count
    columns = dict(zip(COLUMNS, values[skip : skip + count].T, strict=True))
    times = [f"{number}-{i}" for i in range(skip, skip + count)]
    return pa.table({"when": times, **columns})


def by_folder(root, part=0, tables=None):
    """Write a folder for each target, with its rows in two files."""
    tables = {key: rows_of(i) for i, key in enumerate(TARGETS)} if tables is None else tables
    for key, table in tables.items():
        folder = root / f"pump={quote(key, safe='')}"
        folder.mkdir(parents=True, exist_ok=True)
        half = table.num_rows // 2
        pq.write_table(table.slice(0, half), folder / f"part-{part}.parquet")
        pq.write_table(table.slice(half), folder / f"part-{part + 1}.parquet")
    return root


def mixed(root, part=0, tables=None, n_files=3):
    """Write rows of all targets interleaved, in files of several row groups."""
    tables = {key: rows_of(i) for i, key in enumerate(TARGETS)} if tables is None else tables
    parts = [t.append_column("pump", pa.array([key] * t.num_rows)) for key, t in tables.items()]
    order = np.concatenate([(np.arange(t.num_rows) + 0.5) / t.num_rows for t in parts])
    together = pa.concat_tables(parts).take(np.argsort(order, kind="stable"))
    root.mkdir(parents=True, exist_ok=True)
    size = -(-together.num_rows // n_files)
    for n in range(n_files):
        some = together.slice(n * size, size)
        pq.write_table(some, root / f"part-{part + n}.parquet", row_group_size=17)
    return root


class MemorySink(list):
    """A sink in memory."""

    position = 0

    def write(self, records):
        self.extend(records)

    def flush(self):
        pass


def alone(model, table, folder, **how):
    """Return the predictions and the quarantine of a runner that follows one target."""
    path = folder / "alone.parquet"
    pq.write_table(table, path)
    source = open_source(path, columns=COLUMNS, time="when")
    outputs = Outputs(predictions=MemorySink(), quarantine=MemorySink())
    runner = Runner(SessionConfig(model, **how), source, outputs)
    runner.run()
    runner.close()
    source.close()
    return list(outputs.predictions), list(outputs.quarantine)


def events_alone(model, table, folder, key, **how):
    """Return the events that a keyed runner writes about one target, whose stream does not end."""
    path = folder / "alone.parquet"
    pq.write_table(table.append_column("pump", pa.array([key] * table.num_rows)), path)
    source = open_source(path, columns=COLUMNS, time="when", key="pump")
    sink = open_sink(folder / "alone.ndjson")
    runner = Runner(SessionConfig(model, **how), source, Outputs(events=sink), keyed=True)
    while (batch := source.read(1024)) is not None:
        runner.handle(batch)
    for one in (runner, source, sink):
        one.close()
    return (folder / "alone.ndjson").read_text().splitlines()


def events(folder, key):
    """Return the lines of the NDJSON files in the folder of a target."""
    files = sorted((folder / f"target={quote(key, safe='')}").glob("*.ndjson"))
    return [line for file in files for line in file.read_text().splitlines()]


def read(folder, key):
    """Return the predictions in the folder of a target, without its key."""
    files = sorted((folder / f"target={quote(key, safe='')}").glob("*.parquet"))
    records = [record for file in files for record in pq.ParquetFile(file).read().to_pylist()]
    assert {record.pop("key") for record in records} <= {key}
    return records


def content(folder):
    """Return the bytes of all files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
