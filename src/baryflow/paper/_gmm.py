"""Sections 2 and 3.1 of the paper: mixtures, transport between them, and a mixture of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from baryflow.core.em import distinct_rows, sweep_components
from baryflow.core.gaussian import kl_table
from baryflow.core.mixture import Mixture
from baryflow.core.transport import plan_between
from baryflow.exceptions import InvalidInputError
from baryflow.validation import (
    Floats,
    Integers,
    RandomState,
    as_choice,
    as_count,
    as_generator,
    as_matrix,
    as_real,
    as_simplex,
)

# == 2.1 Gaussian mixture models ======================================================================


def log_likelihood(P: Mixture, X: Any) -> float:
    r"""Equation 1: return the mean log-likelihood of rows.

    .. math:: L(\theta) = \frac1n \sum_i \log P_\theta(x_i)

    Parameters
    ----------
    P : Mixture
    X : array of shape (n_samples, n_features)

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If the rows do not fit the mixture.
    """
    return float(P.log_density(X).mean())


def em(X: Any, n_components: int, *, random_state: RandomState = None) -> Mixture:
    """EM(X, K), below equation 1: fit a mixture of K components by maximum likelihood.

    It has a single k-means++ start, and stops when the mean log-likelihood rises by less than 0.001, or
    after 100 iterations. No std is below 0.001 times that of the whole column.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    n_components : int
        K; never more than there are distinct rows.
    random_state : int, Generator or None

    Returns
    -------
    Mixture
        Its mass is the number of rows.

    Raises
    ------
    InvalidInputError
        If the rows or the number do not fit.
    """
    return sweep_components(X, n_components, random_state=random_state).mixture


def bic(P: Mixture, X: Any) -> float:
    r"""Equation 2: return the Bayesian information criterion; lower is better.

    .. math:: \mathrm{BIC} = |P_\theta| \log n - 2 \sum_i \log P_\theta(x_i),
        \qquad |P_\theta| = (K - 1) + 2 K d

    The paper prints log L with the mean L of equation 1; the total log-likelihood is what is meant.

    Parameters
    ----------
    P : Mixture
    X : array of shape (n_samples, n_features)

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If the rows do not fit the mixture.
    """
    X = as_matrix(X, "X")
    n_parameters = (P.n_components - 1) + 2 * P.n_components * P.n_features
    return float(n_parameters * np.log(len(X)) - 2.0 * len(X) * log_likelihood(P, X))


def labelled_gmm(
    X: Any,
    y: Any,
    n_classes: int,
    components_per_class: int = 1,
    *,
    random_state: RandomState = None,
) -> Mixture:
    """Fit a labelled mixture, below equation 2: each class by EM, its components having its label.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    y : array of int, shape (n_samples,)
        Classes, from 0 to n_classes − 1; some may be missing.
    n_classes : int
    components_per_class : int, default=1
    random_state : int, Generator or None

    Returns
    -------
    Mixture
        With one-hot labels; class weights are proportional to row counts.

    Raises
    ------
    InvalidInputError
        If rows, classes or numbers do not fit.
    """
    X, y, rng = as_matrix(X, "X"), np.asarray(y), as_generator(random_state)
    if y.shape != (len(X),) or y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= n_classes:
        raise InvalidInputError(
            f"y must hold {len(X)} integers from 0 to {n_classes - 1}, got {y.dtype} of shape {y.shape}"
        )
    parts = []
    for label in np.unique(y):
        part = em(X[y == label], components_per_class, random_state=rng)
        parts.append(part.with_labels(np.tile(np.eye(n_classes)[label], (part.n_components, 1))))
    return Mixture.concatenate(parts)


def map_estimate(P: Mixture, X: Any) -> Integers:
    r"""Equation 3: return the most probable class of each row.

    .. math:: \hat y = \arg\max_j \sum_k P_\theta(y = j \mid k) \, P_\theta(k \mid x),
        \qquad P_\theta(y = j \mid k) = \tilde y_{kj}

    Parameters
    ----------
    P : Mixture
        Labelled.
    X : array of shape (n_samples, n_features)

    Returns
    -------
    array of int, shape (n_samples,)

    Raises
    ------
    InvalidInputError
        If the mixture has no labels, or the rows do not fit it.
    """
    if P.labels is None:
        raise InvalidInputError("P has no labels: classify with a labelled mixture")
    found: Integers = (P.posterior(X) @ P.labels).argmax(axis=1)
    return found


# == 2.2 Optimal transport ============================================================================


def optimal_transport(weights_p: Any, weights_q: Any, costs: Any) -> Floats:
    r"""Equation 4: return the plan that carries one set of weights to another at the lowest cost.

    .. math:: \gamma^\star = \arg\min_{\gamma \in \Gamma(P, Q)} \sum_{ij} \gamma_{ij} c_{ij}

    Parameters
    ----------
    weights_p, weights_q : arrays of shape (n,) and (m,)
        On the simplex.
    costs : array of shape (n, m)
        The ground cost.

    Returns
    -------
    array of shape (n, m)
        Its rows sum to `weights_p`, its columns to `weights_q`.

    Raises
    ------
    InvalidInputError
        If weights leave the simplex, or shapes differ.
    TransportError
        If no plan could be proved optimal.
    """
    p, q = as_simplex(weights_p, "weights_p"), as_simplex(weights_q, "weights_q")
    costs = as_matrix(costs, "costs", rows=f"n={len(p)}", columns="m", n_columns=len(q))
    if len(costs) != len(p):
        raise InvalidInputError(f"costs must have {len(p)} rows, as many as weights_p, got {len(costs)}")
    return plan_between(p, q, costs)


def wasserstein(weights_p: Any, weights_q: Any, costs: Any) -> float:
    r"""Equation 5: return the Wasserstein distance to the power α, for the ground cost d^α.

    .. math:: W_\alpha(P, Q)^\alpha = \sum_{ij} \gamma^\star_{ij} \, d(x_i, x_j)^\alpha

    Parameters
    ----------
    weights_p, weights_q, costs
        As in :func:`optimal_transport`; from here on, costs are squared distances (α = 2).

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If weights leave the simplex, or shapes differ.
    TransportError
        If no plan could be proved optimal.
    """
    return float(np.vdot(optimal_transport(weights_p, weights_q, costs), costs))


def gaussian_w2(P: Mixture, Q: Mixture) -> Floats:
    r"""Equation 6: return W₂ between each component of P and each of Q.

    .. math:: W_2 = \sqrt{\|\mu^{(P)} - \mu^{(Q)}\|^2 + \|\sigma^{(P)} - \sigma^{(Q)}\|^2}

    An axis-aligned Gaussian is the point (μ, σ) of R^2d, and this is the Euclidean distance there.

    Parameters
    ----------
    P, Q : Mixture
        With the same features.

    Returns
    -------
    array of shape (K_P, K_Q)

    Raises
    ------
    InvalidInputError
        If features differ.
    """
    if P.n_features != Q.n_features:
        raise InvalidInputError(
            f"P and Q must have the same features, got {P.n_features} and {Q.n_features}"
        )
    return np.asarray(cdist(np.hstack([P.means, P.stds]), np.hstack([Q.means, Q.stds])))


def mixture_plan(P: Mixture, Q: Mixture, label_cost: float = 0.0) -> Floats:
    r"""Equation 7: return the optimal plan between the components of two mixtures.

    .. math:: \omega^\star = \arg\min_{\omega \in \Gamma(\pi^{(P)}, \pi^{(Q)})}
        \sum_{k_1 k_2} \omega_{k_1 k_2} W_2(P_{k_1}, Q_{k_2})^2

    Parameters
    ----------
    P, Q : Mixture
        With the same features.
    label_cost : float, default=0.0
        β, which adds β‖y − y'‖² to the ground cost; both mixtures must then be labelled.

    Returns
    -------
    array of shape (K_P, K_Q)

    Raises
    ------
    InvalidInputError
        If features or classes differ, or labels are missing.
    TransportError
        If no plan could be proved optimal.
    """
    return plan_between(P.weights, Q.weights, _ground_cost(P, Q, label_cost))


def mw2_squared(P: Mixture, Q: Mixture) -> float:
    r"""Equation 8: return the squared mixture-Wasserstein distance MW₂².

    .. math:: MW_2^2(P, Q) = \sum_{k_1 k_2} \omega^\star_{k_1 k_2} W_2(P_{k_1}, Q_{k_2})^2

    Parameters
    ----------
    P, Q : Mixture
        With the same features.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If features differ.
    TransportError
        If no plan could be proved optimal.
    """
    return float(np.vdot(mixture_plan(P, Q), _ground_cost(P, Q, 0.0)))


def smw2_squared(P: Mixture, Q: Mixture, label_cost: float) -> float:
    r"""SMW₂,β², below equation 9: the same between labelled mixtures, where labels cost too.

    The ground cost is :math:`W_2(P_{k_1}, Q_{k_2})^2 + \beta \|y_{k_1} - y_{k_2}\|^2`.

    Parameters
    ----------
    P, Q : Mixture
        Labelled, with the same features and classes.
    label_cost : float
        β.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If features or classes differ, or labels are missing.
    TransportError
        If no plan could be proved optimal.
    """
    _check_labelled(P, Q)
    return float(np.vdot(mixture_plan(P, Q, label_cost), _ground_cost(P, Q, label_cost)))


def _ground_cost(P: Mixture, Q: Mixture, label_cost: float) -> Floats:
    """Return what it costs to carry each component of P to each of Q."""
    costs: Floats = np.square(gaussian_w2(P, Q))
    if as_real(label_cost, "label_cost", low=0.0) == 0.0:
        return costs
    _check_labelled(P, Q)
    return np.asarray(costs + label_cost * cdist(P.labels, Q.labels, "sqeuclidean"))


def _check_labelled(P: Mixture, Q: Mixture) -> None:
    if P.labels is None or Q.labels is None or P.n_classes != Q.n_classes:
        raise InvalidInputError(f"P and Q must be labelled with the same classes, got {P} and {Q}")


def check_alike(mixtures: Sequence[Mixture]) -> None:
    """Refuse mixtures that differ in features, in classes, or in whether they are labelled."""
    shapes = {(P.n_features, None if P.labels is None else P.n_classes): P for P in mixtures}
    if len(shapes) > 1:
        first, second, *_ = shapes.values()
        raise InvalidInputError(f"mixtures must have the same features and classes: {first}, {second}")


def barycenter(
    mixtures: Sequence[Mixture],
    coordinates: Any,
    *,
    label_cost: float = 0.0,
    start: Mixture | None = None,
) -> Mixture:
    r"""Equation 9: return the mixture-Wasserstein barycenter, by fixed point.

    .. math:: B(\lambda, \mathcal P) = \arg\min_B \sum_c \lambda_c MW_2^2(B, P_c)

    From a start, solve the plan to every mixture, move each component to the mean of where the plans
    send it, and repeat until the objective stops falling. The minimum found depends on the start.

    Parameters
    ----------
    mixtures : sequence of Mixture
        The atoms, all labelled or none.
    coordinates : array of shape (n_mixtures,)
        λ, on the simplex.
    label_cost : float, default=0.0
        β: with it, SMW₂,β² takes the place of MW₂².
    start : Mixture, optional
        Its weights and its number of components are those of the result. Without it, the mixture with
        the largest coordinate.

    Returns
    -------
    Mixture

    Raises
    ------
    InvalidInputError
        If mixtures disagree, or the coordinates leave the simplex.
    TransportError
        If no plan could be proved optimal.
    """
    coordinates = as_simplex(coordinates, "coordinates", length=len(mixtures), dim="n_mixtures")
    check_alike([*mixtures] if start is None else [*mixtures, start])
    used = [(P, share) for P, share in zip(mixtures, coordinates, strict=True) if share > 0.0]
    B = used[int(np.argmax([share for _, share in used]))][0] if start is None else start
    objective = np.inf
    while True:
        plans = [mixture_plan(B, P, label_cost) for P, _ in used]
        value = sum(
            share * float(np.vdot(plan, _ground_cost(B, P, label_cost)))
            for plan, (P, share) in zip(plans, used, strict=True)
        )
        if not value < objective * (1.0 - 1e-12):
            return B
        objective = value
        occurs = B.weights > 0.0
        sent = [
            share * (plan[occurs] / B.weights[occurs, None]) @ as_points(P)
            for plan, (P, share) in zip(plans, used, strict=True)
        ]
        points = as_points(B)
        points[occurs] = np.sum(sent, axis=0)
        B = as_mixture(B.weights, points, B.n_features, B.mass)


def as_points(P: Mixture, label_scale: float = 1.0, n_classes: int = 0) -> Floats:
    """Return the components as points (μ, σ, label_scale · y); without labels, n_classes zeros."""
    labels = np.zeros((P.n_components, n_classes)) if P.labels is None else label_scale * P.labels
    return np.hstack([P.means, P.stds, labels])


def as_mixture(weights: Floats, points: Floats, n_features: int, mass: float = 1.0) -> Mixture:
    """Return the mixture of such points; labels are divided by their sum."""
    means, stds, labels = np.split(points, [n_features, 2 * n_features], axis=1)
    shares = labels / labels.sum(axis=1, keepdims=True) if labels.size else None
    return Mixture(weights, means, stds, shares, mass)


# == 2.3 Learning theory and domain adaptation ========================================================


def empirical_risk(predicted: Any, y: Any) -> float:
    r"""Equation 11: return the share of rows that are classified wrongly, the risk under the 0-1 loss.

    .. math:: \hat R_P(h) = \frac1n \sum_i \mathcal L(h(x_i), y_i)

    It estimates the risk of equation 10, the mean over P itself, which nobody can compute. Accuracy is
    one minus this. Our baseline of Fig. 3, a logistic regression, minimises the log-loss in its place.

    Parameters
    ----------
    predicted, y : arrays of shape (n_samples,)

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If there are no rows, or shapes differ.
    """
    predicted, y = np.asarray(predicted), np.asarray(y)
    if predicted.shape != y.shape or not y.size:
        raise InvalidInputError(
            f"predicted and y must have the same length, at least 1, got {predicted.shape} and {y.shape}"
        )
    return float(np.mean(predicted != y))


# == 3.1 Online Gaussian mixture modelling ============================================================


def online_gmm_fit(
    stream: Iterable[Any],
    min_components: int = 5,
    max_components: int = 15,
    batch_components: int = 3,
    *,
    random_state: RandomState = None,
) -> Mixture:
    """Algorithm 1: fit a mixture to a stream of batches, each seen once.

    Parameters
    ----------
    stream : iterable of arrays of shape (n_samples, n_features)
    min_components, max_components, batch_components : int
        K_min, K_max and ΔK, with K_min at most K_max. The defaults are those of the paper's toy.
    random_state : int, Generator or None

    Returns
    -------
    Mixture
        Its mass is the number of rows of the stream.

    Raises
    ------
    InvalidInputError
        If the stream is empty, or batches or numbers do not fit.

    Examples
    --------
    >>> from baryflow.datasets import make_crescents
    >>> from baryflow.paper import online_gmm_fit
    >>> X, _ = make_crescents(random_state=0)
    >>> online_gmm_fit(X.reshape(30, 20, 2), random_state=0)
    Mixture(n_components=15, n_features=2, mass=600)
    """
    smallest, limit = as_range(min_components, max_components)
    rng, batches = as_generator(random_state), iter(stream)
    first = next(batches, None)
    if first is None:
        raise InvalidInputError("the stream holds no batch")
    P = get_best_gmm(first, smallest, smallest, random_state=rng)
    for X in batches:
        new = get_best_gmm(X, 1, _below_rows(batch_components, len(X)), random_state=rng)
        P = concat_components(P, new)
        P = compress_gmm(P, limit)
    return P


def as_range(min_components: Any, max_components: Any) -> tuple[int, int]:
    """Return K_min and K_max."""
    smallest = as_count(min_components, "min_components")
    limit = as_count(max_components, "max_components")
    if limit < smallest:
        raise InvalidInputError(
            f"max_components must not be below min_components={smallest}, got {limit}"
        )
    return smallest, limit


def _below_rows(batch_components: int, n_rows: int) -> int:
    """Return ΔK, which has to be smaller than the batch."""
    return max(1, min(as_count(batch_components, "batch_components"), n_rows - 1))


def get_best_gmm(X: Any, k1: int, k2: int, *, random_state: RandomState = None) -> Mixture:
    """Algorithm 2: fit mixtures of k1 to k2 components, and keep the one with the lowest BIC.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        One batch.
    k1, k2 : int
        The range of components, ends included; never more than there are distinct rows.
    random_state : int, Generator or None

    Returns
    -------
    Mixture

    Raises
    ------
    InvalidInputError
        If the rows or the range do not fit.
    """
    k1, k2, rng = as_count(k1, "k1"), as_count(k2, "k2"), as_generator(random_state)
    if k2 < k1:
        raise InvalidInputError(f"k2 must not be below k1={k1}, got {k2}")
    fits = [sweep_components(X, k, random_state=rng) for k in range(k1, k2 + 1)]
    return min(fits, key=lambda fit: (not fit.converged[0], fit.bic[0])).mixture


def concat_components(P: Mixture, Q: Mixture) -> Mixture:
    """Line 5 of Algorithm 1: return all components of both, each mixture counting by its rows.

    Parameters
    ----------
    P, Q : Mixture
        With the same features.

    Returns
    -------
    Mixture

    Raises
    ------
    InvalidInputError
        If features differ.
    """
    return Mixture.concatenate([P, Q])


def compress_gmm(P: Mixture, max_components: int) -> Mixture:
    """Algorithm 3: merge the two nearest components until at most `max_components` are left.

    Parameters
    ----------
    P : Mixture
        Unlabelled: the paper merges no labels.
    max_components : int
        K_max.

    Returns
    -------
    Mixture

    Raises
    ------
    InvalidInputError
        If P is labelled, or `max_components` is no positive integer.
    """
    limit = as_count(max_components, "max_components")
    _check_unlabelled(P)
    while P.n_components > limit:
        W = gaussian_w2(P, P)
        np.fill_diagonal(W, np.inf)
        i, j = sorted(int(k) for k in np.unravel_index(W.argmin(), W.shape))
        weight, mean, std = gauss_merge(P, i, j)
        weights, means, stds = P.weights.copy(), P.means.copy(), P.stds.copy()
        weights[i], means[i], stds[i] = weight, mean, std
        P = Mixture(
            np.delete(weights, j), np.delete(means, j, axis=0), np.delete(stds, j, axis=0), mass=P.mass
        )
    return P


def _check_unlabelled(P: Mixture) -> None:
    if P.labels is not None:
        raise InvalidInputError(f"cannot merge labels of {P}: remove them with with_labels(None)")


def gauss_merge(P: Mixture, i: int, j: int) -> tuple[float, Floats, Floats]:
    """Algorithm 4: return weight, mean and std of what two components become.

    It is their Wasserstein barycenter with λ proportional to their weights. Averaging standard
    deviations loses the spread between the two means; that is how the paper has it.

    Parameters
    ----------
    P : Mixture
        Its labels, if any, play no part.
    i, j : int
        Numbers of components.

    Returns
    -------
    weight : float
    mean, std : arrays of shape (n_features,)

    Raises
    ------
    IndexError
        If there is no such component.
    """
    weight = float(P.weights[i] + P.weights[j])
    # Two components without weight are worth the same.
    first = float(P.weights[i] / weight) if weight > 0.0 else 0.5
    second = 1.0 - first
    return weight, first * P.means[i] + second * P.means[j], first * P.stds[i] + second * P.stds[j]


def absorb_by_kl(P: Mixture, new: Mixture, max_components: int) -> Mixture:
    """Absorb a batch as the rival of the paper's toy does.

    It is the method of Acevedo-Valle et al. (2017), as the paper describes it. Similarity is the
    Kullback-Leibler divergence, and only components of the new batch can be removed. Our choices: each
    surplus one gives its weight to the old component with the smallest KL(new ‖ old), which stays where
    it is.

    Parameters
    ----------
    P, new : Mixture
        What was known, and the mixture of the new batch; both unlabelled.
    max_components : int
        K_max.

    Returns
    -------
    Mixture

    Raises
    ------
    InvalidInputError
        If features differ, mixtures are labelled, or `max_components` is no positive integer.
    """
    both = concat_components(P, new)
    _check_unlabelled(both)
    surplus = max(0, both.n_components - as_count(max_components, "max_components"))
    divergence = kl_table(new.means, new.stds, P.means, P.stds)
    removed = divergence.min(axis=1).argsort()[:surplus]
    weights = both.weights.copy()
    np.add.at(weights, divergence.argmin(axis=1)[removed], weights[P.n_components + removed])
    kept = np.delete(np.arange(both.n_components), P.n_components + removed)
    return Mixture(weights[kept], both.means[kept], both.stds[kept], mass=both.mass)


class OnlineGMM(DensityMixin, BaseEstimator):
    """Algorithm 1, batch by batch: a Gaussian mixture of a stream in bounded memory.

    Parameters
    ----------
    max_components, min_components, batch_components : int, default=15, 5 and 3
        K_max, K_min and ΔK, with K_min at most K_max; the defaults are those of the paper's toy in two
        dimensions. Where one batch mixes many clusters, ΔK has to be about their number: see
        :class:`OnlineGMMDaDiL`.
    compression : {"wasserstein", "kullback-leibler"}, default="wasserstein"
        Algorithms 3 and 4, or the rival of the paper's toy, :func:`absorb_by_kl`.
    batch_size : int, default=32
        Rows of the batches into which ``fit`` cuts its rows; ``partial_fit`` takes batches as they come.
    random_state : int, Generator or None
        Starts of EM.

    Attributes
    ----------
    mixture_ : Mixture
        P_t. Its mass is the number of rows seen.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    A model is not saved; its mixture can be: ``model.mixture_.save(path)``.

    Examples
    --------
    >>> from baryflow.datasets import make_crescents
    >>> from baryflow.paper import OnlineGMM
    >>> X, _ = make_crescents(random_state=0)
    >>> model = OnlineGMM(random_state=0)
    >>> for batch in X.reshape(30, 20, 2):
    ...     model = model.partial_fit(batch)
    >>> model.mixture_
    Mixture(n_components=15, n_features=2, mass=600)
    """

    mixture_: Mixture
    n_features_in_: int

    def __init__(
        self,
        max_components: int = 15,
        *,
        min_components: int = 5,
        batch_components: int = 3,
        compression: Literal["wasserstein", "kullback-leibler"] = "wasserstein",
        batch_size: int = 32,
        random_state: RandomState = None,
    ) -> None:
        self.max_components = max_components
        self.min_components = min_components
        self.batch_components = batch_components
        self.compression = compression
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Forget everything, then absorb rows in batches of `batch_size`.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        OnlineGMM
            Itself.

        Raises
        ------
        InvalidInputError
            If rows or parameters do not fit.
        """
        X = validate_data(self, X, dtype=np.float64)
        size = as_count(self.batch_size, "batch_size")
        self._start()
        for start in range(0, len(X), size):
            self._absorb(X[start : start + size])
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Absorb one batch.

        The first fit needs `min_components` distinct rows. Until there are as many, rows are held, and
        the mixture has a component for each.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        OnlineGMM
            Itself.

        Raises
        ------
        InvalidInputError
            If rows or parameters do not fit.
        """
        first = not hasattr(self, "mixture_")
        X = validate_data(self, X, reset=first, dtype=np.float64)
        if first:
            self._start()
        self._absorb(X)
        return self

    def _start(self) -> None:
        self._rng = as_generator(self.random_state)
        self._held: Floats | None = np.empty((0, self.n_features_in_))

    def _absorb(self, X: Floats) -> None:
        as_choice(self.compression, "compression", ("wasserstein", "kullback-leibler"))
        smallest, limit = as_range(self.min_components, self.max_components)
        if self._held is not None:
            rows = np.concatenate([self._held, X])
            self.mixture_ = get_best_gmm(rows, smallest, smallest, random_state=self._rng)
            distinct, _ = distinct_rows(rows, np.ones(len(rows)))
            self._held = rows if len(distinct) < smallest else None
            return
        most = _below_rows(self.batch_components, len(X))
        new = get_best_gmm(X, 1, most, random_state=self._rng)
        if self.compression == "wasserstein":
            self.mixture_ = compress_gmm(concat_components(self.mixture_, new), limit)
        else:
            self.mixture_ = absorb_by_kl(self.mixture_, new, limit)

    def score_samples(self, X: Any) -> Floats:
        """Return the log-density of every row.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)

        Raises
        ------
        InvalidInputError
            If the rows do not fit.
        """
        check_is_fitted(self)
        return self.mixture_.log_density(validate_data(self, X, reset=False, dtype=np.float64))

    def score(self, X: Any, y: Any = None) -> float:
        """Equation 1: return the mean log-density of rows.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float

        Raises
        ------
        InvalidInputError
            If the rows do not fit.
        """
        return float(self.score_samples(X).mean())
