"""
Which history does it resemble?
===============================

A target is described as a barycenter of the sources. ``resemblance_`` is the share of
each source in it: an answer to the question "which of our machines does this one behave
like?"
"""

# %%
# Six streams with a known answer
# -------------------------------
# In the synthetic data the target is mixed from three sources with known shares.
# Shift and scale of whole columns do not count for the resemblance. What counts is
# how the classes lie relative to each other.

import matplotlib.pyplot as plt
import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

streams = []
for seed in range(6):
    plant = make_domains(n_sources=3, random_state=seed)
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    model.fit(plant.X, plant.y, sample_domain=plant.domain)
    for start in range(0, len(plant.X_target), 32):
        model.partial_fit(plant.X_target[start : start + 32])
    streams.append((plant.mixing, model))

# %%
# Along the stream
# ----------------
# ``history_`` keeps the resemblance after each update. Solid lines are estimates,
# dashed lines are the shares with which the data were made.

plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, panels = plt.subplots(
    2, 3, figsize=(9.5, 4.6), layout="constrained", sharex=True, sharey=True
)
for seed, (panel, (mixing, model)) in enumerate(zip(panels.flat, streams, strict=True)):
    history = model.history_
    for source in range(3):
        panel.plot(history.n_rows, 100 * history.resemblance[:, source], f"C{source}")
        panel.axhline(100 * mixing[source], color=f"C{source}", ls="--", lw=1)
    panel.set_title(f"stream {seed + 1}", fontsize=10)
    panel.set_ylim(0, 100)
for panel in panels[:, 0]:
    panel.set_ylabel("share of the source (%)")
for panel in panels[-1]:
    panel.set_xlabel("target rows seen")
lines = [plt.Line2D([], [], color=f"C{source}") for source in range(3)]
styles = [plt.Line2D([], [], color="0.3", ls=ls) for ls in ("-", "--")]
figure.legend(
    lines + styles, ["source 1", "source 2", "source 3", "estimate", "true share"],
    loc="outside lower center", ncols=5, frameon=False,
)  # fmt: skip
plt.show()

# %%
# How far off is it?
# ------------------
# The shares are estimates. They are usually within ten points of the truth. Where two
# sources have nearly the same true share, as in streams 1 and 2, do not read anything
# into which of them comes first.

errors = np.array(
    [np.array(list(model.resemblance_.values())) - mixing for mixing, model in streams]
)
print(f"mean error of a share at the end: {100 * abs(errors).mean():.0f} points")
print(f"largest error of a share:         {100 * abs(errors).max():.0f} points")
