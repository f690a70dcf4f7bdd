"""The methods: each takes a problem and yields (method, order, {figure: value})."""

from __future__ import annotations

import copy
import sys
import time
import warnings
from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from baryflow import DaDiL, MixtureClassifier, OnlineDaDiL
from experiments import mixes
from experiments.msda.problems import flow
from experiments.scores import accuracy, follow

BATCH = 32
#: Stream seeds of a mix other than "as is": each draws another dominating class and another order.
MIX_SEEDS = 2
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
    "no restart": {"warm_start": True},
    "one component a class": {"components_per_class": 1},
}


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
        figures = {
            "rows": len(target),
            "offline": accuracy(model.predict(target), labels),
            "seconds": time.perf_counter() - start,
            "decision": model._session.knowledge.decision.summary(),
        }
        if target is p.X:
            figures["held_out"] = accuracy(model.predict(p.X_held), p.y_held)
        yield name, "", figures


def online(p, mix, seeds, name, make, known=None, orders=mixes.ORDERS, damage=lambda stream: stream):
    """Learn the sources, unless they are known, then stream the target in every order and seed."""
    known = {} if known is None else known
    for order in orders:
        for seed in seeds:
            rows = flow(p, mix, order, seed)
            if len(rows) < mixes.FEWEST:
                words = f"{p.set} {p.target}: {mix}, {order}, seed {seed}: {len(rows)} rows, skipped"
                print(words, file=sys.stderr)
                continue
            if p.draw not in known:
                known[p.draw] = _learn(p, make())
            model, seconds = known[p.draw]
            figures = _stream(damage(p.stream(rows)), copy.deepcopy(model))
            yield seed, name, order, figures | {"seconds": seconds}


def _learn(p, model):
    start = time.perf_counter()
    return model.fit(*p.pooled()), time.perf_counter() - start


def _stream(stream, model):
    figures = follow(model, stream, BATCH)
    model
    figures["refined"], figures["held_out_refined"] = stream.accuracies(model.predict)
    return figures


def ablations(p, seed, stream_seeds):
    for name, options in ABLATIONS.items():
        # Without rehearsals: no decision interferes.
        settings = {"predictor": "combined", "rehearse": False} | options

        def make(settings=settings):
            return OnlineDaDiL(random_state=seed, **settings)

        yield from online(
            p, "as is", stream_seeds[:1], f"ablation: {name}", make, orders=mixes.MIX_ORDERS
        )


def spikes(p, seed, stream_seeds):
    """Sensors that glitch, and one that is constant in the sources and a little off in the target."""
    known = {}
    for name, problem, damage in (
        ("spikes: none", p, lambda stream: stream),
        ("spikes: eight cells", p, with_spikes),
        ("spikes: constant column", with_constant_column(p, seed), lambda stream: stream),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="column ", category=UserWarning
            )  # that is the point
            yield from online(
                problem, "as is", stream_seeds[:MIX_SEEDS], name, lambda: OnlineDaDiL(random_state=seed),
                known, ("shuffled",), damage,
            )  # fmt: skip


def with_spikes(stream, n_cells=8, size=1e4):
    """Set one cell in each of eight columns to a huge value, spread over the stream."""
    X = stream.X.copy()
    at = ((np.arange(n_cells) + 0.5) / n_cells * len(X)).astype(int)
    X[at, np.arange(n_cells) % X.shape[1]] = size
    return replace(stream, X=X)


def with_constant_column(p, seed):
    """Append a column that is 0.1 up to rounding in the sources, and 1e-9 more in the target."""
    rng = np.random.default_rng(seed)

    def append(X, column):
        return np.column_stack([X, column])

    return replace(
        p,
        Xs=[append(X, 0.1 * (1 + 1e-16 * rng.standard_normal(len(X)))) for X in p.Xs],
        X=append(p.X, np.full(len(p.X), 0.1 + 1e-9)),
        X_held=append(p.X_held, np.full(len(p.X_held), 0.1 + 1e-9)),
        draw="constant column",
    )


def priors(p, mix, seed, stream_seeds):
    """What it is worth to be told that one class has half of the rows."""
    known = {}
    for one in stream_seeds[:MIX_SEEDS]:
        common = int(np.bincount(p.y[flow(p, mix, "shuffled", one)]).argmax())
        for name, options, learned in (
            ("prior: none", {}, known),
            ("prior: one half", {"class_prior": {common: 0.5}}, {}),
        ):

            def make(options=options):
                return OnlineDaDiL(random_state=seed, **options)

            yield from online(p, mix, [one], name, make, learned, mixes.MIX_ORDERS)


def everything(p, mix, seed, stream_seeds, part, known):
    """Yield (seed, method, order, figures) for one problem, one mix and one part of the table.

    `known` keeps what part "online" has learned of the sources from one mix to the next.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = {"rivals": simple_rivals, "skada": skada_rivals, "offline": offline}
        if part in whole:
            for name, order, figures in whole[part](p, seed):
                yield seed, name, order, {"rows": len(p.y)} | figures
        elif part == "online":
            as_is = mix == "as is"
            seeds = stream_seeds if as_is else stream_seeds[:MIX_SEEDS]
            orders = mixes.ORDERS if as_is else mixes.MIX_ORDERS
            make = lambda: OnlineDaDiL(random_state=seed)  # noqa: E731 - called only where not yet known
            yield from online(p, mix, seeds, "OnlineDaDiL", make, known, orders)
        elif part == "paper":
            make = lambda: OnlineDaDiL.paper(random_state=seed)  # noqa: E731 - as above
            yield from online(on_one_scale(p), mix, stream_seeds[:1], "paper", make)
        elif part == "spikes":
            yield from spikes(p, seed, stream_seeds)
        elif part == "prior":
            yield from priors(p, mix, seed, stream_seeds)
        else:
            yield from ablations(p, seed, stream_seeds)
