"""What a service stands: ``python -m experiments.service PART``, a CSV each in ``results/``.

``kills``  SIGKILL of the service or one of its workers under load, 30 times, with 50 targets: is every
           acknowledged row there, and once?
``load``   8 clients with 200 requests each, 32 rows of 128 or 8 columns, to 20 targets, as JSON and as
           NPY; beside it the same bodies sent to a bare Starlette application that sends them back, and
           the models alone.
``many``   10,000 targets in one worker: how long requests wait for commits, and how long a start takes.
``half_open``  1,100 half-sent requests at ``ulimit -n 1024``: are others still answered?
"""

from __future__ import annotations

import argparse
import sys

from experiments.service import half_open, kills, load, many

PARTS = {"kills": kills.main, "load": load.main, "many": many.main, "half_open": half_open.main}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="small: to see whether it runs")
    options = parser.parse_args(arguments)
    return PARTS[options.part](options.quick)


if __name__ == "__main__":
    sys.exit(main())
