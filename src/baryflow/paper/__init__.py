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
eq. 5, Wasserstein     :func:`wasserstein`, which returns W_α to the power α
eq. 6, Gaussians       :func:`gaussian_w2`, which returns W₂ itself
eq. 7, plan            :func:`mixture_plan`
eq. 8, MW₂             :func:`mw2_squared`
eq. 9, barycenter      :func:`barycenter`
eq. 9 with labels      the same with ``label_cost=β``
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
after the stream       its method ``optimise``: further steps on eq. 12
=====================  ==========================================================================

Where the paper is open or misprinted, this is what was decided:

- eq. 2 prints the logarithm of a mean log-likelihood; here it is the total log-likelihood.
- EM is not specified. Here it has a single k-means++ start. It stops when the mean log-likelihood rises
  by less than 0.001, or after 100 iterations. No std is below 0.001 times that of the whole column.
- eq. 8 defines MW₂ as a sum of squared distances, which eqs. 9 and 12 then square.
  :func:`mw2_squared` returns MW₂².
- eq. 9: with unequal weights, what a plan sends from a component is divided by the weight of that
  component. The barycenter of P with itself is then P.
- Algorithm 1 uses the first batch twice if taken by the letter; here it is used once. It uses K_max but
  does not list it as an argument; here it is one, and not below K_min.
- Algorithm 2 never updates the lowest BIC; here it does. A fit that did not converge loses against
  one that did.
- ``concat_components`` is not printed. Each mixture is weighted by its row count.
- The paper gives no formula for the rival. That a removed component gives its weight to the nearest old
  one, and that nearest is by KL(new ‖ old), are our choices.
- The weights of a mixture's components are its own, never replaced by uniform ones. Only the atoms of
  the dictionary, and so the reconstructions, have components of equal weight. Sources keep their class
  weights, so under class imbalance a frequent class also fills slots of rare ones. A rare class may then
  get recall 0.
- In eq. 12 labels cost in the barycenter of the target, too: atoms are labelled, although Q_T is not.
- The optimiser of eq. 12 is not printed. The authors' public code takes Adam steps; both Adam and the
  damped block step of ``baryflow.core.dictionary`` (default) are offered. Stds of atoms stay above the
  smallest std of the source mixtures.

Equations 6 to 9 and 12 are written out plainly. The classes use the faster numerics of
``baryflow.core``, with at most 20 fixed-point iterations for each barycenter in a step; tests check that
they agree.
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
