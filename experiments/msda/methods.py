"""The methods: each takes a problem and yields (method, order, {figure: value})."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from baryflow import DaDiL, MixtureClassifier, OnlineDaDiL
from experiments.msda.problems import in_order

ORDERS = ("shuffled", "runs", "class")
BATCH = 32
OT_ROWS = 2000

#: Each piece switched off by itself; "combined" keeps the decision out of the comparison.
ABLATIONS = {
    "everything on": {},
    "no view": {"view": False},
    "no proportions": {"proportions": False},
    "no votes": {"votes": False},
    "map only": {"predictor": "map"},
    "plan only": {"predictor": "plan"},
    "source only": {"predictor": "source"},
    "no restart": {"restart": False},
    "one component a class": {"components_per_class": 1},
}


def accuracy(found, y):
    return round(float((found == y).mean()), 5)


def standardise(X, like=None):
    like = X if like is None else like
    spread = like.std(axis=0)
    return (X - like.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def on_one_scale(p):
    """The problem with every column standardised by the pooled sources, for methods without a view."""
    X, _, _ = p.pooled()
    return replace(
        p,
        Xs=[standardise(S, X) for S in p.Xs],
        X=standardise(p.X, X),
        X_held=standardise(p.X_held, X),
    )


def simple_rivals(p, seed):
    X, y, _ = p.pooled()

    def row(method, predict, start):
        return method, "", {
            "offline": accuracy(predict(p.X), p.y),
            "held_out": accuracy(predict(p.X_held), p.y_held),
            "seconds": time.perf_counter() - start,
        }  # fmt: skip

    start = time.perf_counter()
    model = LogisticRegression().fit(standardise(X), y)
    yield row("source-only LR", lambda Z: model.predict(standardise(Z, X)), start)
    start = time.perf_counter()
    model = LogisticRegression().fit(np.concatenate([standardise(S) for S in p.Xs]), y)
    yield row("z-score + LR", lambda Z: model.predict(standardise(Z, p.X)), start)
    start = time.perf_counter()
    mixture = MixtureClassifier(1, 3, random_state=seed).fit(standardise(X), y)
    yield row("source MixtureClassifier", lambda Z: mixture.predict(standardise(Z, X)), start)
    start = time.perf_counter()
    transport = _optimal_transport(p, X, y, seed)
    yield row("OT-DA (POT)", transport, start)
    start = time.perf_counter()
    folds = StratifiedKFold(2, shuffle=True, random_state=seed)
    whole, labels = np.concatenate([p.X, p.X_held]), np.concatenate([p.y, p.y_held])
    few = np.isin(labels, np.flatnonzero(np.bincount(labels) < 2))
    found = cross_val_predict(LogisticRegression(), standardise(whole)[~few], labels[~few], cv=folds)
    score = accuracy(found, labels[~few])
    seconds = time.perf_counter() - start
    yield "target-trained LR", "", {"offline": score, "held_out": score, "seconds": seconds}


def _optimal_transport(p, X, y, seed):
    """Earth mover's transport of the pooled sources onto the target, then logistic regression."""
    import ot

    rng = np.random.default_rng(seed)
    some = rng.permutation(len(X))[:OT_ROWS]
    onto = rng.permutation(len(p.X))[:OT_ROWS]
    mapped = ot.da.EMDTransport(max_iter=2_000_000).fit_transform(
        Xs=standardise(X)[some], ys=y[some], Xt=standardise(p.X, X)[onto]
    )
    model = LogisticRegression().fit(mapped, y[some])
    return lambda Z: model.predict(standardise(Z, X))


def skada_rivals(p, seed):
    """Multi-source methods of skada, each in front of a logistic regression."""
    import skada

    X, y, names = p.pooled()
    some = np.random.default_rng(seed).permutation(len(X))[: 3 * OT_ROWS]
    scaled = standardise(X)
    rows = np.concatenate([scaled[some], standardise(p.X, X)])
    labels = np.concatenate([y[some], np.full(len(p.X), -1)])  # skada's mask for the target
    domains = np.concatenate([names[some], np.full(len(p.X), -(len(p.Xs) + 1))])
    target = np.full(len(p.X), domains[-1])
    for name, make in {
        "skada: CORAL": skada.CORAL,
        "skada: subspace alignment": skada.SubspaceAlignment,
        "skada: multi-linear Monge": skada.MultiLinearMongeAlignment,
    }.items():
        start = time.perf_counter()
        model = make(base_estimator=LogisticRegression().set_fit_request(sample_weight=True))
        try:
            model.fit(rows, labels, sample_domain=domains)
            found = model.predict(standardise(p.X, X), sample_domain=target)
            held = model.predict(standardise(p.X_held, X), sample_domain=target[: len(p.X_held)])
        except (ValueError, FloatingPointError) as error:
            yield name, "", {"decision": f"failed: {type(error).__name__}"}
            continue
        yield name, "", {
            "offline": accuracy(found, p.y),
            "held_out": accuracy(held, p.y_held),
            "seconds": time.perf_counter() - start,
        }  # fmt: skip


