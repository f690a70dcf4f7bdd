"""Many targets, one model: twins share what the sources taught."""

from __future__ import annotations

from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from baryflow.estimators.follower import Follower, FollowerState
from baryflow.exceptions import InvalidInputError


class HasTwins:
    """Can be told apart from what it has seen of its target; mixed into an adapter."""

    columns_: dict[Any, str]
    _follower: Follower

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
