"""What does a machine cost whose columns are in other units, or that lacks one?

``python -m experiments.streams.units`` makes ten fleets. The readings of one machine are in psi and °F
instead of bar and °C, once of a source and once of the target, or a source lacks a column. It writes
``results/units.csv`` and a table of ``docs/benchmarks/own-calibration.md``. It can be stopped, and
resumes.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from benchmarks import pages
from experiments import results
from experiments.streams import problems

RESULTS = Path(__file__).parent / "results" / "units.csv"
PAGE = "docs/benchmarks/own-calibration.md"
FIELDS = ("fleet", "case", "kind", "rows", "flowing", "end")
FLEETS = tuple(f"fleet {number}" for number in range(10, 20))
CASES = ("as it is", "source in other units", "target in other units", "source without a column")
KINDS = ("as it is", "80 % one class")
#: What sensors show on average, the machine that is odd, the target, and rows of a batch.
LEVEL, ODD, TARGET, BATCH = 20.0, 2, 5, 32
#: Columns in psi and in °F.
PSI, FAHRENHEIT = slice(0, 3), slice(3, 6)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--fleets", nargs="*", choices=FLEETS, default=FLEETS)
    parser.add_argument("--tables", action="store_true", help="only make the table again")
    options = parser.parse_args(arguments)
    done = {row["fleet"] for row in results.read(options.out)}
    for name in () if options.tables else options.fleets:
        if name not in done:
            found = list(judge(int(name.split()[1])))
            results.append(options.out, FIELDS, [{"fleet": name} | row for row in found])
    found = table(results.read(options.out))
    if options.out == RESULTS:
        pages.fill(PAGE, "units", found)
    print(found)
    return 0


def judge(seed):
    """Yield a row for each case and kind of stream."""
    X, y, domain = problems.make_fleet(seed)
    X = LEVEL + X
    known = None
    for case in CASES:
        moved = X.copy()
        if case == "source without a column":
            moved[domain == ODD, np.random.default_rng(seed).integers(X.shape[1])] = np.nan
        elif case != "as it is":
            odd = domain == (ODD if case.startswith("source") else TARGET)
            moved[odd, PSI] *= 14.503774
            moved[odd, FAHRENHEIT] = 1.8 * moved[odd, FAHRENHEIT] + 32.0
        sources = domain != TARGET
        if known is None or case.startswith("source"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it names the columns
                model = OnlineDaDiL(random_state=0).fit(moved[sources], y[sources], domain[sources] + 1)
            known = known or model
        for number, kind in enumerate(KINDS):
            rows = np.flatnonzero(~sources)
            rows = rows[problems.draw(y[rows], kind, np.random.default_rng(number))]
            chosen = known if case.startswith("target") else model
            yield {"case": case, "kind": kind, "rows": len(rows)} | follow(chosen, moved[rows], y[rows])


def follow(model, X, y):
    """Return the accuracy while rows flow and after the stream."""
    model, flowing = model.spawn(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start in range(0, len(X), BATCH):
            rows = slice(start, start + BATCH)
            flowing.append(model.predict(X[rows]) == y[rows])
            model.partial_fit(X[rows])
    end = float((model.predict(X) == y).mean())
    return {"flowing": round(float(np.concatenate(flowing).mean()), 4), "end": round(end, 4)}


def table(rows):
    """Return accuracy in percent by case and kind of stream, and how far from that as it is."""
    figures = {(row["fleet"], row["case"], row["kind"]): row for row in rows}
    lines = [
        "| stream | case | flowing | end | end, against as it is | worst fleet |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for case in CASES:
            mine = [row for row in rows if (row["case"], row["kind"]) == (case, kind)]
            gains = [
                100.0 * (float(row["end"]) - float(figures[row["fleet"], CASES[0], kind]["end"]))
                for row in mine
            ]
            flowing, end = ([100.0 * float(row[name]) for row in mine] for name in ("flowing", "end"))
            against = ("", "") if case == CASES[0] else (f"{_mean(gains, '+')}", f"{min(gains):+.1f}")
            cells = (kind, case, _mean(flowing), _mean(end), *against)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(values, sign=""):
    """Return a mean and its standard error."""
    return f"{np.mean(values):{sign}.1f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.1f}"


if __name__ == "__main__":
    sys.exit(main())
