"""Many targets, one model: twins share what the sources taught."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from baryflow.estimators.follower import Follower, FollowerState
from baryflow.estimators.learned import Learned
from baryflow.estimators.parameters import manner_of, remember_fixed
from baryflow.exceptions import InvalidInputError


class HasTwins:
    """Can be told apart from what it has seen of its target; mixed into an adapter."""

    classes_: Any
    sources_: list[Any]
    columns_: dict[Any, str]
    n_features_in_: int
    feature_names_in_: Any
    get_params: Callable[..., dict[str, Any]]
    _unless_it_fails: Callable[[], AbstractContextManager[None]]
    _follower: Follower
    _kept: Any

    def adopt(
        self, learned: Learned, classes: Any, sources: list[Any], columns: list[Any] | int
    ) -> Self:
        """Begin to follow a target with what was learned elsewhere, from rows that are not here.

        Parameters
        ----------
        learned : Learned
        classes : array of shape (n_classes,)
        sources : list
            Their names.
        columns : list or int
            Names of the features, or how many there are.

        Returns
        -------
        object of this class
            Itself.

        Raises
        ------
        InvalidInputError
            If parameters are out of their range, or the parts do not fit together.
        """
        if len(classes) != learned.model.n_classes or len(sources) != len(learned.model.domains):
            raise InvalidInputError(
                f"what was learned is of {learned.model.n_classes} classes and "
                f"{len(learned.model.domains)} sources, got {len(classes)} and {len(sources)}"
            )
        with self._unless_it_fails():
            vars(self).update(n_features_in_=columns if isinstance(columns, int) else len(columns))
            self.__dict__.pop("feature_names_in_", None)
            if not isinstance(columns, int) and all(isinstance(name, str) for name in columns):
                self.feature_names_in_ = np.array(columns, dtype=object)
            self._settle(learned, classes, sources, None)
        return self

    def _settle(self, learned: Learned, classes: Any, sources: list[Any], rows: Any) -> None:
        """Begin to follow a target with what was learned of the sources, and their rows, if any."""
        self.classes_, self.sources_ = classes, sources
        self._follower = Follower(learned, manner_of(self, len(classes)))
        self._following_with, self._learned_with = self.get_params(deep=False), remember_fixed(self)
        self._kept, self.columns_ = rows, {}
        self._expose()

    def twin(self, target: FollowerState | None = None) -> Self:
        """Return a model of another target, which shares what the sources taught.

        Twins go their own ways: thousands of machines can be followed, each by a twin of one model, and
        the sources are in memory once.

        Parameters
        ----------
        target : FollowerState, optional
            What :meth:`target_state` gave for that target; without it what this model has seen itself.

        Returns
        -------
        object of this class

        Raises
        ------
        InvalidInputError
            If `target` is something else.

        Examples
        --------
        >>> from baryflow import OnlineDaDiL
        >>> from baryflow.datasets import make_domains
        >>> p = make_domains(n_per_class=40, random_state=0)
        >>> model = OnlineDaDiL(rehearse=False).fit(p.X, p.y, p.domain)
        >>> pumps = {name: model.twin() for name in ("north", "south")}
        >>> pumps["north"].partial_fit(p.X_target).n_samples_seen_, pumps["south"].n_samples_seen_
        (320, 0)
        """
        check_is_fitted(self)
        state = self.target_state() if target is None else target
        if not isinstance(state, FollowerState):
            raise InvalidInputError(
                f"target must be what target_state() gave, or None, got a {type(state).__name__}"
            )
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        HasTwins._follow(twin, state)
        return twin

    def _follow(self, state: FollowerState) -> None:
        before = self._follower
        self._follower = Follower.from_state(before.learned, before.manner, state)
        self.columns_ = self._find_faults()
        self._expose()

    @property
    def follower(self) -> Follower:
        """What follows the target, for those who summarise rows elsewhere."""
        check_is_fitted(self)
        return self._follower

    def target_state(self) -> FollowerState:
        """Return all that was seen of the target, without what the sources taught.

        Returns
        -------
        FollowerState
            For :meth:`twin`, and for ``baryflow.codec.encode``.
        """
        check_is_fitted(self)
        return self._follower.state()

    def _find_faults(self) -> dict[Any, str]:
        raise NotImplementedError

    def _expose(self) -> None:
        raise NotImplementedError
