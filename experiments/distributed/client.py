"""A client in a separate process: ``python -m experiments.distributed.client ADDRESS ROWS MODEL``.

It fits the Parquet files of the folder ROWS with the cluster at ADDRESS (``local`` starts one), writes
the model's bytes to MODEL and prints in JSON how long that took. ``--idle SECONDS`` waits instead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import sys
import time
from pathlib import Path

from baryflow import OnlineDaDiL
from baryflow.distributed import connect, fit, read_parquet
from experiments.distributed.data import DOMAIN, LABEL


def read(rows, **options):
    return read_parquet(str(rows), label=LABEL, domain=DOMAIN, **options)


def new_model():
    return OnlineDaDiL(random_state=0, keep_sources=False)


def digest(content):
    return hashlib.sha256(content).hexdigest()[:16]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("rows")
    parser.add_argument("model")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--sample-rows", type=int, default=50_000)
    parser.add_argument("--partition-bytes", type=int, default=32 << 20)
    parser.add_argument("--checkpoint")
    parser.add_argument("--idle", type=float, help="only wait for this many seconds")
    options = parser.parse_args(arguments)
    with connect(options.address, options.workers) as client:
        began = time.perf_counter()
        if options.idle is not None:
            time.sleep(options.idle)
            return 0
        model = fit(
            new_model(),
            read(options.rows, partition_bytes=options.partition_bytes),
            sample_rows=options.sample_rows,
            checkpoint=options.checkpoint,
            client=client,
        )
        seconds = time.perf_counter() - began
    content = model.to_bytes()
    Path(options.model).write_bytes(content)
    figures = {
        "seconds": seconds,
        "client_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "model_bytes": len(content),
        "bits": digest(content),
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
