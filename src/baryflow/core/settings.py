"""How streams are summarised; see :class:`baryflow.OnlineGaussianMixture` for the meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from baryflow.core.pool import CRITERIA, MERGES
from baryflow.exceptions import InvalidInputError
from baryflow.validation import as_choice, as_count, as_real

Update = Literal["rows", "bic"]
UPDATES: tuple[Update, ...] = ("rows", "bic")


@dataclass(frozen=True, kw_only=True)
class SummarySettings:
    """What all summaries have to know."""

    #: What a batch becomes.
    update: ClassVar[Update]
    #: What components are made of: it cannot be changed along a stream, nor differ between two.
    fixed: ClassVar[tuple[str, ...]] = ("update", "distance", "merging")

    max_components: int = 50
    distance: str = "ward"
    merging: str = "moment"
    half_life: float | None = None
    std_floor: float = 1e-4

    def __post_init__(self) -> None:
        as_count(self.max_components, "max_components")
        as_choice(self.distance, "distance", tuple(CRITERIA))
        as_choice(self.merging, "merging", tuple(MERGES))
        as_real(self.std_floor, "std_floor", low=1e-4, high=1.0)
        if self.half_life is not None:
            as_real(self.half_life, "half_life", low=0.0, open_low=True)

    @property
    def n_kept(self) -> int:
        """Components kept at most."""
        return self.max_components


@dataclass(frozen=True, kw_only=True)
class Settings(SummarySettings):
    """How a stream is summarised row by row."""

    update = "rows"
    fixed = (*SummarySettings.fixed, "full_covariance", "n_votes")

    resolution: int = 2
    full_covariance: bool = False
    n_votes: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
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


@dataclass(frozen=True, kw_only=True)
class PaperSettings(SummarySettings):
    """How a stream is summarised batch by batch."""

    update = "bic"

    min_components: int = 5
    batch_components: int | None = 3  # None: one fewer than the batch has rows, up to batch_limit
    batch_limit: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count(self.min_components, "min_components")
        if self.batch_components is None and self.batch_limit is not None:
            as_count(self.batch_limit, "batch_limit")
        else:
            as_count(self.batch_components, "batch_components")

    def most_components(self, n_rows: int) -> int:
        """Return how many components a batch may become, ΔK, which the paper wants below its rows."""
        if self.batch_components is not None:
            return self.batch_components
        limit = n_rows if self.batch_limit is None else self.batch_limit
        return max(1, min(n_rows - 1, limit))
