"""How streams are summarised; see :class:`baryflow.OnlineGaussianMixture` for the meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baryflow.core.pool import CRITERIA, MERGES
from baryflow.exceptions import InvalidInputError
from baryflow.validation import as_choice, as_count, as_real


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a stream is summarised."""

    #: What components are made of: it cannot be changed along a stream, nor differ between two.
    fixed: ClassVar[tuple[str, ...]] = ("distance", "merging", "full_covariance")

    max_components: int = 50
    distance: str = "ward"
    merging: str = "moment"
    half_life: float | None = None
    std_floor: float = 1e-4
    resolution: int = 2
    full_covariance: bool = False

    def __post_init__(self) -> None:
        as_count(self.max_components, "max_components")
        as_choice(self.distance, "distance", tuple(CRITERIA))
        as_choice(self.merging, "merging", tuple(MERGES))
        as_real(self.std_floor, "std_floor", low=1e-4, high=1.0)
        if self.half_life is not None:
            as_real(self.half_life, "half_life", low=0.0, open_low=True)
        as_count(self.resolution, "resolution")
        if self.full_covariance and self.merging != "moment":
            raise InvalidInputError(
                "full_covariance needs merging='moment': nothing else keeps the second moments "
                f"exactly; got merging={self.merging!r}"
            )

    @property
    def n_kept(self) -> int:
        """Components kept at most: more than are shown, which are fit to them."""
        return self.resolution * self.max_components
