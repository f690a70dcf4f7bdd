"""Run ``python -m experiments.ablation --data FOLDER``: what each part of the method is worth.

On every set of :mod:`experiments.msda`, with fewer rows and up to four targets of each, the default and
the default with one part switched off at a time: as they come, and with other class proportions. Every
finished target and part is appended to ``results/ablation.csv``; the same command resumes.
"""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.core.dictionary import Dictionary
from baryflow.estimators import _adapt, _committee, _explanations, _leave_one_out, _sources
from experiments import mixes, results
from experiments.msda import problems
from experiments.scores import follow, rounded

RESULTS = Path(__file__).parent / "results" / "ablation.csv"
#: Made before there were explanations, with parts that are gone.
BEFORE = RESULTS.with_stem("ablation-0.2")
PAGE = "docs/method/what-was-tried.md"
KEY = ("set", "target", "part", "mix")
FIELDS = (*KEY, "rows", "not_adapting", "flowing", "end", "adapts", "shift_belief", "seconds")
SOURCE_ROWS, TARGET_ROWS, TARGETS, BATCH = 2000, 800, 4, 50


@contextlib.contextmanager
def patched(*changes):
    """Set (module, name, value) for a while."""
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    try:
        for change in changes:
            setattr(*change)
        yield
    finally:
        for change in before:
            setattr(*change)


# -- what is switched off --------------------------------------------------------------------------


def without_experts(is_removed):
    """Give experts no weight; not adapting stays as it is."""

    def learn_committee(committee, trials):
        kept = np.array([not is_removed(name) for name in committee.experts])

        def learn_weights(tables):
            weights = np.zeros(len(kept))
            weights[kept] = original([(logs[kept], codes) for logs, codes in tables])
            return weights

        with patched((_committee, "learn_weights", learn_weights)):
            return _committee.learn_committee(committee, trials)

    original = _committee.learn_weights
    return [(_leave_one_out, "learn_committee", learn_committee)]


def without_posteriors():
    """Let class probabilities not count in the costs of transport plans."""

    def fit_dictionary(*arguments):
        *others, posteriors = arguments
        return original(*others, np.full_like(posteriors, 1.0 / posteriors.shape[1]))

    original = _adapt.fit_dictionary
    return [(_adapt, "fit_dictionary", fit_dictionary)]


def with_steps(n_steps):
    """Let the dictionary take more steps towards a target, or none."""

    def step(dictionary, domains, frozen=()):
        if not n_steps:
            return np.array([dictionary.transport(domain) for domain in domains])
        losses = [original_step(dictionary, domains, frozen) for _ in range(n_steps)]
        return losses[0]

    def fit_dictionary(*arguments):
        with patched((Dictionary, "step", step)):
            return original(*arguments)

    original, original_step = _adapt.fit_dictionary, Dictionary.step
    return [(_adapt, "fit_dictionary", fit_dictionary)]


def without_explanations(*names):
    """Propose no explanations of these names."""

    def propose(*arguments):
        return [one for one in original(*arguments) if one.name not in names]

    original = _explanations.propose
    return [(module, "propose", propose) for module in (_adapt, _leave_one_out)]


def without_evidence(name):
    """Measure nothing of this kind of evidence."""

    def measure_evidence(*arguments):
        found = original(*arguments)
        found[:, _explanations.EVIDENCE.index(name)] = 0.0
        return found

    original = _explanations.measure_evidence
    return [(module, "measure_evidence", measure_evidence) for module in (_adapt, _leave_one_out)]


def with_default_coefficients():
    """Let leave-one-source-out learn the experts' weights alone."""
    return [(_leave_one_out, "learn_coefficients", lambda _: _explanations.DEFAULT_COEFFICIENTS)]


def is_raw(name):
    return not (is_per_domain(name) or is_view(name))


def is_per_domain(name):
    return name.endswith(", per domain")


def is_view(name):
    return name in ("reconstruction", "components")


