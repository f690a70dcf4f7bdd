"""Fit a model, or adapt one to a target, from rows in Dask partitions or Parquet files."""
