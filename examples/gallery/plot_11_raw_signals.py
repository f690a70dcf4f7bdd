"""
From raw signals to conditions
==============================

Sometimes a single row shows nothing: what matters is how a signal moves. ``windows``
cuts signals into pieces, and ``SignalFeatures`` turns each piece into a row that a
classifier can use.
"""

# %%
# Signals of five fans
# --------------------
# Ten rows a second: acceleration of the gearbox, motor current, temperature. An
# unbalanced fan shakes with every turn, a loose belt lets its speed hunt. Four fans are
# labelled, the fifth is not; its labels are used here only to count. The files are
# synthetic; they are in ``examples/fans``.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from baryflow import OnlineDaDiL
from baryflow.features import SignalFeatures, windows
from baryflow.streams import read_table

fans = Path("../fans")  # from examples/gallery, where this script is
files = [fans / f"fan_{name}.csv" for name in "abcd"]
table = read_table(files, label="condition", time="seconds", domain_from_file=True)
signals = np.genfromtxt(fans / "fan_e.csv", delimiter=",", skip_header=1, usecols=(1, 2, 3))
truth = np.genfromtxt(
    fans / "fan_e_labels.csv", delimiter=",", skip_header=1, usecols=1, dtype=str
)

plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, panels = plt.subplots(1, 3, figsize=(9.5, 2.6), layout="constrained", sharey=True)
for panel, condition in zip(panels, ("normal", "unbalance", "loose belt"), strict=True):
    rows = np.flatnonzero((table.y == condition) & (table.domain == "fan_a"))[:60]
    panel.plot(np.arange(60) / 10, table.X[rows, 0], color="C0")
    panel.set(title=condition, xlabel="time (s)")
panels[0].set_ylabel("acceleration (g)")
plt.show()

# %%
# Windows and features
# --------------------
# Windows of 60 rows, one every 10 rows. No window crosses from one fan to another. The
# label of a window is that of its last row.

known = windows(table.X, 60, 10, by=table.domain, label=table.y)
new = windows(signals, 60, 10, label=truth)
features = SignalFeatures().fit(known, known.label, known.group)
X, X_target = features.transform(known), features.transform(new)
print(f"{len(X)} labelled windows, {X.shape[1]} features, for example:")
print(", ".join(features.get_feature_names_out(table.columns)[:4]))

# %%
# Adapt to the fifth fan
# ----------------------

model = OnlineDaDiL(classifier="linear", random_state=0)
model.fit(X, known.label, sample_domain=known.group)
before = model.score(X_target, new.label)
flowing = []
for start in range(0, len(X_target), 32):
    flowing.extend(model.predict(X_target[start : start + 32]))
    model.partial_fit(X_target[start : start + 32])

scale = StandardScaler().fit_transform
fan_of_row = [np.flatnonzero(table.domain == name) for name in np.unique(table.domain)]
filled = np.where(np.isnan(table.X), np.nanmean(table.X, axis=0), table.X)
rows_only = LogisticRegression().fit(
    np.concatenate([scale(filled[rows]) for rows in fan_of_row]),
    np.concatenate([table.y[rows] for rows in fan_of_row]),
)
filled = np.where(np.isnan(signals), np.nanmean(signals, axis=0), signals)
accuracies = {
    "single rows, standardised": rows_only.score(scale(filled), truth),
    "windows, not adapting": before,
    "windows, adapting while they arrive": np.mean(np.array(flowing) == new.label),
}

# %%
# On the left, the accuracy of three approaches. A window in which the condition
# changes counts by its last row, so 100 % cannot be reached. On the right, what was
# predicted along the stream. More than half of the errors are near a change of
# condition.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(9.5, 2.8), layout="constrained", width_ratios=(1, 1.6)
)
bars = left.barh(
    list(accuracies), [100 * a for a in accuracies.values()], color=["0.6", "C2", "C0"]
)
left.bar_label(bars, fmt="%.0f", padding=3)
left.set(xlabel="accuracy on fan e (%)", xlim=(0, 112), xticks=range(0, 101, 25))
left.invert_yaxis()
conditions = ["normal", "unbalance", "loose belt"]
minutes = (np.arange(len(new.label)) * 10 + 60) / 600
right.step(
    minutes, [conditions.index(c) for c in new.label], "0.6", lw=5, where="post", label="true"
)
right.plot(minutes, [conditions.index(c) for c in flowing], "C0.", ms=4, label="predicted")
right.set_yticks(range(3), conditions)
right.set(xlabel="time (min)", ylim=(-0.3, 2.9))
right.legend(frameon=False, loc="upper right", ncols=2)
plt.show()
