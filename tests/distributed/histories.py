"""Labelled rows of some plants, in Parquet files."""

from itertools import pairwise

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from baryflow import OnlineDaDiL, distributed
from baryflow.datasets import make_domains

P = make_domains(n_sources=3, n_classes=4, n_features=5, n_per_class=300, random_state=1)
COLUMNS = [f"s{j}" for j in range(5)]
_ORDER = np.random.default_rng(0).permutation(len(P.X))
#: Shuffled: every partition has rows of all classes and domains.
X, Y, DOMAIN = P.X[_ORDER], P.y[_ORDER], P.domain[_ORDER]


def table(X=X, y=Y, domain=DOMAIN):
    """Return rows as a table; the text column is not a feature."""
    columns = dict(zip(COLUMNS, X.T, strict=True))
    names = [f"plant {d}" for d in domain]
    return pa.table(
        {**columns, "fault": [f"class {c}" for c in y], "plant": names, "note": ["-"] * len(X)}
    )


def folder(root, rows=None, n_files=4, group=150):
    """Write rows to files of several row groups."""
    rows = table() if rows is None else rows
    root.mkdir(parents=True, exist_ok=True)
    cuts = np.linspace(0, rows.num_rows, n_files + 1).astype(int)
    for n, (start, end) in enumerate(pairwise(cuts)):
        file = root / f"part.{n + 5}.parquet"  # not padded: numbers in names are compared as numbers
        pq.write_table(rows.slice(start, end - start), file, row_group_size=group)
    return root


def new(**parameters):
    """Return a model that is fitted quickly."""
    quick = {"keep_sources": False, "classifier": "linear", "validate": False}
    return OnlineDaDiL(random_state=0, **quick | parameters)


def arrays(chunk=500, X=X, y=Y, domain=DOMAIN):
    """Return rows as Dask arrays in blocks of `chunk` rows."""
    return distributed.from_arrays(
        da.from_array(X, chunks=(chunk, -1)),
        da.from_array(y, chunks=chunk),
        da.from_array(domain, chunks=chunk),
    )


def after(model):
    """Return the probabilities of target rows after the model has adapted to them."""
    T = P.X_target[:400]
    if hasattr(model, "feature_names_in_"):
        T = pd.DataFrame(T, columns=COLUMNS)
    return model.spawn().partial_fit(T).predict_proba(T)
