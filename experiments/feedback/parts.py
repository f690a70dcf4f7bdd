"""What labels of target rows teach, measured part by part on one target."""

from __future__ import annotations

import json
import time
import warnings

import numpy as np

from baryflow.codec import encode
from experiments.feedback import problems, rivals

#: Labels of each class; seeds of their choice.
PER_CLASS, SEEDS = (1, 3, 5, 10), (0, 1)
#: Rounds of labels, as many as there are classes each: of queried rows, and of rows drawn at random.
QUERIED = (1, 2, 3, 5, 8)
DRAWN, DRAWN_SEEDS = (1, 2, 3, 5, 8, 12, 16, 24), (0, 1, 2)
#: Share of labels that are wrong, and labels of each class.
WRONG, WRONG_PER_CLASS = 0.1, (5, 10)
#: Errors that are corrected; labels of a single class, and classes for which this is done.
CORRECTED, OF_ONE_CLASS, CLASSES = (3, 10, 30), 10, 3
#: Calls of feedback, and how often they are measured.
CALLS, EVERY = 10_000, 500
#: Labels of a new class, and of rows drawn at random beside them.
OF_NEW_CLASS, BESIDE = 5, 5


class Target:
    """A model that has seen the stream of a target, and what its predictions were then."""

    def __init__(self, p, seed=0, **parameters):
        self.p = p
        self.model = p.follow(seed, **parameters)
        self.before = self.model.predict(p.X)

    def teach(self, rows, labels):
        """Return a model that learned labels of rows."""
        return self.model.spawn().feedback(self.p.X[rows], labels)

    def score(self, model, labelled, *, drawn=True):
        """Return the accuracy of a model and before: on all rows without a label if these were drawn.

        Otherwise on rows held out: those without a label are not like the others.
        """
        p = self.p
        rest = rest_of(p, labelled) if drawn else np.arange(p.n_stream, len(p.y))
        return {
            "n_labels": len(labelled),
            "rows": len(rest),
            "before": accuracy(self.before[rest], p.y[rest]),
            "accuracy": accuracy(model.predict(p.X[rest]), p.y[rest]),
        }


def accuracy(found, y):
    return float((found == y).mean()) if len(y) else float("nan")


def rest_of(p, labelled):
    return np.setdiff1d(np.arange(len(p.y)), labelled)


