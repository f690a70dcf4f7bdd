"""Write small files, and read sources to their end."""

import contextlib
import os

import numpy as np
import pytest

from baryflow.streams import open_source


def write(path, text, encoding="utf-8"):
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


def read_all(what, columns=None, n=1000, **options):
    """Return all batches of a source."""
    with contextlib.closing(open_source(what, columns=columns, **options)) as source:
        batches = []
        while (batch := source.read(n)) is not None:
            batches.append(batch)
    return batches


def rows_of(batches):
    return np.concatenate([batch.rows for batch in batches])


def rejected_of(batches):
    return [one for batch in batches for one in batch.rejected]


def read_rows(what, columns=None, n=1000, **options):
    return rows_of(read_all(what, columns, n, **options)).tolist()


def require(module):
    """Skip a test if an extra is not installed; in CI all extras are required."""
    if os.environ.get("CI") == "true":
        __import__(module)
    return pytest.importorskip(module)
