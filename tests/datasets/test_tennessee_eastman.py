import numpy as np
import pytest

from baryflow import container
from baryflow.datasets import load_tep
from baryflow.datasets.tennessee_eastman import Features, read_features
from baryflow.exceptions import FileFormatError, InvalidInputError


def test_features_come_back_as_they_were_kept(tmp_path):
    rng = np.random.default_rng(0)
    numbers = [rng.integers(1, 7, size=9) for _ in range(4)]
    one = Features(3, {"encoder": "light"}, rng.normal(size=(9, 128)).astype(np.float16), *numbers)
    one.save(tmp_path / "f.bary")
    back = read_features(tmp_path / "f.bary")
    assert back.target == 3
    assert back.about == {"encoder": "light"}
    for name in ("X", "y", "domain", "run", "head"):
        np.testing.assert_array_equal(getattr(back, name), getattr(one, name))
    assert back.is_target.tolist() == (one.domain == 3).tolist()
    huge = Features(3, {}, np.full((9, 2), 1e6, dtype=np.float32), *numbers)
    with (
        pytest.raises(InvalidInputError, match="too large for half precision"),
        np.errstate(over="ignore"),
    ):
        huge.save(tmp_path / "h.bary")


def test_files_that_hold_no_features_are_told(tmp_path):
    container.write(tmp_path / "a.bary", "mixture", {}, {"X": np.zeros((2, 2))})
    with pytest.raises(FileFormatError, match="does not hold encoded signals"):
        read_features(tmp_path / "a.bary")
    arrays = {name: np.zeros(3) for name in ("y", "domain", "run", "head")} | {"X": np.zeros((2, 2))}
    container.write(tmp_path / "b.bary", "tep-features", {"target": 1, "about": {}}, arrays)
    with pytest.raises(FileFormatError, match="do not fit together"):
        read_features(tmp_path / "b.bary")


def test_the_embedded_features_are_all_runs_of_all_modes():
    whole = load_tep()
    assert whole.X.shape == (6 * 29 * 50, 128)
    counts = np.unique(np.stack([whole.domain, whole.y]), axis=1, return_counts=True)[1]
    assert set(counts.tolist()) == {50}
    assert whole.about["sources"] == [2, 3, 4, 5, 6]
    few = load_tep(runs=2, faults=[0, 6])
    assert len(few) == 6 * 2 * 2
    with pytest.raises(InvalidInputError, match="only target mode 1 is embedded, got 4"):
        load_tep(4)