def offline(p, seed, **options):
    """Adapt to the rows of the stream, and once more to all target rows, as is usual offline."""
    X, y, names = p.pooled()
    whole, truth = np.concatenate([p.X, p.X_held]), np.concatenate([p.y, p.y_held])
    for name, target, labels in (("DaDiL", p.X, p.y), ("DaDiL, all target rows", whole, truth)):
        start = time.perf_counter()
        model = DaDiL(random_state=seed, **options).fit(
            np.concatenate([X, target]),
            np.concatenate([y, np.zeros(len(target), dtype=y.dtype)]),
            np.concatenate([names, np.full(len(target), -1)]),
        )
        chosen = model._decision.options
        figures = {
            "offline": accuracy(model.predict(target), labels),
            "seconds": time.perf_counter() - start,
            "decision": f"{chosen.predictor}/{chosen.voter}",
        }
        if target is p.X:
            figures["held_out"] = accuracy(model.predict(p.X_held), p.y_held)
        yield name, "", figures


def online(p, seeds, name, make, orders=ORDERS):
    """Fit the sources once, then stream the target in every order with every seed."""
    X, y, names = p.pooled()
    start = time.perf_counter()
    fitted = make().fit(X, y, names)
    fit_seconds = time.perf_counter() - start
    for order in orders:
        for seed in seeds:
            yield seed, *_stream(p, copy.deepcopy(fitted), name, order, seed, fit_seconds)


def _stream(p, model, name, order, seed, fit_seconds):
    turn = in_order(p.y, order, seed)
    right, source_right, spent = [], [], 0.0
    for start in range(0, len(turn), BATCH):
        rows = turn[start : start + BATCH]
        right.append(model.predict(p.X[rows]) == p.y[rows])
        source_right.append(
            model.classes_[model._model.pooled_proba(p.X[rows]).argmax(axis=1)] == p.y[rows]
        )
        clock = time.perf_counter()
        model.partial_fit(p.X[rows])
        spent += time.perf_counter() - clock
    right, source_right = np.concatenate(right), np.concatenate(source_right)
    fifth = len(right) // 5
    figures = {
        "prequential": round(float(right.mean()), 5),
        "source_prequential": round(float(source_right.mean()), 5),
        "first_fifth": round(float(right[:fifth].mean()), 5),
        "last_fifth": round(float(right[-fifth:].mean()), 5),
        "end": accuracy(model.predict(p.X), p.y),
        "held_out": accuracy(model.predict(p.X_held), p.y_held),
        "trust": round(model.trust_, 4),
        "decision": f"{model._decision.options.predictor}/{model._decision.options.voter}",
        "seconds": fit_seconds,
        "seconds_a_batch": spent / len(range(0, len(turn), BATCH)),
    }
    model.refine()
    figures["refined"] = accuracy(model.predict(p.X), p.y)
    figures["held_out_refined"] = accuracy(model.predict(p.X_held), p.y_held)
    return name, order, figures


def ablations(p, seed, stream_seeds):
    for name, options in ABLATIONS.items():
        settings = {"predictor": "combined"} | options

        def make(settings=settings):
            return OnlineDaDiL(random_state=seed, **settings)

        yield from online(p, stream_seeds[:1], f"ablation: {name}", make, ("shuffled", "class"))


def everything(p, seed, stream_seeds, part):
    """Yield (seed, method, order, figures) for one problem and one part of the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = {"rivals": simple_rivals, "skada": skada_rivals, "offline": offline}
        if part in whole:
            for found in whole[part](p, seed):
                yield seed, *found
        elif part == "online":
            yield from online(p, stream_seeds, "OnlineDaDiL", lambda: OnlineDaDiL(random_state=seed))
        elif part == "paper":
            make = lambda: OnlineDaDiL.paper(random_state=seed)  # noqa: E731 - as above
            yield from online(on_one_scale(p), stream_seeds[:1], "paper", make)
        else:
            yield from ablations(p, seed, stream_seeds)
