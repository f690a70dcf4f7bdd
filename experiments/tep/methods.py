"""The methods: each takes a problem and yields rows of the table."""

from __future__ import annotations

import copy
import time
from dataclasses import replace

import numpy as np
from sklearn.linear_model import LogisticRegression

from baryflow import DaDiL, MixtureClassifier, OnlineDaDiL
from experiments.msda.methods import OT_ROWS, standardise
from experiments.tep.problems import stream

BATCHES = (32, 8, 128)
REFINE_STEPS = 12


def configurations(seed):
    """Ours, as it comes out of the box, and the paper's."""
    paper = {"components_per_class": 1, "view": False, "proportions": False, "votes": False}
    return {
        "ours": (OnlineDaDiL(random_state=seed), DaDiL(random_state=seed)),
        "paper": (
            OnlineDaDiL.paper(random_state=seed),
            DaDiL(predictor="map", random_state=seed, **paper),
        ),
    }


class Score:
    """Accuracy on the rows kept back: ten runs of every class, whatever the stream shows of them."""

    def __init__(self, p):
        self.X, self.y, self.head = p.X_held, p.y_held, p.head_held

    def __call__(self, found):
        return round(float((found == self.y).mean()), 5)


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
    score = Score(p)
    held = standardise(score.X, p.Xs)
    fixed = {
        "source-only LR": score(models["source"].predict(held)),
        "encoder's head": score(score.head),
        "source MixtureClassifier": score(models["mixture"].predict(held)),
    }
    for order in ("shuffled", "plant"):  # without an order, runs are the same rows as shuffled
        X, y = stream(p, order)
        own = standardise(score.X, X)
        found = fixed | {
            "per-domain standardisation + LR": score(models["per_domain"].predict(own)),
            "OT-DA (POT)": score(_optimal_transport(p, X).predict(held)),
            "target-trained LR": score(regression(standardise(X), y).predict(own)),
        }
        for alias in ("shuffled", "runs") if order == "shuffled" else ("plant",):
            for name, value in found.items():
                yield name, alias, {"held_out": value}


def _optimal_transport(p, X):
    """Earth mover's transport of the pooled sources onto the stream, then logistic regression."""
    import ot

    some = np.random.default_rng(0).permutation(len(p.Xs))[:OT_ROWS]
    onto = standardise(X, p.Xs)
    mapped = ot.da.EMDTransport(max_iter=2_000_000).fit_transform(
        Xs=standardise(p.Xs)[some], ys=p.ys[some], Xt=onto
    )
    return regression(mapped, p.ys[some])


def on_one_scale(p):
    """The paper's method has no view of its own: columns are standardised by the pooled sources."""
    return replace(
        p,
        Xs=standardise(p.Xs),
        X=standardise(p.X, p.Xs),
        X_held=standardise(p.X_held, p.Xs),
        X_normal=standardise(p.X_normal, p.Xs),
    )


def offline(p, name, model, decided):
    """Adapt to the whole stream at once; also the curve of its loss and its accuracy.

    What was decided from the sources, the same in every fold, is taken over where a parameter says it.
    """
    if decided.predictor == "combined" and decided.voter == "both":
        model.set_params(predictor="combined")
    for order in ("shuffled", "plant"):  # offline, runs are the same rows as shuffled
        X, _ = stream(p, order)
        start = time.perf_counter()
        fitted = copy.deepcopy(model).fit(
            np.concatenate([p.Xs, X]),
            np.concatenate([p.ys, np.zeros(len(X), dtype=p.ys.dtype)]),
            np.concatenate([p.domain, np.full(len(X), -1)]),
        )
        seconds = time.perf_counter() - start
        score = Score(p)
        figures = {"held_out": score(fitted.predict(score.X)), "seconds": seconds, **_decision(fitted)}
        curve = [] if order == "plant" else list(np.asarray(fitted.loss_curve_)[:, -1])
        for alias in ("shuffled", "runs") if order == "shuffled" else ("plant",):
            yield f"{name}: offline", alias, figures, curve if alias == "shuffled" else []


def online(p, name, fitted, order, batch):
    """Stream the target past a model that has learned the sources."""
    model = copy.deepcopy(fitted)
    X, y = stream(p, order)
    score = Score(p)
    right, source_right, spent, curve = [], [], 0.0, []
    trace = order == "shuffled" and batch == 32
    for start in range(0, len(X), batch):
        rows = slice(start, start + batch)
        right.append(model.predict(X[rows]) == y[rows])
        source_right.append(model.classes_[model._model.pooled_proba(X[rows]).argmax(axis=1)] == y[rows])
        clock = time.perf_counter()
        model.partial_fit(X[rows])
        spent += time.perf_counter() - clock
        if trace:
            curve.append(("stream", model.loss_curve_[-1, 1], score(model.predict(score.X))))
    right, source_right = np.concatenate(right), np.concatenate(source_right)
    fifth = len(right) // 5
    figures = {
        "prequential": right.mean(),
        "source_prequential": source_right.mean(),
        "first_fifth": right[:fifth].mean(),
        "last_fifth": right[-fifth:].mean(),
        "source_first_fifth": source_right[:fifth].mean(),
        "source_last_fifth": source_right[-fifth:].mean(),
        "end": score(model.predict(score.X)),
        "trust": model.trust_,
        "seconds_a_batch": spent / len(range(0, len(X), batch)),
        **_decision(model),
    }
    for _ in range(REFINE_STEPS if trace else 1):
        model.refine(1 if trace else REFINE_STEPS)
        if trace:
            curve.append(("refine", model.loss_curve_[-1, 1], score(model.predict(score.X))))
    found = model.predict(score.X)
    figures["held_out"] = score(found)
    figures["resemblance"] = " ".join(f"{k}:{v:.3f}" for k, v in model.resemblance_.items())
    return f"{name}: online", figures, curve, found


def _decision(model):
    chosen = model._decision.options
    return {"decision": f"{chosen.predictor}/{chosen.voter}"}
