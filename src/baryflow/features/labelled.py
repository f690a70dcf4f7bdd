"""Labelled windows to a model that takes raw rows, and whether it would help on them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features.cut import Windows
from baryflow.features.encoder import OnnxEncoder
from baryflow.features.pairing import SignalModel
from baryflow.features.transformer import TARGET, SignalFeatures
from baryflow.model_selection import Evaluation, evaluate
from baryflow.model_selection.leaving_out import for_each


def find_normal(cut: Windows, sample_domain: Any, name: Any) -> Any:
    """Return which windows are of the class that is normal operation; all domains need some.

    Parameters
    ----------
    cut : Windows
        With labels.
    sample_domain : array of shape (n_windows,)
    name : label

    Returns
    -------
    array of bool of shape (n_windows,)
        Those with rows of that class only, if there are such in every domain.

    Raises
    ------
    InvalidInputError
        If it is no class, or a domain has no window of it.
    """
    label, mixed = _labels(cut), np.asarray(cut.mixed)
    found = np.asarray(label == name)
    if not found.any():
        known = ", ".join(map(str, np.unique(label).tolist()))
        raise InvalidInputError(f"{name!r} is not a class of any window; classes are: {known}")
    domains = np.unique(sample_domain).tolist()
    if TARGET in domains:
        raise InvalidInputError(
            f"a domain is called {TARGET!r}, which is reserved for the new target: rename it"
        )
    without = [domain for domain in domains if not found[sample_domain == domain].any()]
    if without:
        raise InvalidInputError(
            f"no window of {', '.join(map(repr, without))} is {name!r}, so what is normal there is not "
            "known: add some, leave the domain out, or do without saying what is normal"
        )
    pure = found & ~mixed
    return pure if all(pure[sample_domain == domain].any() for domain in domains) else found


def fit_signals(
    cut: Windows,
    sample_domain: Any,
    features: SignalFeatures | OnnxEncoder,
    model: OnlineDaDiL,
    *,
    step: int,
    normal: Any = None,
) -> SignalModel:
    """Fit features and a model of them on labelled windows of sources.

    Parameters
    ----------
    cut : Windows
        With labels.
    sample_domain : array of shape (n_windows,)
        The source of every window.
    features : SignalFeatures or OnnxEncoder
    model : OnlineDaDiL
    step : int
        Rows from one window to the next, also on a stream.
    normal : label, optional
        The class that is normal operation: statistics become deviations from it. Every source needs
        windows of it.

    Returns
    -------
    SignalModel

    Raises
    ------
    InvalidInputError
        If shapes do not fit, or a source has no normal window.
    """
    label = _labels(cut)
    mask = None if normal is None else find_normal(cut, sample_domain, normal)
    rows = features.fit(cut, label, sample_domain, mask).transform(
        cut, None if mask is None else sample_domain
    )
    model.fit(rows, label, sample_domain=sample_domain)
    return SignalModel(features, model, step)


def evaluate_signals(
    cut: Windows,
    sample_domain: Any,
    features: SignalFeatures | OnnxEncoder,
    model: OnlineDaDiL,
    *,
    normal: Any = None,
    n_normal: int = 0,
    n_jobs: int | None = None,
    verbose: Any = 0,
    **options: Any,
) -> Evaluation:
    """Do what :func:`baryflow.model_selection.evaluate` does, from raw signals.

    The features are learned again for each fold, from the other domains only: labels of the one that is
    left out must not decide which statistics are kept.

    Parameters
    ----------
    cut, sample_domain, features, model, normal
        As in :func:`fit_signals`.
    n_normal : int, default=0
        Number of the first normal windows of the left-out domain that are known to be normal, as if it
        had been commissioned; 0: nothing is known of it.
    n_jobs, verbose
        As in :func:`~baryflow.model_selection.evaluate`.
    **options
        Of :func:`~baryflow.model_selection.evaluate`: order, batch_size, …

    Returns
    -------
    Evaluation

    Raises
    ------
    InvalidInputError
        If there are fewer than two domains, shapes do not fit, or a domain has no normal window.
    """
    domains = np.unique(sample_domain).tolist()
    if len(domains) < 2:
        raise InvalidInputError(
            f"expected two domains or more, one to leave out and one to learn from; all windows are of "
            f"{domains[0]!r}"
        )
    mask = None if normal is None else find_normal(cut, sample_domain, normal)
    parts = (cut, np.asarray(sample_domain), features, model, mask, n_normal)
    work = partial(_leave_out, *parts, options)
    found: list[Evaluation] = for_each(work, domains, n_jobs=n_jobs, verbose=verbose)
    return replace(found[0], scores=tuple(score for one in found for score in one.scores))


def _leave_out(
    cut: Windows,
    domain: Any,
    features: Any,
    model: Any,
    mask: Any,
    n_normal: int,
    options: Any,
    target: Any,
) -> Evaluation:
    """Evaluate with one domain as the target, whose labels have no say in its features."""
    label, known = _labels(cut), domain != target
    mine = clone(features)
    mine.fit(cut.where(known), label[known], domain[known], None if mask is None else mask[known])
    if mask is not None and n_normal:
        mine.learn_normal(cut.where(np.flatnonzero(mask & ~known)[:n_normal]))
    rows = np.empty((len(cut), len(mine.get_feature_names_out())))
    rows[known] = mine.transform(cut.where(known), None if mask is None else domain[known])
    rows[~known] = mine.transform(cut.where(~known))
    names = mine.get_feature_names_out().tolist()
    return evaluate(model, rows, label, domain, targets=[target], feature_names=names, **options)


def _labels(cut: Windows) -> Any:
    if cut.label is None:
        raise InvalidInputError("the windows have no labels: say `label` where they are cut")
    return cut.label


def read_encoder(path: Any, cut: Windows) -> OnnxEncoder:
    """Read a network for these windows, whichever of time and channels it wants first.

    Parameters
    ----------
    path : path
    cut : Windows

    Returns
    -------
    OnnxEncoder
        Fitted.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    InvalidInputError
        If it is no network, or takes windows of another shape.
    """
    try:
        return OnnxEncoder(path).fit(cut)
    except InvalidInputError as error:
        try:
            return OnnxEncoder(path, channels_first=True).fit(cut)
        except InvalidInputError:
            raise error from None  # the usual order tells more
