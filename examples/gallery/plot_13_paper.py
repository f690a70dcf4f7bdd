"""
The paper in fifty lines
========================

``baryflow.paper`` is the published method as it is printed. This example runs its two
parts: a Gaussian mixture of a stream, and a dictionary of mixtures that follows a target
and is optimised further after the end of the stream.
"""

# %%
# A mixture of a stream
# ---------------------
# Algorithms 1 to 4, one function each. A batch is fit by EM and BIC, its components are
# appended, and the nearest two are merged while there are too many.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from baryflow import paper
from baryflow.datasets import make_crescents, make_domains

X, _ = make_crescents(random_state=0)
batches = np.array_split(X, range(32, len(X), 32))

P = paper.get_best_gmm(batches[0], 5, 5, random_state=0)
for batch in batches[1:]:
    P = paper.concat_components(P, paper.get_best_gmm(batch, 1, 3, random_state=0))
    P = paper.compress_gmm(P, 15)

plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.scatter(*X.T, s=4, c=np.arange(len(X)), cmap="plasma")
for mean, std in zip(P.means, P.stds, strict=True):
    axes.add_patch(Ellipse(mean, *(4 * std), facecolor="C0", alpha=0.3, edgecolor="C0"))
axes.set(xlabel="column 1 (colours: order of the rows)", ylabel="column 2", aspect="equal")
plt.show()

# %%
# A target that flows in
# ----------------------
# Sources are learned first. Then each batch of the target updates its mixture, and the
# dictionary takes some steps on equation 12. The mixture stands for all rows seen, so
# optimisation can continue when the stream has ended.

problem = make_domains(n_per_class=60, random_state=1)
model = paper.OnlineGMMDaDiL(random_state=0)
model.fit(problem.X, problem.y, sample_domain=problem.domain)
accuracy = [model.score(problem.X_target, problem.y_target)]
for start in range(0, len(problem.X_target), 32):
    model.partial_fit(problem.X_target[start : start + 32])
    accuracy.append(model.score(problem.X_target, problem.y_target))
end = len(model.loss_curve_)
model.optimise(100)

# %%
# The reconstruction loss jumps with every batch, because the target's mixture changes.
# After the star, where the stream ends, it falls smoothly.

loss = model.loss_curve_[:, -1]  # of the target; NaN until its first rows
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.semilogy(loss[np.isfinite(loss)])
star = end - 1 - np.isnan(loss).sum()
axes.plot(star, loss[end - 1], "*", ms=14, label="end of the stream")
axes.set(xlabel="step", ylabel="squared distance of target\nand reconstruction")
axes.legend(frameon=False)
plt.show()

after = model.score(problem.X_target, problem.y_target)
print(f"accuracy: sources only {accuracy[0]:.2f}, end {accuracy[-1]:.2f}, later {after:.2f}")
