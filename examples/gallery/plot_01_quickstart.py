"""
Quickstart
==========

Four operating modes of a plant are labelled. A fifth mode starts to send rows without
labels. The model learns the four modes, then adapts to the fifth while its rows arrive.
The data are synthetic.
"""

# %%
# Learn the labelled modes
# ------------------------
# ``fit`` takes all labelled rows and the name or number of the source of each row. It
# takes some seconds: it leaves out each source in turn, to learn how much to rely on
# each of its experts.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

plant = make_domains(n_per_class=100, random_state=0)
model = OnlineDaDiL(random_state=0)
model.fit(plant.X, plant.y, sample_domain=plant.domain)
before = model.predict(plant.X_target)  # no target row seen yet: not adapting

# %%
# Adapt while rows arrive
# -----------------------
# Each batch is predicted first and learned from afterwards, so every prediction is for
# rows that the model has not seen.

flowing = []
for start in range(0, len(plant.X_target), 32):
    batch = plant.X_target[start : start + 32]
    flowing.extend(model.predict(batch))  # test ...
    model.partial_fit(batch)  # ... then train

# %%
# Compare
# -------
# A simple rival standardises each domain separately and needs all rows of the target at
# once. The true labels of the target are used here only to count how many predictions
# are right.

sources = np.unique(plant.domain)
scale = StandardScaler().fit_transform
rival = LogisticRegression().fit(
    np.concatenate([scale(plant.X[plant.domain == source]) for source in sources]),
    np.concatenate([plant.y[plant.domain == source] for source in sources]),
)
accuracies = {
    "not adapting": np.mean(before == plant.y_target),
    "per-domain standardisation": rival.score(scale(plant.X_target), plant.y_target),
    "adapting, while rows arrive": np.mean(np.array(flowing) == plant.y_target),
    "adapting, at the end": model.score(plant.X_target, plant.y_target),
}
for name, accuracy in accuracies.items():
    print(f"{name:28} {accuracy:6.1%}")

# %%
# The left panel shows the accuracy of the latest 200 rows. Both curves are at the same
# level until the first batch has been learned; then adapting is ahead. The right panel
# shows the figures above.

plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
rows = np.arange(1, len(plant.y_target) + 1)
for name, labels, color in (("adapting", flowing, "C0"), ("not adapting", before, "C2")):
    hits = np.concatenate([[0], np.cumsum(np.asarray(labels) == plant.y_target)])
    first = np.maximum(rows - 200, 0)
    left.plot(
        rows[20:], 100 * ((hits[rows] - hits[first]) / (rows - first))[20:], color, label=name
    )
left.set(
    xlabel="target rows seen", ylabel="accuracy of the latest 200 rows (%)", ylim=(50, 100)
)
left.legend(frameon=False, loc="lower right")
bars = right.barh(
    list(accuracies), [100 * a for a in accuracies.values()], color=["C2", "C1", "C0", "C0"]
)
right.bar_label(bars, fmt="%.1f", padding=3)
right.set(xlabel="accuracy on the target (%)", xlim=(0, 110), xticks=range(0, 101, 20))
right.invert_yaxis()
plt.show()

# %%
# The model explains what it decided, and why. The leave-one-source-out accuracy is low
# because these modes lie far apart: a mode that is left out is outside of the others,
# while the target lies between them.

print(model.report())
