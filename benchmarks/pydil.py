"""PyDiL, the code of the method's authors, as a rival: used if it is installed, never shipped.

It is not on PyPI. Its repository is https://github.com/eddardd/PyDiL; its `pydil` folder on the path and
PyTorch are enough: ``PYTHONPATH=PyDiL python -m benchmarks dictionary``.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np


def installed() -> bool:
    return find_spec("pydil") is not None and find_spec("torch") is not None


class PyDiLRival:
    """Its dictionary of labelled mixtures, started from the same atoms and coordinates."""

    def __init__(self, dictionary, domains, learning_rate):
        import torch
        from pydil import gmm_dictionary, optimal_transport

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.dictionary, self.domains = dictionary, domains
        d, scale = dictionary.n_features, dictionary.label_scale

        def parts(points):
            """Return means, variances and labels."""
            found = points[:, :d], points[:, d : 2 * d] ** 2, points[:, 2 * d :] / scale
            return [torch.from_numpy(np.ascontiguousarray(part)) for part in found]

        solver = optimal_transport.OptimalTransportSolver()
        means, variances, labels = zip(*map(parts, dictionary.atoms), strict=True)
        self.model = gmm_dictionary.LabeledGaussianMixtureDictionary(
            optimal_transport.GaussianMixtureBarycenterSolver(
                solver, beta=scale**2, propagate_labels=True, penalize_labels=True
            ),
            atoms_means=list(means),
            atoms_variances=list(variances),
            atoms_labels=list(labels),
            n_components=dictionary.n_slots,
            n_atoms=dictionary.n_atoms,
            n_measures=len(domains),
            loss_fn=optimal_transport.JointMixtureWassersteinDistance(solver, beta=scale**2),
            learning_rate=learning_rate,
            grad_labels=False,  # our labels do not move either on this problem
            device="cpu",
        )
        self.mixtures = []
        for domain in domains:
            weights = torch.from_numpy(domain.weights)
            *moments, classes = parts(domain.points)
            if domain.n_used > 2 * d:
                mixture = gmm_dictionary.DiagonalLabeledGaussianMixture(1)
                mixture.set_gmm(weights, *moments, classes)
            else:
                mixture = gmm_dictionary.DiagonalGaussianMixture(len(weights))
                mixture.set_gmm(weights, *moments)
            self.mixtures.append(mixture)

    def step(self):
        self.model.fit(self.mixtures, n_iter_max=1, verbose=False)

    def loss(self):
        """Return our loss of its atoms and coordinates; its own compares variances, not stds."""
        means, variances, labels = (part.numpy() for part in self.model.get_atoms())
        scale = self.dictionary.label_scale
        self.dictionary.atoms = np.concatenate([means, np.sqrt(variances), scale * labels], axis=2)
        self.dictionary.atoms = self.dictionary.atoms.astype(np.float64)
        total = 0.0
        for domain, weights in zip(self.domains, self.model.get_weights().numpy(), strict=True):
            domain.coordinates = weights.astype(np.float64)
            total += self.dictionary.transport(domain)
        return total