def draw(p, per_class, seed):
    """Return rows of the stream, some of each class: no more than half of it."""
    rng = np.random.default_rng([seed, 17])
    y, found = p.y[: p.n_stream], []
    for label in np.unique(p.y):
        rows = rng.permutation(np.flatnonzero(y == label))
        found.append(rows[: min(per_class, len(rows) // 2)])
    return np.concatenate(found)


def measure_labels(target, seeds=SEEDS):
    """Labels of each class."""
    p = target.p
    for seed in seeds:
        for k in PER_CLASS:
            rows = draw(p, k, seed)
            found = target.score(target.teach(rows, p.y[rows]), rows)
            yield {"seed": seed, "detail": k, "method": "feedback"} | found


def measure_rivals(p, seeds=SEEDS):
    """Rivals that learn from the same labels."""
    plain = rivals.Plain(p)
    for seed in seeds:
        for k in PER_CLASS:
            rows = draw(p, k, seed)
            rest = rest_of(p, rows)
            found = {"labels alone": rivals.labels_alone(p, rows, rest)}
            chosen = plain.member, plain.pick_weight(rows)
            for member in rivals.MEMBERS:
                for weight in rivals.SHARES:
                    said = plain.predict(member, weight, rows, rest)
                    found[", ".join((*member, weight))] = said
                    if (member, weight) == chosen:
                        found["plain, chosen"] = said
            own = {"seed": seed, "detail": k, "n_labels": len(rows), "rows": len(rest)}
            for method, said in found.items():
                yield own | {"method": method, "accuracy": accuracy(said, p.y[rest])}


def measure_query(target):
    """Rounds of queried rows against rows drawn at random, judged by rows held out."""
    p = target.p
    size = len(np.unique(p.y))
    pool = np.flatnonzero(target.model.state_.recent.at(np.arange(p.n_stream))[1])
    model, rows = target.model.spawn(), np.zeros(0, dtype=int)
    for number in range(1, max(QUERIED) + 1):
        asked = model.query(size)
        if not len(asked):
            break
        rows = np.concatenate([rows, asked.positions])
        model.feedback(asked.rows, p.y[asked.positions])
        if number in QUERIED:
            yield {"detail": number, "method": "query"} | target.score(model, rows, drawn=False)
    for seed in DRAWN_SEEDS:
        turn = np.random.default_rng([seed, 23]).permutation(pool)
        model, n = target.model.spawn(), 0
        for number in DRAWN:
            if n == len(turn):
                break
            new, n = turn[n : number * size], min(number * size, len(turn))
            model.feedback(p.X[new], p.y[new])
            found = target.score(model, turn[:n], drawn=False)
            yield {"seed": seed, "detail": number, "method": "random"} | found


def measure_wrong(target, seeds=SEEDS):
    """Some labels are wrong: another class at random."""
    p = target.p
    for seed in seeds:
        for k in WRONG_PER_CLASS:
            rows = draw(p, k, seed)
            rng = np.random.default_rng([seed, 29])
            labels, classes = p.y[rows].copy(), np.unique(p.ys)
            for i in rng.permutation(len(rows))[: round(WRONG * len(rows))]:
                labels[i] = rng.choice(classes[classes != labels[i]])
            for method, said in (("right", p.y[rows]), ("wrong", labels)):
                found = target.score(target.teach(rows, said), rows)
                yield {"seed": seed, "detail": k, "method": method} | found


def measure_biased(target, seeds=SEEDS):
    """Only errors are corrected, or only rows of one class get labels."""
    p = target.p
    stream = np.arange(p.n_stream)
    for seed in seeds:
        rng = np.random.default_rng([seed, 31])
        wrong = rng.permutation(stream[target.before[stream] != p.y[stream]])
        for n in CORRECTED:
            if n <= len(wrong):
                found = target.score(target.teach(wrong[:n], p.y[wrong[:n]]), wrong[:n], drawn=False)
                yield {"seed": seed, "detail": n, "method": "errors alone"} | found
        for label in rng.permutation(np.unique(p.ys))[:CLASSES]:
            rows = rng.permutation(stream[p.y[stream] == label])[:OF_ONE_CLASS]
            if len(rows) == OF_ONE_CLASS:
                found = target.score(target.teach(rows, p.y[rows]), rows, drawn=False)
                yield {"seed": seed, "detail": int(label), "method": "one class alone"} | found


def measure_many(target):
    """One label a call, of rows drawn at random and moved a little: size of the state, time a call."""
    p = target.p
    rng, model = np.random.default_rng(37), target.model.spawn()
    scale, spent = 0.01 * p.X[: p.n_stream].std(axis=0), 0.0
    for call in range(1, CALLS + 1):
        row = int(rng.integers(p.n_stream))
        X = p.X[[row]] + scale * rng.standard_normal((1, p.X.shape[1]))
        start = time.perf_counter()
        model.feedback(X, p.y[[row]])
        spent += time.perf_counter() - start
        if call % EVERY == 0 or call == 1:
            n = EVERY if call > 1 else 1
            values, arrays = encode(model.state_)
            size = len(json.dumps(values)) + sum(array.nbytes for array in arrays.values())
            found = {"bytes": size, "seconds": spent / n, "n_labels": call, "method": "feedback"}
            yield found | {"accuracy": accuracy(model.predict(p.X), p.y)}
            spent = 0.0


def measure_new_class(p, label, split, seeds=SEEDS):
    """A class is in no source: a few labels of it alone, or with labels of rows drawn at random."""
    target = Target(p.without(label), split)
    stream = np.arange(p.n_stream)
    own = stream[p.y[stream] == label]
    for seed in seeds:
        rng = np.random.default_rng([seed, 41])
        of_it = rng.permutation(own)[: min(OF_NEW_CLASS, len(own) // 2)]
        others = rng.permutation(np.setdiff1d(stream, of_it))[:BESIDE]
        for method, rows in (("alone", of_it), ("and others", np.concatenate([of_it, others]))):
            rest = rest_of(p, rows)
            after = target.teach(rows, p.y[rows]).predict(p.X)
            yield {
                "seed": seed,
                "method": method,
                "n_labels": len(rows),
                "rows": len(rest),
            } | _recall(p, label, rest, after, target.before)
        yield {"seed": seed, "method": "target-trained"} | _target_trained(p, label, seed)


def _recall(p, label, rest, after, before=None):
    new = rest[p.y[rest] == label]
    known = rest[p.y[rest] != label]
    found = {
        "recall": accuracy(after[new], label * np.ones_like(new)),
        "false_alarms": float((after[known] == label).mean()),
        "accuracy": accuracy(after[known], p.y[known]),
    }
    return found if before is None else found | {"before": accuracy(before[known], p.y[known])}


def _target_trained(p, label, seed):
    """Return what a logistic regression of half of the target's rows does on the other half."""
    halves = np.array_split(np.random.default_rng([seed, 43]).permutation(len(p.y)), 2)
    said = np.empty_like(p.y)
    for inside, out in (halves, halves[::-1]):
        said[out] = rivals.labels_alone(p, inside, out)
    return _recall(p, label, np.arange(len(p.y)), said)


PARTS = {
    "labels": measure_labels,
    "query": measure_query,
    "wrong": measure_wrong,
    "biased": measure_biased,
    "many": measure_many,
}


def new_classes(which, p, target_number):
    """Return the classes that are left out of the sources in turn."""
    found = np.unique(p.y)
    if which in ("make_domains", "cstr7"):
        return found
    return found[target_number % len(found) :: max(1, len(found) // CLASSES)][:CLASSES]


def run(data, which, target, split, number, wanted, done):
    """Yield (part, class left out, figures) of all that is wanted and not done."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        p, model = problems.load(data, which, target, split), None
        for part in wanted:
            if part == "new class":
                for label in new_classes(which, p, number):
                    if (part, str(label)) not in done:
                        yield part, str(label), list(measure_new_class(p, label, split))
            elif (part, "") in done:
                continue
            elif part == "rivals":
                yield part, "", list(measure_rivals(p))
            else:
                model = model or Target(p, split)
                yield part, "", list(PARTS[part](model))
