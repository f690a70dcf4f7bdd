"""
A class that no source has
==========================

A fault appears that was never labelled anywhere. ``novelty`` points at its rows. A few
labels make it a class, at once and without fitting the model again.
"""

# %%
# A new class appears halfway
# ---------------------------
# One class is removed from all sources. In the target it appears after half of the
# other rows. The novelty of each batch is read before the model learns from it.

import matplotlib.pyplot as plt
import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

plant = make_domains(n_per_class=100, shift=1.5, noise=0.5, random_state=0)


def stream_with_new_class(new):
    """Return the model after the stream, the order of the rows, and their novelty."""
    known = plant.y != new
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    model.fit(plant.X[known], plant.y[known], sample_domain=plant.domain[known])
    rng = np.random.default_rng(0)
    usual = rng.permutation(np.flatnonzero(plant.y_target != new))
    first, second = np.split(usual, 2)
    second = rng.permutation(np.concatenate([second, np.flatnonzero(plant.y_target == new)]))
    order = np.concatenate([first, second])
    novelty = []
    for start in range(0, len(order), 32):
        batch = plant.X_target[order[start : start + 32]]
        novelty.extend(model.novelty(batch))
        model.partial_fit(batch)
    return model, order, np.array(novelty)


streams = [stream_with_new_class(new) for new in range(8)]

# %%
# Novelty along the stream
# ------------------------
# ``novelty`` is a number from 0 to 1: a row above 0.99 is less like everything known
# than 99 % of known rows. On the left class 0 is the new one. On the right each class
# in turn is the new one. Five of the eight are found almost row by row; two are
# mostly missed. Known classes are rarely called novel.

NEW = 0
model, order, novelty = streams[NEW]
is_new = plant.y_target[order] == NEW
plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
rows = np.arange(len(order))
left.scatter(rows[~is_new], novelty[~is_new], s=6, color="C0", label="known classes")
left.scatter(rows[is_new], novelty[is_new], s=10, color="C2", marker="^", label="new class")
left.axhline(0.99, color="0.4", lw=1, ls="--")
left.set(
    xlabel="row of the stream",
    ylabel="novelty of the row",
    ylim=(0, 1.25),
    yticks=(0, 0.25, 0.5, 0.75, 1),
)
left.legend(frameon=False, loc="upper left", ncols=2)
for shift, pick, color, name in (
    (-0.2, True, "C2", "new class"),
    (0.2, False, "C0", "known classes"),
):
    shares = [
        np.mean(found[(plant.y_target[turn] == new) == pick] > 0.99)
        for new, (_, turn, found) in enumerate(streams)
    ]
    right.bar(np.arange(8) + shift, 100 * np.array(shares), width=0.4, color=color, label=name)
right.set(
    xlabel="class that no source has",
    ylabel="rows called novel (%)",
    ylim=(0, 125),
    yticks=range(0, 101, 25),
)
right.set_xticks(range(8))
right.legend(frameon=False, loc="upper left", ncols=2)
plt.show()

# %%
# Label ten rows
# --------------
# ``query`` asks for the rows most worth a label. Whatever they turn out to be,
# ``feedback`` learns it. A label that no source has becomes the last of ``classes_``.

before = model.predict(plant.X_target[order])
asked = model.query(10)
answers = plant.y_target[order[asked.positions]]
model.feedback(asked.rows, answers)
after = model.predict(plant.X_target[order])
print("labels given:", answers.tolist())
print("classes:     ", model.classes_.tolist())

# %%
# The new class is predicted from now on. In general some rows of known classes are
# taken for it; here there are few.

for group, rows in (("the new class", is_new), ("known classes", ~is_new)):
    for moment, labels in (("before", before), ("after", after)):
        share = np.mean(labels[rows] == plant.y_target[order][rows])
        print(f"rows of {group} that are right {moment} the labels: {share:.0%}")
