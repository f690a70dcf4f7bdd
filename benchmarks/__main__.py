"""Run with ``make bench``, or ``python -m benchmarks NAME ...`` for some of the cases.

Each case runs in a process of its own. What it found is written at once, so an interrupted run resumes
where it stopped: without names, a case is skipped if it was run with the same code.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from benchmarks import cases, harness, report

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Time cases in turn; write benchmarks/results.json and {report.PAGE}.",
        epilog="Example: python -m benchmarks stream scaling",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"case, or how several begin: {', '.join(cases.CASES)}"
    )
    parser.add_argument("--again", action="store_true", help="run all cases, with the same code too")
    parser.add_argument("--page", action="store_true", help="only make the page and its plots once more")
    parser.add_argument("--alone", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.alone:
        json.dump(harness.encode(run_here(options.alone)), sys.stdout)
        return 0
    chosen = [c for c in cases.CASES if not options.names or c.startswith(tuple(options.names))]
    if unknown := [n for n in options.names if not any(c.startswith(n) for c in cases.CASES)]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(cases.CASES)}")
    outcomes, failed = harness.read(), []
    now = harness.environment()["sources"]
    for case in [] if options.page else chosen:
        known = outcomes.get(case)
        if known and known.environment["sources"] == now and not (options.again or options.names):
            print(f"{case}: kept, run before with the same code", file=sys.stderr)
            continue
        print(f"{case} ...", file=sys.stderr, flush=True)
        if (found := run_alone(case)) is None:
            failed.append(case)
            continue
        if found.results or found.curves:  # its rival may not be installed: keep what is known
            outcomes[case] = found
        outcomes = {name: outcomes[name] for name in cases.CASES if name in outcomes}
        harness.write(outcomes)
    report.write(outcomes)
    results = [result for case in chosen if case in outcomes for result in outcomes[case].results]
    print(harness.table(results))
    for result in results:
        for key, value in result.quality.items():
            print(f"  {result.name}: {key}: {value}", file=sys.stderr)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run_alone(case: str) -> harness.Outcome | None:
    """Run a case in a process of its own; None if that failed."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--alone", case],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | ONE_THREAD,
    )
    return harness.decode(json.loads(done.stdout)) if done.returncode == 0 else None


def run_here(case: str) -> harness.Outcome:
    """Run a case in this process."""
    found = cases.CASES[case]()
    items = found if isinstance(found, list) else [] if found is None else [found]
    return harness.Outcome(
        [item for item in items if isinstance(item, harness.Result)],
        [item for item in items if isinstance(item, harness.Curve)],
        harness.environment(),
    )


if __name__ == "__main__":
    sys.exit(main())
