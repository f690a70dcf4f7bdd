"""Hypothesis strategies for mixtures and data, shared by all tests."""

import numpy as np
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from baryflow import Mixture

seeds = st.integers(0, 2**32 - 1)


def random_mixture(
    rng, n_components, n_features, *, n_classes=None, uniform=False, offset=0.0, scale=1.0
):
    weights = rng.dirichlet(np.ones(n_components)) + 1e-3
    weights = np.full(n_components, 1.0 / n_components) if uniform else weights / weights.sum()
    labels = None if n_classes is None else rng.dirichlet(np.ones(n_classes), size=n_components)
    return Mixture(
        weights,
        offset + scale * rng.normal(size=(n_components, n_features)),
        scale * rng.uniform(0.2, 2.0, size=(n_components, n_features)),
        labels,
        float(rng.uniform(1, 100)),
    )


@st.composite
def mixtures(draw, *, n_features=None, n_classes=None, uniform=False, max_components=6):
    rng = np.random.default_rng(draw(seeds))
    d = draw(st.integers(1, 5)) if n_features is None else n_features
    k = draw(st.integers(1, max_components))
    scale = draw(st.sampled_from([1.0, 1e-3, 1e3]))
    return random_mixture(rng, k, d, n_classes=n_classes, uniform=uniform, scale=scale)


def permute(m, order):
    """Return a mixture with its components in another order."""
    labels = None if m.labels is None else m.labels[order]
    return Mixture(m.weights[order], m.means[order], m.stds[order], labels, m.mass)


def as_scikit(m):
    """Return a mixture as a fitted one of scikit-learn."""
    model = GaussianMixture(m.n_components, covariance_type="diag")
    model.weights_, model.means_, model.covariances_ = m.weights, m.means, np.square(m.stds)
    model.precisions_cholesky_ = 1.0 / m.stds
    return model


def blobs(rng, n, n_features, n_blobs=3, spread=5.0):
    centres = spread * rng.normal(size=(n_blobs, n_features))
    return centres[rng.integers(n_blobs, size=n)] + rng.normal(size=(n, n_features))


def read_only(array):
    array = np.array(array)
    array.flags.writeable = False
    return array
