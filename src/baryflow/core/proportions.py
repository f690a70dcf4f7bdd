"""How much class proportions vary between domains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from baryflow.validation import Floats

#: Strengths looked at: from proportions that vary freely to ones that never change.
_WEAKEST, _STRONGEST = 1.0, 1e6


@dataclass(frozen=True, eq=False)
class ProportionPrior:
    """Dirichlet(strength · mean): what the sources say about a new domain's class proportions."""

    mean: Floats
    strength: float

    @classmethod
    def of(cls, counts: Floats) -> ProportionPrior:
        """Fit the prior to the class counts of the sources, shape (n_sources, n_classes).

        The strength maximises the Dirichlet-multinomial likelihood. Sources with the same
        proportions make it large, and a new domain's are then taken to be the same again.
        """
        from scipy.optimize import minimize_scalar
        from scipy.special import gammaln

        totals = counts.sum(axis=1)
        mean = (counts / totals[:, None]).mean(axis=0)
        known = mean > 0.0
        observed = counts[:, known]

        def cost(log_strength: float) -> float:
            a = np.exp(log_strength) * mean[known]
            fit = gammaln(a.sum()) - gammaln(a.sum() + totals)
            return -float((fit + (gammaln(observed + a) - gammaln(a)).sum(axis=1)).sum())

        found = minimize_scalar(cost, bounds=(np.log(_WEAKEST), np.log(_STRONGEST)), method="bounded")
        return cls(mean, float(np.exp(found.x)))
