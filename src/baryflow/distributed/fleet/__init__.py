"""Follow thousands of targets from Parquet files to Parquet files, each with a model of its own."""
