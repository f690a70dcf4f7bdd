"""
From predictions to alarms
==========================

A diagnosis for every row flickers. Operators need a short list: each fault once, when
it is certain, until it is over. ``Alarms`` turns predictions into such a list.
"""

# %%
# Follow a pump without labels
# ----------------------------
# Four pumps are labelled, the fifth is followed for 75 days, one row every two hours.
# Every row is predicted before the model learns from it.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from baryflow import OnlineDaDiL
from baryflow.alarms import AlarmConfig, Alarms
from baryflow.streams import read_table

pumps = Path("../pumps")  # from examples/gallery, where this script is
files = [pumps / f"pump_{name}.csv" for name in "abcd"]
table = read_table(files, label="condition", time="time", domain_from_file=True)
target = np.genfromtxt(
    pumps / "pump_e.csv", delimiter=",", skip_header=1, usecols=range(1, 13)
)
times, truth = np.genfromtxt(
    pumps / "pump_e_labels.csv", delimiter=",", skip_header=1, dtype=str
).T

model = OnlineDaDiL(classifier="linear", random_state=0)
model.fit(table.X, table.y, sample_domain=table.domain)
probabilities = []
for start in range(0, len(target), 32):
    probabilities.append(model.predict_proba(target[start : start + 32]))
    model.partial_fit(target[start : start + 32])
probabilities = np.concatenate(probabilities)
predicted = model.classes_[probabilities.argmax(axis=1)]

# %%
# Raise and clear alarms
# ----------------------
# An alarm is raised when its class has been predicted with a probability of 0.6 or more
# for four hours. It is cleared when the probability has been below 0.3 for six hours.
# These are the settings of ``baryflow.toml``, as ``baryflow run`` reads them.

config = AlarmConfig.from_table({"normal": ["normal"], "on-delay": "4h", "off-delay": "6h"})
alarms = Alarms(config)
names = model.classes_.tolist()
periods, active = [], {}
for row, label in enumerate(predicted):
    for change in alarms.update(row, times[row], label, names, probabilities[row].tolist()):
        name = change.details["alarm"]
        if change.kind in ("raised", "repeated"):
            active[name] = row
        elif change.kind == "cleared":
            periods.append((name, active.pop(name), row))
periods += [(name, start, len(predicted)) for name, start in active.items()]
flicker = np.sum(predicted[1:] != predicted[:-1])
print(f"the predicted class changes {flicker} times in {len(predicted)} rows")
print(f"alarms: {len(periods)}")

# %%
# What the operator sees
# ----------------------
# Grey bars are the true faults, dots are single predictions, blue bars are alarms.
# Single wrong predictions raise no alarm. An alarm starts some hours after its fault:
# faults begin weakly, and the delay adds to it. A fault that comes back within 60 rows,
# here five days, is the same alarm. It then stays active until the fault has been away
# for a while, so some blue bars outlast their faults (setting ``chatter``).

faults = [name for name in names if name != "normal"]


def true_periods(name):
    """Return the first row of each period of this fault, and the row after its last."""
    changes = np.diff(np.concatenate([[0], truth == name, [0]]))
    return np.flatnonzero(changes).reshape(-1, 2)


days = np.arange(len(predicted)) / 12
plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, axes = plt.subplots(figsize=(9.5, 3.8), layout="constrained")
for place, name in enumerate(faults):
    bars = [(start / 12, (end - start) / 12) for start, end in true_periods(name)]
    axes.broken_barh(bars, (place, 0.3), color="0.75")
    axes.scatter(
        days[predicted == name],
        np.full(np.sum(predicted == name), place - 0.08),
        s=5,
        color="C2",
    )
    bars = [(start / 12, (end - start) / 12) for fault, start, end in periods if fault == name]
    axes.broken_barh(bars, (place - 0.4, 0.24), color="C0")
axes.set_yticks(range(len(faults)), faults)
axes.set(xlabel="day", ylim=(-0.6, len(faults) + 0.2), xlim=(0, days[-1]))
handles = [
    plt.Rectangle((0, 0), 1, 1, color="0.75"),
    plt.Line2D([], [], color="C2", marker=".", ls=""),
    plt.Rectangle((0, 0), 1, 1, color="C0"),
]
axes.legend(
    handles, ["true fault", "predicted row", "alarm"], ncols=3, frameon=False, loc="upper left"
)
plt.show()

# %%
# Count
# -----
# A true fault is found if an alarm of its class is active during it. An alarm is false
# if no row of its period has that fault.

found = [
    any(fault == name and start < b and end > a for fault, start, end in periods)
    for name in faults
    for a, b in true_periods(name)
]
false = sum(not np.any(truth[start:end] == name) for name, start, end in periods)
print(f"faults: {len(found)}, found: {sum(found)}; alarms: {len(periods)}, false: {false}")
