import numpy as np

from baryflow.core.dictionary import Points


def test_columns_have_names_and_are_views():
    means, stds, labels = np.zeros((2, 3, 4)), np.ones((2, 3, 4)), np.full((2, 3, 5), 2.0)
    points = Points.join(means, stds, labels)
    assert points.values.shape == (2, 3, 13)
    assert points.n_spatial == points.spatial.shape[-1] == 8
    for name, expected in (("means", means), ("stds", stds), ("labels", labels)):
        assert np.array_equal(getattr(points, name), expected)
        assert np.shares_memory(getattr(points, name), points.values)
    points.stds[...] = 7.0
    assert (points.values[..., 4:8] == 7.0).all()
    assert (points.spatial[..., :4] == 0.0).all()


def test_points_without_labels_have_no_label_columns():
    assert Points.join(np.zeros((3, 2)), np.ones((3, 2)), np.zeros((3, 0))).labels.shape == (3, 0)
