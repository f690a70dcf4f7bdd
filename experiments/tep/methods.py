"""The methods: from a problem and what was learned of its sources to rows of the table."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from baryflow import OnlineDaDiL
from experiments.benchmark.methods.plain import own_moments, standardise
from experiments.scores import accuracy, follow
from experiments.tep.problems import ORDERS, stream

BATCH = 32
#: Rows of the sources that are transported, at most.
OT_ROWS = 2000


def regression(X, y):
    return LogisticRegression().fit(X, y)


def learn_rivals(p):
    return {
        "source": regression(standardise(p.Xs), p.ys),
        "per_domain": regression(own_moments(p.Xs, p.domain), p.ys),
    }


def rivals(p, models):
    """Everything but adaptation, on the rows kept back."""
    held = standardise(p.X_held, p.Xs)
    fixed = {
        "source-only LR": models["source"].predict(held),
        "encoder's head": p.head_held,
    }
    for order in ("shuffled", "plant"):  # without an order, runs are the same rows as shuffled
        flow = stream(p, order)
        own = standardise(p.X_held, flow.X)
        found = fixed | {
            "per-domain standardisation + LR": models["per_domain"].predict(own),
            "OT-DA (POT)": _optimal_transport(p, flow.X).predict(held),
            "target-trained LR": regression(standardise(flow.X), flow.y).predict(own),
        }
        for alias in ("shuffled", "runs") if order == "shuffled" else ("plant",):
            for name, predicted in found.items():
                yield {
                    "method": name,
                    "order": alias,
                    "rows": len(flow.y),
                    "held_out": accuracy(predicted, p.y_held),
                }


def _optimal_transport(p, X):
    """Earth mover's transport of the pooled sources onto the stream, then logistic regression."""
    import ot

    some = np.random.default_rng(0).permutation(len(p.Xs))[:OT_ROWS]
    mapped = ot.da.EMDTransport(max_iter=2_000_000).fit_transform(
        Xs=standardise(p.Xs)[some], ys=p.ys[some], Xt=standardise(X, p.Xs)
    )
    return regression(mapped, p.ys[some])


def learn_ours(p):
    return OnlineDaDiL(random_state=0).fit(p.Xs, p.ys, p.domain)


def ours(p, fitted):
    """OnlineDaDiL as it comes, in every order."""
    for order in ORDERS:
        figures = follow(fitted.spawn(), stream(p, order), BATCH)
        yield {"method": "OnlineDaDiL", "order": order} | figures


LEARN = {"ours": learn_ours, "rivals": learn_rivals}
PARTS = {"ours": ours, "rivals": rivals}
