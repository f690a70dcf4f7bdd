"""The methods: each takes a problem and streams of it, and yields rows of the table."""

from __future__ import annotations

import sys
import time
import warnings
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from baryflow import DaDiL, MixtureClassifier, OnlineDaDiL
from experiments import mixes
from experiments.msda.plain import PlainClassifiers, standardise
from experiments.msda.problems import flow
from experiments.scores import accuracy, follow, shift_belief

BATCH = 32
#: Stream seeds of a mix other than "as is": each draws another dominating class and another order.
MIX_SEEDS = 2
OT_ROWS = 2000

#: Ours by name on the command line: name in the tables, and parameters.
OURS = {
    "ours": ("ours", {}),
    "no-label-shift": ("ours, no label shift", {"label_shift": False}),
    "linear": ("ours, linear", {"classifier": "linear"}),
}
PICKED = "plain classifier, picked"


def streams_of(part, split, seeds):
    """Yield (mix, order, seed) of the streams on which a part is run; offline there is no order."""
    if part in OFFLINE:
        yield "as is", "", split
    else:
        often = part in ("ours", "plain")
        for order in mixes.ORDERS:
            yield from (("as is", order, seed) for seed in (seeds if often else seeds[:1]))
        for mix in mixes.MIXES[1:]:
            for order in mixes.MIX_ORDERS:
                yield from ((mix, order, s) for s in seeds[: MIX_SEEDS if often else 1])


def run(part, p, mix, order, seed, split, known):
    """Yield (method, figures) of one part on one stream; `known` keeps what the sources taught."""
    if part in OFFLINE:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for name, figures in OFFLINE[part](p, split):
                yield name, {"rows": len(p.y)} | figures
        return
    rows = flow(p, mix, order, seed)
    if len(rows) < mixes.FEWEST:
        words = f"{p.set} {p.target}: {mix}, {order}, seed {seed}: {len(rows)} rows, skipped"
        print(words, file=sys.stderr)
    elif part == "plain":
        yield from plain(p, p.stream(rows), known)
    else:
        name, options = OURS[part]
        yield name, online(p, p.stream(rows), partial(ours, split, **options), known)


def ours(seed, **options):
    return OnlineDaDiL(random_state=seed, **options)


def online(p, stream, make, known):
    """Let a stream flow past a model that has learned the sources, unless they are known, now."""
    if p.draw not in known:
        start = time.perf_counter()
        known[p.draw] = make().fit(*p.pooled()), time.perf_counter() - start
    model, seconds = known[p.draw]
    return follow(model.spawn(), stream, BATCH) | {"seconds": seconds}


def plain(p, stream, known):
    """Every plain classifier, and the one that leave-one-source-out picks, on the same rows."""
    if p.draw not in known:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            known[p.draw] = PlainClassifiers(p.Xs, p.ys), time.perf_counter() - start
    classifiers, seconds = known[p.draw]
    for member, figures in classifiers.stream(stream, BATCH):
        name = ", ".join(member)
        yield f"plain: {name}", figures
        if member == classifiers.picked:
            yield PICKED, figures | {"detail": name, "seconds": seconds}


def simple_rivals(p, seed):
    X, y, _ = p.pooled()

    def row(method, predict, start):
        return method, {
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
    yield "target-trained LR", {"offline": score, "held_out": score, "seconds": seconds}


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
            yield name, {"detail": f"failed: {type(error).__name__}"}
            continue
        yield name, {
            "offline": accuracy(found, p.y),
            "held_out": accuracy(held, p.y_held),
            "seconds": time.perf_counter() - start,
        }  # fmt: skip


def offline(p, seed):
    """Adapt to the rows of the stream, and once more to all target rows, as is usual offline."""
    X, y, names = p.pooled()
    whole, truth = np.concatenate([p.X, p.X_held]), np.concatenate([p.y, p.y_held])
    for name, target, labels in (("DaDiL", p.X, p.y), ("DaDiL, all target rows", whole, truth)):
        start = time.perf_counter()
        model = DaDiL(random_state=seed).fit(
            np.concatenate([X, target]),
            np.concatenate([y, np.zeros(len(target), dtype=y.dtype)]),
            np.concatenate([names, np.full(len(target), -1)]),
        )
        figures = {
            "rows": len(target),
            "offline": accuracy(model.predict(target), labels),
            "seconds": time.perf_counter() - start,
            "adapts": bool(model.committee_.adapts),
            "shift_belief": shift_belief(model),
        }
        if target is p.X:
            figures["held_out"] = accuracy(model.predict(p.X_held), p.y_held)
        yield name, figures


#: Parts that see the whole target at once.
OFFLINE = {"offline": offline, "rivals": simple_rivals, "skada": skada_rivals}
PARTS = (*OURS, "plain", *OFFLINE)
