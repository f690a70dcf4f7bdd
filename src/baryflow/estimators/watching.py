"""A target as it is known at one moment, rows held against it, and forgetting it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.utils.validation import check_is_fitted

from baryflow.core.gaussian import LogDensity
from baryflow.core.mixture import Mixture
from baryflow.core.points import Points
from baryflow.estimators.adaptation import Adaptation, floor_stds, measure_remoteness
from baryflow.estimators.follower import STRANGE, Follower
from baryflow.estimators.novelty import Novelty
from baryflow.estimators.source_model import SourceModel
from baryflow.estimators.threads import one_thread
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_real


@dataclass(frozen=True, eq=False)
class KnownTarget:
    """A target as it was known at one moment: what later rows are held against.

    Attributes
    ----------
    mixture : Mixture
        The target's own components, labelled, in the coordinates of the view.
    means, stds : arrays of shape (n_slots, n_dimensions)
        Its reconstruction from the sources.
    centre, scale : arrays of shape (n_features,)
        Moments of its columns, through which the view looks.
    typical : float
        Median distance of its rows from the reconstruction.
    resemblance : array of shape (n_sources,)
        How much of each source is in it.
    """

    mixture: Mixture
    means: Floats
    stds: Floats
    centre: Floats
    scale: Floats
    typical: float
    resemblance: Floats

    @classmethod
    def of(cls, adaptation: Adaptation, resemblance: Floats) -> Self:
        """Take it from an adaptation."""
        known, mix = adaptation.known, adaptation.mix
        return cls(
            mixture=adaptation.labelled,
            means=known.means.copy(),  # of its own, in one piece: as it is read back
            stds=floor_stds(adaptation.model, known),
            centre=mix.centre,
            scale=mix.scale,
            typical=adaptation.typical,
            resemblance=resemblance,
        )


@dataclass(frozen=True, eq=False)
class Signals:
    """What rows look like, held against a target as it was known.

    Attributes
    ----------
    likelihood : array of shape (n,)
        Log-density of each row under the target's mixture, in the view.
    loss : array of shape (n,)
        Squared distance of each row from the target's reconstruction, in units of what is typical.
    resemblance : array of shape (n, n_sources)
        How probable it is that the row is of each source.
    likeness : array of shape (n,)
        Logarithm of how much better the target's own blend of sources explains the row than all
        sources in equal parts.
    proportions : array of shape (n, n_classes)
        Class probabilities by the target's mixture.
    novelty : array of shape (n,)
        How unlike everything known the row is, 0 to 1.
    lost : array of shape (n,)
        Rows of which next to nothing could be read; what is said of them means nothing.
    """

    likelihood: Floats
    loss: Floats
    resemblance: Floats
    likeness: Floats
    proportions: Floats
    novelty: Floats
    lost: Any

    def summary(self) -> dict[str, float]:
        """Return a number for each signal: means over the rows, and the share of novel ones.

        Returns
        -------
        dict of str → float
            NaN if there is no row that could be read.
        """
        some = ~self.lost
        if not some.any():
            return dict.fromkeys(("likelihood", "loss", "likeness", "novelty"), float("nan"))
        return {
            "likelihood": float(self.likelihood[some].mean()),
            "loss": float(self.loss[some].mean()),
            "likeness": float(self.likeness[some].mean()),
            "novelty": float((self.novelty[some] > STRANGE).mean()),
        }


def hold_against(known: KnownTarget, model: SourceModel, novelty: Novelty, rows: Floats) -> Signals:
    """Hold complete rows against a target as it was known."""
    Z = model.project(rows, known.centre, known.scale)
    mixture = known.mixture
    joint = LogDensity(mixture.means, mixture.stds)(Z) + np.log(mixture.weights)
    likelihood = logsumexp(joint, axis=1)
    loss = measure_remoteness(Z, known.means, known.stds) / known.typical
    sources = np.stack([_log_density(model, domain, Z) for domain in model.domains], axis=1)
    blend = np.log(np.maximum(known.resemblance, np.finfo(np.float64).tiny))
    even = logsumexp(sources, axis=1) - np.log(sources.shape[1])
    return Signals(
        likelihood=likelihood,
        loss=loss,
        resemblance=softmax(sources, axis=1),
        likeness=logsumexp(sources + blend, axis=1) - even,
        proportions=np.exp(joint - likelihood[:, None]) @ np.asarray(mixture.labels),
        novelty=novelty.rank_remoteness(loss),
        lost=np.zeros(len(rows), dtype=bool),
    )


def _log_density(model: SourceModel, domain: Any, Z: Floats) -> Floats:
    """Return the log-density of rows of the view under one source's mixture."""
    there = domain.weights > 0.0
    points = Points(domain.points[there], model.n_dimensions)
    table = LogDensity(points.means, floor_stds(model, points))(Z)
    return np.asarray(logsumexp(table + np.log(domain.weights[there]), axis=1))


class Watched:
    """A follower of a target that can be watched, and told to forget."""

    _follower: Follower
    _kept: Any
    columns_: dict[Any, str]

    @property
    def target_mass(self) -> float:
        """How many rows of the target count: those seen, less what has faded."""
        check_is_fitted(self)
        return self._follower.target.mass

    def known_target(self) -> KnownTarget:
        """Return the target as it is known now, to hold later rows against it.

        Returns
        -------
        KnownTarget

        Raises
        ------
        InvalidInputError
            If no target row was seen yet.
        """
        check_is_fitted(self)
        follower = self._follower
        if follower.adaptation is None:
            raise InvalidInputError("no target row was seen yet: call partial_fit first")
        return KnownTarget.of(follower.adaptation, follower.resemblance)

    @one_thread
    def measure(self, X: Any, known: KnownTarget | None = None) -> Signals:
        """Hold rows against the target, before or without learning from them.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        known : KnownTarget, optional
            The target as it was known once; without it as it is known now.

        Returns
        -------
        Signals

        Raises
        ------
        InvalidInputError
            If no target row was seen yet, or the rows do not fit.
        """
        raw = self._rows(X)  # type: ignore[attr-defined]  # the estimator beside it
        known = self.known_target() if known is None else known
        learned = self._follower.learned
        rows, lost = self._follower.target.clean(raw)
        found = hold_against(known, learned.model, learned.novelty, rows)
        found.lost[:] = lost
        return found

    def source_rows(self) -> tuple[Floats, Any, Any]:
        """Return rows, labels and names of the sources, if they were kept.

        Returns
        -------
        X, y, sample_domain : arrays

        Raises
        ------
        InvalidInputError
            If the model was fitted with ``keep_sources=False``.
        """
        check_is_fitted(self)
        if self._kept is None:
            raise InvalidInputError("the rows of the sources were not kept: use keep_sources=True")
        return self._kept.X, self._kept.y, self._kept.names

    @one_thread
    def forget(self, keep: float = 0.0) -> Self:
        """Forget the target, or let what was seen of it count less; the sources stay.

        Parameters
        ----------
        keep : float, default=0.0
            How much a row that was seen counts from now on, 0 to 1. With 0 the target starts anew.
            ``n_samples_seen_`` and ``history_`` go on.

        Returns
        -------
        OnlineDaDiL
            Itself.

        Raises
        ------
        InvalidInputError
            If `keep` is not between 0 and 1.
        """
        check_is_fitted(self)
        keep = as_real(keep, "keep", low=0.0, high=1.0)
        with self._unless_it_fails():  # type: ignore[attr-defined]
            self._follower = self._follower.copy().forget(keep)
            self.columns_ = self._find_faults()  # type: ignore[attr-defined]
            self._expose()  # type: ignore[attr-defined]
        return self
