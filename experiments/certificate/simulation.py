"""Label rows of recorded streams at random, and compare what the certificate claims with the truth."""

from __future__ import annotations

import numpy as np

from baryflow.estimators import _certificate
from baryflow.estimators._certificate import Certificate, log_capital
from experiments.certificate.streams import BATCH

#: Share of the rows that are labelled.
RATES = (0.05, 0.2, 1.0)
SEEDS = 20
#: Numbers of labels after which bounds are compared with the truth.
AFTER = (50, 200, 500)
_HIT = np.array([0.0, 1.0])


def simulate(outcomes, rate, seeds=SEEDS):
    """Return the figures of one stream: sums over the draws of labels, and means of bounds.

    With all rows labelled there is one draw.
    """
    runs = [one_run(outcomes, rate, seed) for seed in range(1 if rate == 1.0 else seeds)]
    ours, not_adapting = outcomes.mean(axis=0)
    figures = {"rows": len(outcomes), "runs": len(runs), "adapting": ours, "not_adapting": not_adapting}
    for name in runs[0]:
        found = [run[name] for run in runs if run[name] is not None]
        if name.startswith(("false", "harm", "lifted")):
            figures[name] = sum(found)
        else:
            figures[name] = float(np.mean(found)) if found else ""
    return figures


def one_run(outcomes, rate, seed):
    """Label rows at random and read the certificate after each batch; predict as `harm` demands.

    The truth is known in two ways: the mean over the labels of the accuracy of their batches, which is
    what the certificate bounds, and the accuracy of all rows up to then.
    """
    rng = np.random.default_rng([seed, round(100 * rate)])
    certificate, read, batches, since = Certificate(), [], [], 0
    figures = dict.fromkeys(("harm", "lifted", "false_harm", "false_harm_rows", "false_lifted"), 0)
    for start in range(0, len(outcomes), BATCH):
        ours, other = outcomes[start : start + BATCH].T.astype(bool)
        made = other if certificate.harm else ours
        labelled = rng.permutation(np.flatnonzero(rng.random(len(ours)) < rate))
        before, certificate = certificate, certificate.plus(*(v[labelled] for v in (made, other, ours)))
        gain = ours.mean() - other.mean()
        batches.append((len(ours), len(labelled), made.mean(), gain))
        read.append(certificate)
        if certificate.harm != before.harm:
            rows, labels, _, gains = np.array(batches[since:]).T
            since = len(batches)
            if certificate.harm:
                figures["harm"] = 1
                figures["false_harm"] |= int(labels @ gains >= 0.0)
                figures["false_harm_rows"] |= int(rows @ gains >= 0.0)
            else:
                figures["lifted"] = 1
                figures["false_lifted"] |= int(labels @ gains <= 0.0)
    return figures | compared(read, np.array(batches))


def compared(read, batches):
    """Return whether a bound was ever above the truth, and how far below it was after some labels."""
    rows, labels, accuracies, gains = batches.T
    figures = {
        "labels": int(labels.sum()),
        "with_fallback": float(rows @ accuracies / rows.sum()),
    }
    hits = np.array([[c.wrong, c.right] for c in read])
    duels = np.array([[c.lost, c.drawn, c.won] for c in read])
    truths = {}
    for suffix, weights in (("", labels), ("_rows", rows)):
        weighed = np.cumsum(weights)
        accuracy, gain = (np.cumsum(weights * v) / np.maximum(weighed, 1.0) for v in (accuracies, gains))
        truths[suffix] = accuracy, gain
        figures["false_accuracy" + suffix] = is_refuted(hits, _HIT, accuracy)
        figures["false_advantage" + suffix] = is_refuted(duels, _certificate._DUEL, (gain + 1.0) / 2.0)
    for n in AFTER:
        reached = np.flatnonzero(hits.sum(axis=1) >= n)
        for name, truth in zip(("accuracy", "advantage"), truths[""], strict=True):
            first = reached[0] if len(reached) else None
            slack = None if first is None else truth[first] - getattr(read[first], name)
            figures[f"{name}_slack_{n}"] = slack
    return figures


def is_refuted(counts, values, truth):
    """Return 1 if the bound was above the truth after any batch."""
    capital = log_capital(counts, values, np.clip(truth, 0.0, 1.0))
    return int((capital >= _certificate._LOG_THRESHOLD).any())
