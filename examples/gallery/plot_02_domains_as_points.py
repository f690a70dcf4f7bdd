"""
Domains as points
=================

A domain can be summarised by a Gaussian mixture. Mixtures have distances, and the
points between two mixtures are mixtures again: their barycenters. This example draws
both.
"""

# %%
# A domain becomes a mixture
# --------------------------
# Two columns and three classes, so that everything can be drawn. ``MixtureClassifier``
# describes each class of a domain by one Gaussian; ``mixture_`` holds all of them, with
# their labels.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from baryflow import MixtureClassifier, barycenter, fit_mixture, mw2_squared
from baryflow.datasets import make_domains

problem = make_domains(
    n_sources=4, n_classes=3, n_features=2, shift=1.5, noise=0.25, own=0.05, random_state=31
)
mixtures = [
    MixtureClassifier(1, 1).fit(problem.X[chosen], problem.y[chosen]).mixture_
    for chosen in (problem.domain == number for number in (1, 2, 3, 4))
]

# %%
# Between two domains
# -------------------
# The barycenter with coordinates (0.5, 0.5) lies halfway between two domains. Each
# component moves to the matching component of the other domain, in a straight line, and
# keeps its label. An average of the two densities would show six blurred groups
# instead.

plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, panels = plt.subplots(
    1, 5, figsize=(9.5, 2.5), layout="constrained", sharex=True, sharey=True
)


def draw(panel, mixture, title):
    for mean, std, labels in zip(mixture.means, mixture.stds, mixture.labels, strict=True):
        width, height = 4 * std  # two standard deviations to each side
        color = f"C{labels.argmax()}"
        panel.add_patch(
            Ellipse(mean, width, height, facecolor=color, alpha=0.35, edgecolor=color)
        )
        panel.text(*mean, "abc"[labels.argmax()], ha="center", va="center")
    panel.set_title(title, fontsize=10)


for panel, share in zip(panels, (0.0, 0.25, 0.5, 0.75, 1.0), strict=True):
    between = barycenter(mixtures[:2], [1 - share, share]).mixture
    draw(
        panel,
        between,
        {0.0: "domain 1", 1.0: "domain 2"}.get(share, f"{share:.0%} of the way"),
    )
    panel.set_xlabel("column 1")
panels[0].set_ylabel("column 2")
panels[0].autoscale_view()
plt.show()

# %%
# A map of domains
# ----------------
# Mixture-Wasserstein distances between all domains, the target included, place each
# domain on a map (classical multidimensional scaling). Labels play no part in
# ``mw2_squared``, so the unlabelled target has a place, too. The circle is the
# barycenter of the four sources that is nearest to the target, among 500 random
# coordinates. ``OnlineDaDiL`` finds coordinates by optimisation, and uses learned
# mixtures, the atoms, in place of the sources.

target = fit_mixture(problem.X_target, 1, 6, random_state=0)  # without labels
rng = np.random.default_rng(0)
tried = [
    barycenter(mixtures, shares).mixture for shares in rng.dirichlet(np.ones(4), size=500)
]
nearest = min(tried, key=lambda mixture: mw2_squared(mixture, target))

points = [*mixtures, target, nearest]
squared = np.array([[mw2_squared(a, b) for b in points] for a in points])
centred = np.eye(len(points)) - 1 / len(points)
values, vectors = np.linalg.eigh(-0.5 * centred @ squared @ centred)
places = vectors[:, -2:] * np.sqrt(values[-2:])

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.scatter(*places[:4].T, s=90, color="C0")
left.scatter(*places[4], s=160, marker="*", color="C2", zorder=3)
left.scatter(*places[5], s=160, facecolors="none", edgecolors="black")
for (x, y), name in zip(places, ["1", "2", "3", "4", "target", ""], strict=True):
    left.annotate(name, (x, y), xytext=(9, 6), textcoords="offset points")
left.set(xlabel="first coordinate of the map", ylabel="second coordinate of the map")
left.set_aspect("equal", "datalim")
names = ["1", "2", "3", "4", "target", "barycenter"]
image = right.imshow(np.sqrt(np.maximum(squared, 0)), cmap="cividis")
right.set_xticks(range(6), names, rotation=45, ha="right")
right.set_yticks(range(6), names)
right.spines[:].set_visible(False)
figure.colorbar(image, label="distance between domains", shrink=0.85)
plt.show()

# %%
# The barycenter inherits the labels of the sources, so it can label the rows of the
# target although none of them had a label. The nearest single source is further away,
# and wrong more often.

for name, mixture in (
    ("nearest source", min(mixtures, key=lambda mixture: mw2_squared(mixture, target))),
    ("barycenter", nearest),
):
    labels = mixture.predict_proba(problem.X_target).argmax(axis=1)
    print(
        f"{name:14}  distance to the target {np.sqrt(mw2_squared(mixture, target)):.2f}, "
        f"rows labelled correctly {np.mean(labels == problem.y_target):.0%}"
    )
