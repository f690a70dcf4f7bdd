"""The same methods on Dask: histories larger than memory, fleets of targets, backfills.

Rows stay where they are, in partitions; only small summaries of them travel. What comes out is an
ordinary model, and what was adapted elsewhere is an ordinary state.
"""

try:
    from baryflow.distributed.cluster import connect
    from baryflow.distributed.fitting.absorb import absorb
    from baryflow.distributed.fitting.fit import fit
    from baryflow.distributed.fitting.partitions import Parts, from_arrays, from_frame, read_parquet
    from baryflow.distributed.fleet.backfill import Summary, follow
    from baryflow.distributed.fleet.reopen import open_target
    from baryflow.distributed.prediction import novelty, predict, predict_proba
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"baryflow.distributed needs Dask ({error.name} is not there): pip install 'baryflow[dask]'",
        name=error.name,
    ) from error

__all__ = [
    "Parts",
    "Summary",
    "absorb",
    "connect",
    "fit",
    "follow",
    "from_arrays",
    "from_frame",
    "novelty",
    "open_target",
    "predict",
    "predict_proba",
    "read_parquet",
]
