"""
Class proportions that differ
=============================

In the sources all classes are equally frequent. In the target one class makes up most
rows. This is *label shift*. The model weighs explanations of the stream, and you can
state what you know.
"""

# %%
# A stream that is mostly normal
# ------------------------------
# Class 0 plays normal operation. It makes up a given share of the target's rows; the
# other classes share the rest equally. Classes overlap (``noise=1.2``), because
# proportions matter only where rows are ambiguous.

import matplotlib.pyplot as plt
import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

plant = make_domains(n_classes=6, n_per_class=400, noise=1.2, shift=1.5, random_state=0)
SHARES = (1 / 6, 0.5, 0.8, 0.95)


def make_stream(share):
    """Return 800 rows of the target, of which this share is of class 0."""
    rng = np.random.default_rng(1)
    weights = np.where(plant.y_target == 0, share, (1 - share) / 5)
    rows = rng.choice(len(plant.y_target), 800, p=weights / weights.sum())
    return plant.X_target[rows], plant.y_target[rows]


# %%
# Three models
# ------------
# The first assumes the proportions of the sources. The second, the default, weighs
# explanations of the stream: class proportions, with the offset and gain of every column
# that follow from them. ``proportions_`` is their mean. The third is given the share of
# class 0.

rng = np.random.default_rng(0)
some = rng.permutation(len(plant.X))[:1000]
X, y, domain = plant.X[some], plant.y[some], plant.domain[some]
fixed = OnlineDaDiL(classifier="linear", label_shift=False, random_state=0).fit(X, y, domain)
default = OnlineDaDiL(classifier="linear", random_state=0).fit(X, y, domain)

accuracies, estimates = [], []
for share in SHARES:
    X_target, y_target = make_stream(share)
    told = OnlineDaDiL(classifier="linear", class_prior={0: share}, random_state=0).fit(
        X, y, domain
    )
    found = []
    for model in (fixed.spawn(), default.spawn(), told):
        for start in range(0, len(X_target), 32):
            model.partial_fit(X_target[start : start + 32])
        found.append(model.score(X_target, y_target))
        if model is not told and len(found) == 2:
            estimates.append(model.proportions_[0])
    accuracies.append(found)

# %%
# On the left, the estimated share of class 0. On the right, the accuracy of the three
# models. To assume the proportions of the sources costs more the more one class
# dominates. The default is cautious: where classes overlap as much as here, several
# explanations fit, and their mean stays below the true share. If you know the share, state
# it. Rows that are known to be of class 0 help, too: see ``set_baseline``.

plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
shares, accuracies = 100 * np.array(SHARES), 100 * np.array(accuracies)
left.plot([0, 100], [0, 100], color="0.6", lw=1, ls=":", label="exact")
left.plot(shares, 100 * np.array(estimates), "C0", marker="o", label="estimate")
left.set(xlabel="true share of class 0 (%)", ylabel="estimated share of class 0 (%)")
left.legend(frameon=False)
for column, color, marker, name in (
    (2, "C1", "s", "share is given"),
    (1, "C0", "o", "estimated (default)"),
    (0, "C2", "^", "as in the sources"),
):
    right.plot(shares, accuracies[:, column], color, marker=marker, label=name)
right.set(xlabel="true share of class 0 (%)", ylabel="accuracy on the target (%)")
right.legend(frameon=False)
plt.show()
print("share of class 0  as in the sources  estimated  given")
for share, (fixed_score, estimated_score, given_score) in zip(shares, accuracies, strict=True):
    print(f"{share:14.0f} % {fixed_score:18.1f} {estimated_score:11.1f} {given_score:7.1f}")
