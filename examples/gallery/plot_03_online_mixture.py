"""
A mixture of a stream
=====================

``OnlineGaussianMixture`` sees each row once and keeps a mixture of bounded size. This
example shows how the mixture grows with the stream, and how close it comes to a mixture
fitted to all rows at once.
"""

# %%
# A stream in its worst order
# ---------------------------
# Three curved clusters arrive one after the other, each along its arc. No batch of 30
# rows looks like the whole.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from baryflow import OnlineGaussianMixture, fit_mixture
from baryflow.datasets import make_crescents

X, _ = make_crescents(n_per_cluster=200, order="ordered", random_state=0)

model = OnlineGaussianMixture(max_components=15)
snapshots = {}
for start in range(0, len(X), 30):
    model.partial_fit(X[start : start + 30])
    snapshots[start + 30] = model.mixture_

# %%
# The mixture along the stream
# ----------------------------
# Dots are the rows seen so far, ellipses the components (two standard deviations).
# Components of early clusters stay when later clusters arrive. They become fewer and
# larger, because all arcs share 15 components.

plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, panels = plt.subplots(
    1, 4, figsize=(9.5, 2.9), layout="constrained", sharex=True, sharey=True
)
for panel, seen in zip(panels, np.array([5, 10, 15, 20]) * len(X) // 20, strict=True):
    panel.scatter(*X[:seen].T, s=3, color="0.6")
    mixture = snapshots[seen]
    for mean, std in zip(mixture.means, mixture.stds, strict=True):
        panel.add_patch(Ellipse(mean, *(4 * std), facecolor="C0", alpha=0.3, edgecolor="C0"))
    panel.set(title=f"{seen} rows", xlabel="column 1", aspect="equal")
panels[0].set_ylabel("column 2")
plt.show()

# %%
# How good is it?
# ---------------
# After every second batch, fit a mixture of 15 components to all rows so far, from
# scratch, and compare the mean log-likelihood of these rows. It falls along the stream
# because three arcs are harder to describe than one. The two curves stay close,
# although the online mixture saw each row once and kept none of them. Refitting has to
# keep all rows, and takes longer with every batch.

checked = list(snapshots)[1::2]
online = [snapshots[seen].log_density(X[:seen]).mean() for seen in checked]
refitted = [
    fit_mixture(X[:seen], 15, 15, random_state=0).log_density(X[:seen]).mean()
    for seen in checked
]

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(
    checked, refitted, "C2", marker="s", ms=5, ls="--", label="refitted to all rows so far"
)
axes.plot(checked, online, "C0", marker="o", ms=5, label="online, each row seen once")
for border in (len(X) / 3, 2 * len(X) / 3):
    axes.axvline(border, color="0.7", lw=0.8, zorder=0)
axes.set(
    xlabel="rows seen (grey lines: another cluster begins)",
    ylabel="mean log-likelihood\nof rows so far",
)
axes.legend(frameon=False)
plt.show()

print(f"after the last row: online {online[-1]:.2f}, refitted {refitted[-1]:.2f}")
