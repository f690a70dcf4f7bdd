"""The methods: each takes a problem and yields rows of the table."""

from __future__ import annotations

import copy
import time

import numpy as np
from sklearn.linear_model import LogisticRegression

from baryflow import DaDiL, MixtureClassifier, OnlineDaDiL
from experiments import mixes
from experiments.msda.methods import OT_ROWS
from experiments.msda.plain import standardise
from experiments.scores import accuracy, follow, shift_belief
from experiments.tep.problems import ORDERS, stream

BATCHES = (32, 8, 128)
NAMES = {"ours": "ours", "prior": "ours, class_prior"}


def configuration(part, seed):
    """Return the online and the offline model: out of the box, or with a known prior."""
    if part == "ours":
        return OnlineDaDiL(random_state=seed), DaDiL(random_state=seed)
    return OnlineDaDiL(class_prior={0: 0.5}, random_state=seed), None


def streams_of(part, mix, batches):
    """Return (order, batch) of the streams of a part. The first size of a batch is the usual one."""
    usual = BATCHES[:1]
    if mix != "as is":
        return [(order, batch) for order in mixes.MIX_ORDERS for batch in usual]
    if part == "prior":
        return [("plant", batch) for batch in usual]
    # Other sizes in the orders in which the docs compare them.
    return [
        (order, batch) for batch in batches for order in ORDERS if order != "class" or batch in usual
    ]


def regression(X, y):
    return LogisticRegression().fit(X, y)


def source_models(p):
    """What can be learned of the sources, the same in every fold."""
    own = np.empty_like(p.Xs)
    for name in np.unique(p.domain):
        own[p.domain == name] = standardise(p.Xs[p.domain == name])
    Z = standardise(p.Xs)
    return {
        "source": regression(Z, p.ys),
        "per_domain": regression(own, p.ys),
        "mixture": MixtureClassifier(1, 3, random_state=0).fit(Z, p.ys),
    }


def rivals(p, models):
    """Everything but the dictionary."""

    def score(found):
        return accuracy(found, p.y_held)

    held = standardise(p.X_held, p.Xs)
    fixed = {
        "source-only LR": score(models["source"].predict(held)),
        "encoder's head": score(p.head_held),
        "source MixtureClassifier": score(models["mixture"].predict(held)),
    }
    for order in ("shuffled", "plant"):  # without an order, runs are the same rows as shuffled
        flow = stream(p, order)
        X, y = flow.X, flow.y
        own = standardise(p.X_held, X)
        found = fixed | {
            "per-domain standardisation + LR": score(models["per_domain"].predict(own)),
            "OT-DA (POT)": score(_optimal_transport(p, X).predict(held)),
            "target-trained LR": score(regression(standardise(X), y).predict(own)),
        }
        for alias in ("shuffled", "runs") if order == "shuffled" else ("plant",):
            for name, value in found.items():
                yield name, alias, {"rows": len(y), "held_out": value}


def _optimal_transport(p, X):
    """Earth mover's transport of the pooled sources onto the stream, then logistic regression."""
    import ot

    some = np.random.default_rng(0).permutation(len(p.Xs))[:OT_ROWS]
    onto = standardise(X, p.Xs)
    mapped = ot.da.EMDTransport(max_iter=2_000_000).fit_transform(
        Xs=standardise(p.Xs)[some], ys=p.ys[some], Xt=onto
    )
    return regression(mapped, p.ys[some])


def offline(p, part, model):
    """Adapt to the whole stream at once; also the curve of its loss."""
    for order in ("shuffled", "plant"):  # offline, runs are the same rows as shuffled
        X = stream(p, order).X
        start = time.perf_counter()
        fitted = copy.deepcopy(model).fit(
            np.concatenate([p.Xs, X]),
            np.concatenate([p.ys, np.zeros(len(X), dtype=p.ys.dtype)]),
            np.concatenate([p.domain, np.full(len(X), -1)]),
        )
        figures = {
            "rows": len(X),
            "seconds": time.perf_counter() - start,
            "held_out": accuracy(fitted.predict(p.X_held), p.y_held),
            "adapts": bool(fitted.committee_.adapts),
            "shift_belief": shift_belief(fitted),
        }
        losses = fitted.history_.losses[-1]
        curve = [(step, "offline", loss, "") for step, loss in enumerate(losses)]
        for alias in ("shuffled", "runs") if order == "shuffled" else ("plant",):
            yield f"{NAMES[part]}: offline", alias, figures, curve if alias == "shuffled" else []


def online(p, part, fitted, order, batch, mix="as is"):
    """Stream the target past a model that has learned the sources.

    Returns the method's name, figures, the curve of one stream, and what is found on the rows kept back.
    """
    model, flow, curve = fitted.spawn(), stream(p, order, mix), []

    def watch(model):
        score = accuracy(model.predict(p.X_held), p.y_held)
        curve.append((len(curve), "stream", model.history_.losses[-1, 1], score))

    trace = (mix, order, batch) == ("as is", "shuffled", BATCHES[0])
    figures = follow(model, flow, batch, watch if trace else None)
    figures["resemblance"] = " ".join(f"{k}:{v:.3f}" for k, v in model.resemblance_.items())
    return f"{NAMES[part]}: online", figures, curve, model.predict(p.X_held)
