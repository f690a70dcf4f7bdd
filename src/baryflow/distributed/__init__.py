"""The same methods on Dask: histories larger than memory, fleets of targets, backfills.

Rows stay where they are, in partitions; only small summaries of them travel. What comes out is an
ordinary model, and what was adapted elsewhere is an ordinary state.
"""

try:
    from baryflow.distributed.absorbing import absorb
    from baryflow.distributed.backfill import Summary, follow
    from baryflow.distributed.cluster import connect
    from baryflow.distributed.fitting import fit
    from baryflow.distributed.parts import Parts, from_arrays, from_frame, read_parquet
    from baryflow.distributed.predicting import novelty, predict, predict_proba
    from baryflow.distributed.reopening import open_target
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
