import numpy as np
import pytest

from baryflow.core.paper_summary import PaperSummary
from baryflow.core.settings import PaperSettings
from baryflow.exceptions import InvalidInputError

PAPER = {"distance": "w2", "merging": "wasserstein"}


def clusters(n_clusters, n_rows, seed=0):
    """Rows of clusters so far apart that nobody can take two for one."""
    rng = np.random.default_rng(seed)
    return 100.0 * np.arange(n_clusters).repeat(n_rows)[:, None] + rng.normal(
        size=(n_clusters * n_rows, 2)
    )


def new_components(settings, X):
    """How many components a second batch brings."""
    summary = PaperSummary(2, settings, np.random.default_rng(0))
    summary.update(clusters(5, 4), np.ones(20))
    before = len(summary.components().masses)
    summary.update(X, np.ones(len(X)))
    return len(summary.components().masses) - before


@pytest.mark.parametrize(
    ("n_clusters", "n_rows", "expected"),
    [
        (6, 10, 6),  # as many as there are
        (12, 10, 8),  # at most the limit
        (4, 1, 3),  # fewer than rows: the paper's ΔK < |X_t|
        (1, 1, 1),  # but one at least
    ],
)
def test_a_batch_may_become_fewer_components_than_rows_up_to_a_limit(n_clusters, n_rows, expected):
    settings = PaperSettings(**PAPER, batch_components=None, batch_limit=8)
    assert settings.most_components(n_clusters * n_rows) == min(8, max(1, n_clusters * n_rows - 1))
    assert new_components(settings, clusters(n_clusters, n_rows)) == expected


def test_a_number_of_components_is_taken_as_it_is():
    assert new_components(PaperSettings(**PAPER), clusters(6, 10)) == 3
    exact = PaperSettings(**PAPER, batch_components=5, batch_limit=2)
    assert new_components(exact, clusters(6, 10)) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_components": None},
        {"batch_components": 0},
        {"batch_components": None, "batch_limit": 0},
    ],
)
def test_without_a_number_there_must_be_a_limit(wrong):
    with pytest.raises(InvalidInputError, match="batch_"):
        PaperSettings(**wrong)
