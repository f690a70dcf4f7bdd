"""
Accuracy without labels
=======================

On a new machine nobody knows the true labels, so accuracy cannot be measured.
``reliability_`` estimates it. This example compares the estimate with the truth, where
it works and where it does not.
"""

# %%
# Targets between the sources, and outside of them
# ------------------------------------------------
# In synthetic data ``own`` is how far the target is from anything the sources can
# explain. Each of 24 streams has another target. The noise varies, too, so that the
# streams differ in difficulty.

import matplotlib.pyplot as plt
import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

N_SEEDS = 4
streams = []
for own in (0.15, 0.8, 2.0):
    for noise in (0.7, 1.2):
        for seed in range(N_SEEDS):
            plant = make_domains(n_per_class=60, own=own, noise=noise, random_state=seed)
            model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
            model.fit(plant.X, plant.y, sample_domain=plant.domain)
            estimated, correct = [], []
            for start in range(0, len(plant.X_target), 32):
                batch = slice(start, start + 32)
                model.partial_fit(plant.X_target[batch])
                estimated.append(model.reliability_)
                correct.append(
                    np.mean(model.predict(plant.X_target[batch]) == plant.y_target[batch])
                )
            streams.append((own, np.mean(estimated), np.mean(correct), model, plant))

# %%
# Estimated and true accuracy
# ---------------------------
# Each point is a stream. As long as the sources explain the target, the estimate is
# within about ten points of the truth, and too low. Far outside of the sources it
# is much too high: a model cannot know from unlabelled rows alone that classes have
# moved past each other.

results = 100 * np.array([stream[:3] for stream in streams])
plt.style.use(
    ["seaborn-v0_8-colorblind", {"axes.spines.top": False, "axes.spines.right": False}]
)
figure, axes = plt.subplots(figsize=(5.5, 4.6), layout="constrained")
axes.plot([0, 100], [0, 100], color="0.6", lw=1, ls=":")
for own, color, marker, name in (
    (0.15, "C0", "o", "between the sources (own = 0.15)"),
    (0.8, "C1", "s", "somewhat outside (own = 0.8)"),
    (2.0, "C2", "^", "far outside (own = 2)"),
):
    chosen = results[results[:, 0] == 100 * own]
    axes.scatter(chosen[:, 2], chosen[:, 1], color=color, marker=marker, label=name)
    error = chosen[:, 1] - chosen[:, 2]
    print(f"{name:34} mean error {error.mean():+5.1f} points, largest {abs(error).max():.1f}")
axes.set(
    xlabel="true accuracy (%)",
    ylabel="estimated accuracy: reliability (%)",
    xlim=(0, 100),
    ylim=(0, 100),
)
axes.legend(frameon=False, loc="lower right")
plt.show()

# %%
# When you must be sure
# ---------------------
# Labels of some rows chosen at random settle it. ``certificate_`` turns them into a
# bound on the accuracy that holds with 95 % confidence. Here it is for the stream whose
# estimate was furthest off, with 60 labels. Each prediction is judged before its label
# is learned. The labels also correct the model.

_, estimate, correct, model, plant = max(
    streams, key=lambda stream: abs(stream[1] - stream[2])
)
print(f"without labels: estimated accuracy {estimate:.0%}, true accuracy {correct:.0%}")
for rows in np.random.default_rng(0).permutation(len(plant.X_target))[:60].reshape(6, 10):
    model.feedback(plant.X_target[rows], plant.y_target[rows], certify=True)
bound, now = model.certificate_.accuracy, model.score(plant.X_target, plant.y_target)
print(f"with 60 labels: accuracy at least {bound:.0%} on average so far; now {now:.0%}")
