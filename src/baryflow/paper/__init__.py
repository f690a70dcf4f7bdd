r"""The paper as it is printed, to be read beside it.

E. Fernandes Montesuma, S. Le Stanc, F. Ngolè Mboula, *Online Multi-Source Domain Adaptation through
Gaussian Mixtures and Dataset Dictionary Learning*, IEEE MLSP 2024. Two files follow the paper from top
to bottom: ``_gmm.py`` has sections 2 and 3.1, ``_dadil.py`` section 3.2.

=====================  ==========================================================================
in the paper           here
=====================  ==========================================================================
eq. 1, EM(X, K)        :func:`log_likelihood`, :func:`em`
eq. 2, BIC             :func:`bic`
labelled mixtures      :func:`labelled_gmm`
eq. 3, MAP             :func:`map_estimate`
eq. 4, transport       :func:`optimal_transport`
eq. 5, Wasserstein     :func:`wasserstein`
eq. 6, Gaussians       :func:`gaussian_w2`
eq. 7, plan            :func:`mixture_plan`
eq. 8, MW₂             :func:`mw2_squared`
eq. 9, barycenter      :func:`barycenter`
SMW₂,β                 :func:`smw2_squared`
eqs. 10 and 11, risk   :func:`empirical_risk`
Algorithm 1            :func:`online_gmm_fit`; batch by batch: :class:`OnlineGMM`
Algorithm 2            :func:`get_best_gmm`
(no number)            :func:`concat_components`
Algorithm 3            :func:`compress_gmm`
Algorithm 4            :func:`gauss_merge`
the rival, KL          :func:`absorb_by_kl`; ``OnlineGMM(compression="kullback-leibler")``
eq. 12, loss           :func:`dictionary_loss`; its gradient: :func:`dictionary_gradient`
GMM-DaDiL              :class:`GMMDaDiL`
Online GMM-DaDiL       :class:`OnlineGMMDaDiL`
=====================  ==========================================================================

Where the paper is open or misprinted, this is what was decided:

- eq. 2 prints the logarithm of a mean log-likelihood; here it is the total log-likelihood.
- eq. 8 defines MW₂ as a sum of squared distances, which eqs. 9 and 12 then square; here it is the
  *squared* distance, squared once, and the name says so.
- eq. 9: with unequal weights, what a plan sends from a component is divided by the weight of that
  component. The barycenter of P with itself is then P.
- Algorithm 1 uses the first batch twice if taken by the letter; here it is used once.
- Algorithm 2 never updates the lowest BIC; here it does. A fit that did not converge loses against
  one that did.
- ``concat_components`` is not printed. Mixtures count by the number of rows that they stand for, so
  every row of the stream counts the same.
- The weights of a mixture's components are its own, never replaced by uniform ones. Only the atoms of
  the dictionary have components of equal weight.
- The optimiser of eq. 12 is not printed. The authors' public code takes Adam steps; here are these, and
  the damped block step of ``baryflow.core.dictionary``.

Equations 6 to 9 and 12 are written out plainly. The classes use the faster numerics of
``baryflow.core``; tests hold both together.
"""

from baryflow.paper._dadil import (
    GMMDaDiL,
    OnlineGMMDaDiL,
    dictionary_gradient,
    dictionary_loss,
)
from baryflow.paper._gmm import (
    OnlineGMM,
    absorb_by_kl,
    barycenter,
    bic,
    compress_gmm,
    concat_components,
    em,
    empirical_risk,
    gauss_merge,
    gaussian_w2,
    get_best_gmm,
    labelled_gmm,
    log_likelihood,
    map_estimate,
    mixture_plan,
    mw2_squared,
    online_gmm_fit,
    optimal_transport,
    smw2_squared,
    wasserstein,
)

__all__ = [
    "GMMDaDiL",
    "OnlineGMM",
    "OnlineGMMDaDiL",
    "absorb_by_kl",
    "barycenter",
    "bic",
    "compress_gmm",
    "concat_components",
    "dictionary_gradient",
    "dictionary_loss",
    "em",
    "empirical_risk",
    "gauss_merge",
    "gaussian_w2",
    "get_best_gmm",
    "labelled_gmm",
    "log_likelihood",
    "map_estimate",
    "mixture_plan",
    "mw2_squared",
    "online_gmm_fit",
    "optimal_transport",
    "smw2_squared",
    "wasserstein",
]
