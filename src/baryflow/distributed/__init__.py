"""Dask: fit on histories larger than memory, predict in parallel, and backfill fleets of targets.

Rows stay in their partitions; only small summaries travel. The result is an ordinary model.
"""

try:
    from baryflow.distributed.absorbing import absorb
    from baryflow.distributed.cluster import connect
    from baryflow.distributed.fitting import fit
    from baryflow.distributed.fleet import backfill, open_target
    from baryflow.distributed.output import Summary
    from baryflow.distributed.partitions import Parts, from_arrays, from_frame, read_parquet
    from baryflow.distributed.prediction import novelty, predict, predict_proba
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"baryflow.distributed needs Dask ({error.name} is missing): pip install 'baryflow[dask]'",
        name=error.name,
    ) from error

__all__ = [
    "Parts",
    "Summary",
    "absorb",
    "backfill",
    "connect",
    "fit",
    "from_arrays",
    "from_frame",
    "novelty",
    "open_target",
    "predict",
    "predict_proba",
    "read_parquet",
]
