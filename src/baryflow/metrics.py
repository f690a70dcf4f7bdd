"""Scores of models that keep learning while unlabelled rows flow past.

:func:`sklearn.model_selection.cross_val_score` and ``GridSearchCV`` score a model as ``fit`` left it. A
model that adapts to a stream has not seen any of it then, and predicts like a classifier that does not
adapt: every way of adapting scores the same. A :class:`StreamingScorer` lets the rows flow first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing as take_rows

from baryflow.estimators._orders import stream_order
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Integers, RandomState, as_choice, as_count, as_generator

__all__ = [
    "ORDERS",
    "Metric",
    "StreamingScorer",
    "accuracy",
    "arrange",
    "as_metric",
    "balanced_accuracy",
    "follow",
    "last_step",
    "learns_from_rows",
]

#: Orders in which rows can flow, and what :func:`stream_order` calls them.
_ORDERS = {"as_is": "", "shuffled": "shuffled", "runs": "runs", "by_class": "class"}
ORDERS = tuple(_ORDERS)
MOMENTS = ("flowing", "end")
#: A number from labels and predictions; more is better.
Metric = Callable[[Any, Any], float]


def accuracy(y: Any, predicted: Any) -> float:
    """Return the share of right answers.

    Parameters
    ----------
    y, predicted : arrays of shape (n_samples,)

    Returns
    -------
    float

    Examples
    --------
    >>> from baryflow.metrics import accuracy
    >>> accuracy(["a", "a", "a", "b"], ["a", "a", "a", "a"])
    0.75
    """
    return float((np.asarray(y) == np.asarray(predicted)).mean())


def balanced_accuracy(y: Any, predicted: Any) -> float:
    """Return the mean over classes of the share of right answers in each.

    Classes are those that `y` holds: a stream need not hold them all.

    Parameters
    ----------
    y, predicted : arrays of shape (n_samples,)

    Returns
    -------
    float

    Examples
    --------
    >>> from baryflow.metrics import balanced_accuracy
    >>> balanced_accuracy(["a", "a", "a", "b"], ["a", "a", "a", "a"])
    0.5
    """
    y, predicted = np.asarray(y), np.asarray(predicted)
    return float(np.mean([(predicted[y == c] == c).mean() for c in np.unique(y)]))


_METRICS: dict[str, Metric] = {"accuracy": accuracy, "balanced_accuracy": balanced_accuracy}


def as_metric(scoring: str | Metric) -> Metric:
    """Return the metric that a name stands for, or the one that was given.

    Parameters
    ----------
    scoring : {"accuracy", "balanced_accuracy"} or callable
        A callable takes labels and predictions and returns a number; more is better.

    Returns
    -------
    callable

    Raises
    ------
    InvalidInputError
        If the name is not known.
    """
    if callable(scoring):
        return scoring
    if scoring not in _METRICS:
        names = ", ".join(map(repr, _METRICS))
        raise InvalidInputError(
            f"scoring must be one of {names}, or a function of labels and predictions such as "
            f"sklearn.metrics.cohen_kappa_score; got {scoring!r}"
        )
    return _METRICS[scoring]


def arrange(y: Any, order: str, random_state: RandomState = None) -> Integers:
    """Return the numbers of rows in the order in which they flow.

    Parameters
    ----------
    y : array of shape (n_samples,)
        Labels of the rows.
    order : {"as_is", "shuffled", "runs", "by_class"}
        As they stand; shuffled; in runs of 20 rows of one class; or one class after the other.
    random_state : int, Generator or None

    Returns
    -------
    array of shape (n_samples,)

    Raises
    ------
    InvalidInputError
        If the order is not known.

    Examples
    --------
    >>> from baryflow.metrics import arrange
    >>> arrange([0, 1, 0, 1], "as_is").tolist()
    [0, 1, 2, 3]
    """
    as_choice(order, "order", ORDERS)
    y = np.asarray(y)
    if order == "as_is":
        return np.arange(len(y))
    return stream_order(y, _ORDERS[order], as_generator(random_state))


def last_step(model: Any) -> Any:
    """Return the last step of a pipeline, and any other model as it is.

    Parameters
    ----------
    model : estimator

    Returns
    -------
    estimator
    """
    return model[-1] if isinstance(model, Pipeline) else model


def learns_from_rows(model: Any) -> bool:
    """Return whether a model keeps learning from rows without labels.

    It does if it has a ``partial_fit`` that can be called with X alone, or is a pipeline whose last step
    has one. ``partial_fit(X, y)`` is something else: it needs labels, which a target does not have.

    Parameters
    ----------
    model : classifier, or pipeline that ends with one

    Returns
    -------
    bool
    """
    method = getattr(last_step(model), "partial_fit", None)
    if method is None:
        return False
    try:
        signature(method).bind(None)
    except TypeError:
        return False
    return True


def follow(model: Any, X: Any, batch_size: int = 32) -> Iterator[Any]:
    """Predict each batch, then learn from it; yield the predictions.

    The model that is passed is the one that learns. One that cannot learn from rows without labels only
    predicts.

    Parameters
    ----------
    model : fitted classifier, or pipeline that ends with one
    X : array or frame of shape (n_samples, n_features)
        Rows in the order in which they flow.
    batch_size : int, default=32

    Yields
    ------
    array of shape (n_rows_of_the_batch,)

    Raises
    ------
    InvalidInputError
        If `batch_size` is not a positive integer.
    """
    batch_size, n = as_count(batch_size, "batch_size"), len(X)
    learns = learns_from_rows(model)
    for start in range(0, n, batch_size):
        batch = take_rows(X, np.arange(start, min(start + batch_size, n)))
        yield model.predict(batch)
        if learns and isinstance(model, Pipeline):
            model[-1].partial_fit(model[:-1].transform(batch) if len(model) > 1 else batch)
        elif learns:
            model.partial_fit(batch)


@dataclass(frozen=True)
class StreamingScorer:
    """Score a fitted model on rows that flow past it, for ``scoring=`` in scikit-learn.

    The rows flow past a copy of the model, without their labels: it predicts each batch and then learns
    from it. The model itself is left as it was. A model that cannot learn from rows without labels is
    scored like any other.

    With ``cross_val_score`` and ``GridSearchCV``, pass the domain of each row twice: as ``groups``,
    which :class:`~sklearn.model_selection.LeaveOneGroupOut` splits by, and as ``sample_domain``, which
    reaches ``fit``. With scikit-learn's metadata routing switched on, once is enough: see the examples.

    Parameters
    ----------
    when : {"flowing", "end"}, default="flowing"
        Count the predictions that were made before each batch was learned from, or predict all rows
        again at the end.
    order : {"as_is", "shuffled", "runs", "by_class"}, default="as_is"
        See :func:`arrange`.
    batch_size : int, default=32
    scoring : {"accuracy", "balanced_accuracy"} or callable, default="accuracy"
        A callable takes labels and predictions.
    random_state : int, default=0
        Of the order.

    Examples
    --------
    Leave one domain out at a time, and see what adapting to it gives:

    >>> from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
    >>> from baryflow import OnlineDaDiL
    >>> from baryflow.datasets import make_domains
    >>> from baryflow.metrics import StreamingScorer
    >>> p = make_domains(n_sources=3, n_classes=3, n_per_class=30, shift=1.0, random_state=0)
    >>> model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    >>> scores = cross_val_score(
    ...     model, p.X, p.y, groups=p.domain, cv=LeaveOneGroupOut(), scoring=StreamingScorer("end"),
    ...     params={"sample_domain": p.domain},
    ... )
    >>> scores.shape
    (3,)

    Choose among parameters:

    >>> search = GridSearchCV(
    ...     model, {"label_shift": [True, False]}, scoring=StreamingScorer("end"),
    ...     cv=LeaveOneGroupOut(),
    ... )
    >>> search.fit(p.X, p.y, groups=p.domain, sample_domain=p.domain).best_params_
    {'label_shift': False}

    The same where metadata routing is switched on:

    >>> from sklearn import config_context
    >>> with config_context(enable_metadata_routing=True):
    ...     again = cross_val_score(
    ...         model.set_fit_request(sample_domain=True), p.X, p.y,
    ...         cv=LeaveOneGroupOut().set_split_request(groups="sample_domain"),
    ...         scoring=StreamingScorer("end"), params={"sample_domain": p.domain},
    ...     )
    >>> bool((again == scores).all())
    True
    """

    when: str = "flowing"
    order: str = "as_is"
    batch_size: int = 32
    scoring: str | Metric = "accuracy"
    random_state: RandomState = 0

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the score of a fitted model; the model is not changed.

        Parameters
        ----------
        estimator : fitted classifier
        X : array or frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)

        Returns
        -------
        float

        Raises
        ------
        InvalidInputError
            If a parameter of the scorer is not one of those described.
        """
        as_choice(self.when, "when", MOMENTS)
        metric = as_metric(self.scoring)
        turn = arrange(y, self.order, self.random_state)
        rows, labels = take_rows(X, turn), np.asarray(y)[turn]
        model = deepcopy(estimator)
        flowing = np.concatenate(list(follow(model, rows, self.batch_size)))
        if self.when == "flowing":
            return metric(labels, flowing)
        return metric(labels, model.predict(rows))
