"""
Will it help on my data?
========================

``evaluate`` answers before there is a target: it leaves out each labelled machine in
turn, streams its rows, and compares the model with classifiers that cost next to
nothing.
"""

# %%
# Read labelled files
# -------------------
# Four pumps have labelled histories: twelve sensors, six conditions. ``read_table``
# reads files of different formats and matches their columns by name. One of the files
# is an export with semicolons, decimal commas and words in cells. The files are
# synthetic; they are in ``examples/pumps``.

from pathlib import Path

import matplotlib.pyplot as plt

from baryflow import OnlineDaDiL
from baryflow.model_selection import evaluate
from baryflow.streams import read_table

pumps = Path("../pumps")  # from examples/gallery, where this script is
files = [pumps / f"pump_{name}.csv" for name in "abcd"]
table = read_table(files, label="condition", time="time", domain_from_file=True)
print(f"{len(table.X)} rows, {len(table.columns)} columns; left out: {table.left_out}")

# %%
# Leave one pump out at a time
# ----------------------------
# The default model takes longer; ``classifier="linear"`` is a quick first look.

model = OnlineDaDiL(classifier="linear", random_state=0)
found = evaluate(model, table.X, table.y, table.domain)
print(found)

# %%
# Each row of the figure is a pump that played the target. Look at single pumps, not
# only at the mean. On ``pump_b`` the classifier that does not adapt fails, and while
# rows flow standardising is better than the model. At the end of the stream the model
# is as good or better on every pump.

plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
found.plot(axes)
plt.show()
