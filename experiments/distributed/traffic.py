"""What reaches the client with 1 ×, 4 × and 16 × the rows: every byte on the wire, both ways.

``python -m experiments.distributed.traffic`` writes ``results/traffic.csv``. Partitions have
the same size, so there are more of them with more rows. The heartbeats that an idle client receives in
the same time are subtracted. The rest is the result, and must not depend on the rows.
"""

from __future__ import annotations

import argparse
import sys

from experiments.distributed.client import read
from experiments.distributed.data import FOLDER, Problem, save
from experiments.distributed.watched import Watched

ROWS, TIMES, PARTITION_BYTES = 150_000, (1, 4, 16), 4 << 20
PROBLEM = Problem(n_columns=32)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=FOLDER)
    options = parser.parse_args(arguments)
    table = []
    with Watched(2) as cluster:
        for times in TIMES:
            folder = PROBLEM.write(options.folder, times * ROWS)
            figures, _ = cluster.fit(folder, "--partition-bytes", PARTITION_BYTES)
            idle = cluster.idle(figures["seconds"])
            table.append(
                {
                    "times": times,
                    "rows": times * ROWS,
                    "pieces": len(read(folder, partition_bytes=PARTITION_BYTES).partitions),
                    "seconds": figures["seconds"],
                    "to_client": figures["to_client"],
                    "to_client_idle": idle["to_client"],
                    "to_client_result": figures["to_client"] - idle["to_client"],
                    "to_scheduler": figures["to_scheduler"],
                    "to_scheduler_idle": idle["to_scheduler"],
                    "model_bytes": figures["model_bytes"],
                }
            )
    save("traffic", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
