"""
What a few labels are worth
===========================

An engineer can check some rows of the target. ``query`` returns the rows that are most
worth a label, and ``feedback`` learns from the answers. This example counts how
accuracy grows with the number of labels.
"""

# %%
# Targets that are unlike their sources
# -------------------------------------
# The targets have a large part of their own that no source has (``own=1.5``), so
# adapting without labels leaves about one row in four wrong. One half of the rows
# arrives as a stream; the other half is held out to measure accuracy.
#
# Labels come four at a time: first those that ``query`` asks for, then, for comparison,
# those of rows drawn at random. ``spawn`` returns a copy of the model that learns on
# its own. A logistic regression that is trained on the random labels alone shows what
# the sources contribute.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

ROUNDS, EACH = 10, 4
queried, random, alone = [], [], []
for seed in (0, 1, 2):
    plant = make_domains(n_per_class=100, own=1.5, random_state=seed)
    order = np.random.default_rng(seed).permutation(len(plant.X_target))
    X, X_test = np.split(plant.X_target[order], 2)
    y, y_test = np.split(plant.y_target[order], 2)
    model = OnlineDaDiL(classifier="linear", random_state=0)
    model.fit(plant.X, plant.y, sample_domain=plant.domain).partial_fit(X)
    asking, guessing = model.spawn(), model.spawn()

    queried.append([model.score(X_test, y_test)])
    random.append([model.score(X_test, y_test)])
    alone.append([np.nan])
    for end in range(EACH, ROUNDS * EACH + 1, EACH):
        asked = asking.query(EACH)
        asking.feedback(asked.rows, y[asked.positions])
        queried[-1].append(asking.score(X_test, y_test))

        guessing.feedback(X[end - EACH : end], y[end - EACH : end], certify=True)
        random[-1].append(guessing.score(X_test, y_test))
        plain = LogisticRegression().fit(X[:end], y[:end])
        alone[-1].append(plain.score(X_test, y_test))
queried, random, alone = (100 * np.mean(runs, axis=0) for runs in (queried, random, alone))

# %%
# Accuracy against the number of labels
# -------------------------------------
# The curves are means over three targets. Queried rows are worth more than random
# ones: about half as many are needed. With random rows, a classifier of the labels
# alone is better than the model from about 12 labels on, because these targets
# have little in common with their sources. So ask for the rows that ``query``
# returns.

plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
labels = EACH * np.arange(ROUNDS + 1)
axes.plot(labels, queried, "C0", marker="o", label="rows that query asks about")
axes.plot(labels, random, "C1", marker="s", label="rows drawn at random")
axes.plot(
    labels, alone, "C2", marker="^", ls="--", label="rows drawn at random, without the sources"
)
axes.axhline(queried[0], color="0.6", lw=1, ls=":", label="no labels")
axes.set(
    xlabel="labelled rows of the target",
    ylabel="accuracy on held-out rows (%)",
    ylim=(30, 100),
)
axes.legend(frameon=False, loc="lower right")
plt.show()

for count, chosen, drawn in zip(labels[::2], queried[::2], random[::2], strict=True):
    print(f"{count:3} labels: {chosen:.1f} % queried, {drawn:.1f} % random")
