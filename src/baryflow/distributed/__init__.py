"""The same methods on Dask: histories larger than memory, fleets of targets, backfills."""
