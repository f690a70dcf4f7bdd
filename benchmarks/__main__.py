"""Run with ``make bench``, or ``python -m benchmarks NAME ...`` for some of the cases."""

from __future__ import annotations

import argparse
import sys

from threadpoolctl import threadpool_limits

from benchmarks import cases, harness


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Time cases in turn.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(cases.CASES)}")
    names = parser.parse_args(arguments).names
    if unknown := set(names) - cases.CASES.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(cases.CASES)}")
    results = []
    with threadpool_limits(1):
        for name in names or cases.CASES:
            print(f"running {name} ...", file=sys.stderr, flush=True)
            if (result := cases.CASES[name]()) is not None:  # its rival may not be installed
                results.append(result)
    print(harness.table(results))
    for result in results:
        for key, value in result.quality.items():
            print(f"  {result.name}: {key}: {value}", file=sys.stderr)
    if not names:
        harness.write(results)
        print(f"written: {harness.RESULTS.name}", file=sys.stderr)
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