#: By name: what is patched, and parameters.
PARTS = {
    "default": ([], {}),
    "no raw classifiers": (without_experts(is_raw), {}),
    "no classifiers per domain": (without_experts(is_per_domain), {}),
    "no dictionary": (without_experts(is_view), {}),
    "no class probabilities in plans": (without_posteriors(), {}),
    "one component a class": ([(_sources, "COMPONENTS_PER_CLASS", 1)], {}),
    "no steps": (with_steps(0), {}),
    "three steps": (with_steps(3), {}),
    "no explanation by votes": (without_explanations(_explanations.VOTES), {}),
    "no fixed points": (without_explanations(_explanations.FIXED_POINT), {}),
    "always adapt": (without_explanations(_explanations.NOT_ADAPTING), {}),
    "no evidence of likelihood": (without_evidence("likelihood"), {}),
    "no evidence of fit": (without_evidence("fit"), {}),
    "no evidence of calibration": (without_evidence("calibration"), {}),
    "no evidence of votes": (without_evidence("votes"), {}),
    "likeliest explanation alone": ([(_adapt, "_MOST", 1)], {}),
    "default coefficients": (with_default_coefficients(), {}),
    "no label shift": ([], {"label_shift": False}),
    "even weights": ([], {"validate": False}),
}


# -- running ---------------------------------------------------------------------------------------


def main(arguments=None):
    parser = results.parser(__doc__, RESULTS, problems.SETS, TARGETS)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--mixes", nargs="*", choices=mixes.MIXES, default=mixes.MIXES)
    return results.make(parser.parse_args(arguments), run, table, RESULTS, PAGE, "ablation")


def run(options):
    """Do what is not done yet."""
    done = {tuple(row[name] for name in KEY) for row in results.read(options.out)}
    for which in options.sets:
        for target in targets(options.data, which, options.targets):
            for part in options.parts:
                wanted = [mix for mix in options.mixes if (which, target, part, mix) not in done]
                start = time.perf_counter()
                if rows := list(try_part(options.data, which, target, part, wanted)):
                    results.append(options.out, FIELDS, rows)
                    words = f"{which} {target}: {part}, {time.perf_counter() - start:.0f} s"
                    print(words, file=sys.stderr, flush=True)


def targets(data, which, most):
    """Return the names of up to this many targets of a set, spread over all."""
    splits = range(most) if which in ("make_domains", "affine") else (0,)
    names = [name for split in splits for name in problems.targets(data, which, split)]
    if not names:
        print(f"{which}: not found under --data {data}, skipped", file=sys.stderr)
        return []
    chosen = np.unique(np.linspace(0, len(names) - 1, most).astype(int))
    return [names[i] for i in chosen]


def problem(data, which, target):
    """Return sources and target with fewer rows."""
    seed = int(target[4:]) if target.startswith("seed") else 0
    p = problems.problem(data, which, target, seed)
    step = -(-sum(map(len, p.ys)) // SOURCE_ROWS)
    some = np.random.default_rng(0).permutation(len(p.y))[:TARGET_ROWS]
    return replace(
        p, Xs=[X[::step] for X in p.Xs], ys=[y[::step] for y in p.ys], X=p.X[some], y=p.y[some]
    )


def try_part(data, which, target, part, wanted):
    """Yield the rows of one target and part."""
    p = problem(data, which, target)
    streams = {mix: problems.flow(p, mix, "shuffled", 0) for mix in wanted}
    streams = {mix: rows for mix, rows in streams.items() if len(rows) >= mixes.FEWEST}
    if not streams:
        return
    changes, parameters = PARTS[part]
    with patched(*changes):
        start = time.perf_counter()
        model = OnlineDaDiL(random_state=0, **parameters).fit(*p.pooled())
        seconds = time.perf_counter() - start
        for mix, rows in streams.items():
            figures = rounded(follow(model.spawn(), p.stream(rows), BATCH) | {"seconds": seconds})
            stem = dict(zip(KEY, (which, target, part, mix), strict=True))
            yield stem | {name: figures[name] for name in FIELDS if name in figures}


def table(rows):
    """One line a part: means over sets of the default, and by how many points the others differ."""
    found = {"default": {}}
    for r in rows:
        found.setdefault(r["part"], {})[r["set"], r["target"], r["mix"]] = r
    lines = ["| part | as they come: flowing | end | other class proportions: flowing | end | targets |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for part, mine in found.items():
        shared = mine.keys() & found["default"].keys()
        cells = []
        for as_is in (True, False):
            for figure in ("flowing", "end"):
                by_set = {}
                for key in sorted(shared):
                    if (key[2] == "as is") == as_is:
                        base = 0.0 if part == "default" else float(found["default"][key][figure])
                        gap = 100 * (float(mine[key][figure]) - base)
                        by_set.setdefault(key[0], []).append(gap)
                mean = np.mean([np.mean(gaps) for gaps in by_set.values()]) if by_set else None
                sign = "" if part == "default" else "+"
                cells.append("–" if mean is None else f"{mean:{sign}.1f}")
        if shared:
            n = len({key[:2] for key in shared})
            lines.append(f"| {part} | " + " | ".join(cells) + f" | {n} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
