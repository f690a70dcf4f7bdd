"""
A mixture of a stream
=====================

``OnlineGaussianMixture`` sees each row once and keeps a mixture of bounded size. This example shows how
the mixture grows with the stream, and how close it comes to a mixture fitted to all rows at once.
"""

# %%
# A stream in its worst order
# ---------------------------
# Three curved clusters arrive one after the other, each along its arc. No batch of 30 rows looks like the
# whole.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from baryflow import OnlineGaussianMixture, fit_mixture
from baryflow.datasets import make_crescents

X, _ = make_crescents(n_per_cluster=200, order="ordered", random_state=0)
held_out, _ = make_crescents(n_per_cluster=200, random_state=1)
offline = fit_mixture(X, 15, 15, random_state=0)

model = OnlineGaussianMixture(max_components=15)
likelihoods, snapshots = [], {}
for start in range(0, len(X), 30):
    model.partial_fit(X[start : start + 30])
    likelihoods.append(model.score(held_out))
    snapshots[start + 30] = model.mixture_

# %%
# The mixture along the stream
# ----------------------------
# Dots are the rows seen so far, ellipses the components (two standard deviations). Early components stay
# where they are when later clusters arrive: nothing that was seen is lost.

plt.style.use(["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}])
figure, panels = plt.subplots(1, 4, figsize=(9.5, 2.9), layout="constrained", sharex=True, sharey=True)
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
# The mean log-likelihood of rows that were never shown. It rises when another cluster arrives, and ends
# close to that of a mixture of 15 components fitted to all rows at once. It starts far below the figure,
# because the first batches show one end of one arc only.

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(list(snapshots), likelihoods, "C0", marker="o", ms=4, label="online, each row seen once")
axes.axhline(offline.log_density(held_out).mean(), color="C2", ls="--", label="all rows at once")
for border in (200, 400):
    axes.axvline(border * len(X) / 600, color="0.7", lw=0.8, zorder=0)
axes.set(
    xlabel="rows seen (grey lines: another cluster begins)",
    ylabel="mean log-likelihood\nof held-out rows",
    ylim=(-30, 0),
)
axes.legend(frameon=False, loc="lower right")
plt.show()

# %%
print(f"online, after the last row: {likelihoods[-1]:.2f}")
print(f"all rows at once:           {offline.log_density(held_out).mean():.2f}")
