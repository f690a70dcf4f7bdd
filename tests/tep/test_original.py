"""Small files in the layout of the published ones, written here."""

import h5py
import numpy as np
import pytest

from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.tep import read_arrays, read_original


def _run(parent, number, *, fault, shape=(2001, 54)):
    """A run of 100 h: column j holds 1000 j + fault after the onset, 1000 j before."""
    n_times, n_columns = shape
    data = np.tile(1000.0 * np.arange(n_columns), (n_times, 1))
    data[:, 0] = np.arange(n_times) * 0.05
    data[600:, 1:] += fault
    data[:, 1:] += number / 100
    parent.create_group(f"Run{number}")["processdata"] = data


@pytest.fixture
def published(tmp_path):
    """Mode 3: fault 1 with three runs at 100 %, fault 6 with two at 75 %, fault 7 only ever stopped."""
    path = tmp_path / "TEP_Mode3.h5"
    with h5py.File(path, "w") as file:
        file["Processdata_Labels"] = np.array([b"Time"] + [b"x"] * 53)
        single = file.create_group("Mode3/SingleFault")
        full = single.create_group("SimulationCompleted/IDV1/Mode3_IDVInfo_1_100")
        for number in (1, 2, 10):
            _run(full, number, fault=1)
        single.create_group("SimulationCompleted/IDV1/Mode3_IDVInfo_1_75")
        lowered = single.create_group("SimulationCompleted/IDV6/Mode3_IDVInfo_6_75")
        for number in (1, 2):
            _run(lowered, number, fault=6)
        _run(
            single.create_group("SimulationStopped/IDV7/Mode3_IDVInfo_7_100"),
            1,
            fault=7,
            shape=(700, 54),
        )
    return path


def test_the_extended_dataset_is_read_by_place_and_onset(published):
    signals = read_original(published, faults=[0, 1, 6], runs=3)
    assert signals.X.shape == (8, 600, 34)
    assert signals.y.tolist() == [0, 0, 0, 1, 1, 1, 6, 6]
    assert set(signals.domain) == {3}
    assert signals.run.tolist() == [0, 1, 2, 1, 2, 10, 1, 2]
    columns = np.r_[1:23, 42:54] * 1000.0
    np.testing.assert_allclose(signals.X[3], np.tile(columns + 1.01, (600, 1)), rtol=1e-6)
    np.testing.assert_allclose(signals.X[6], np.tile(columns + 6.01, (600, 1)), rtol=1e-6)
    # Normal operation: before the onset, of both faults in turn.
    np.testing.assert_allclose(signals.X[:3, 0, 0], 1000 + np.array([0.01, 0.01, 0.02]), rtol=1e-6)


def test_a_fault_without_a_complete_run_is_named(published):
    with pytest.raises(InvalidInputError, match="no completed run of fault 7 in mode 3: leave it out"):
        read_original(published, faults=[1, 7])


def test_runs_that_are_too_short_are_told(published):
    with pytest.raises(InvalidInputError, match="1401 from it on, 1500 are asked for"):
        read_original(published, faults=[1], n_times=1500)


def test_foreign_files_are_told(tmp_path, published):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_original(tmp_path / "none.h5")
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(FileFormatError, match="not a readable HDF5 file"):
        read_original(tmp_path / "text.h5")
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    with pytest.raises(FileFormatError, match=r"expected one group Mode1 ... Mode6"):
        read_original(tmp_path / "empty.h5")
    with h5py.File(tmp_path / "bare.h5", "w") as file:
        file.create_group("Mode2")
    with pytest.raises(FileFormatError, match="no group Mode2/SingleFault/SimulationCompleted"):
        read_original(tmp_path / "bare.h5")
    with h5py.File(published, "a") as file:
        run = file["Mode3/SingleFault/SimulationCompleted/IDV1/Mode3_IDVInfo_1_100/Run1"]
        del run["processdata"]
        run["processdata"] = np.zeros((5, 7))
    with pytest.raises(FileFormatError, match=r"processdata of shape \(n_times, 54\), got \(5, 7\)"):
        read_original(published, faults=[1])


def _arrays():
    X = np.random.default_rng(0).normal(size=(6, 5, 34))
    return X, np.array([0, 0, 1, 1, 2, 2])


def test_the_cut_arrays_are_read_from_npz_and_hdf5(tmp_path):
    X, labels = _arrays()
    fold = {"Fold 1": np.array([0, 2]), "Fold 2": np.array([1, 5])}
    np.savez(tmp_path / "m.npz", Signals=X, Labels=labels, **{f"Folds/{k}": v for k, v in fold.items()})
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["Signals"], file["Labels"] = X, labels
        for name, rows in fold.items():
            file[f"Folds/{name}"] = rows
    for name in ("m.npz", "m.h5"):
        signals, folds = read_arrays(tmp_path / name, mode=2)
        assert np.array_equal(signals.X, X.astype(np.float32))
        assert signals.run.tolist() == [0, 1, 0, 1, 0, 1]
        assert {k: v.tolist() for k, v in folds.items()} == {"Fold 1": [0, 2], "Fold 2": [1, 5]}


def test_pickles_are_never_opened(tmp_path):
    path = tmp_path / "TEPDataset_Mode1.pickle"
    path.write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "harm").encode() + b"'\ntR.")
    with pytest.raises(FileFormatError, match=r"is a pickle.*convert it once"):
        read_arrays(path, mode=1)
    np.savez(tmp_path / "o.npz", Signals=np.array([{}], dtype=object), Labels=np.zeros(1))
    with pytest.raises(FileFormatError, match=r"not a readable .npz file of plain arrays"):
        read_arrays(tmp_path / "o.npz", mode=1)
    assert not (tmp_path / "harm").exists()


def test_wrong_arrays_are_told(tmp_path):
    X, labels = _arrays()
    np.savez(tmp_path / "a.npz", Signals=X)
    with pytest.raises(FileFormatError, match="has no array Labels"):
        read_arrays(tmp_path / "a.npz", mode=1)
    np.savez(tmp_path / "b.npz", Signals=X[:, :, :3], Labels=labels)
    with pytest.raises(FileFormatError, match=r"Signals of shape \(n, n_times, 34\)"):
        read_arrays(tmp_path / "b.npz", mode=1)
    np.savez(tmp_path / "c.npz", Signals=X, Labels=labels, **{"Folds/Fold 1": np.array([99])})
    with pytest.raises(FileFormatError, match=r"Fold 1 .* does not list rows"):
        read_arrays(tmp_path / "c.npz", mode=1)


def test_damaged_and_odd_files_are_told(tmp_path, published):
    X, labels = _arrays()
    np.savez(tmp_path / "a.npz", Signals=X, Labels=labels, Names=np.array(["a"]))
    assert read_arrays(tmp_path / "a.npz", mode=1)[1] == {}  # what is no fold is left alone
    (tmp_path / "cut.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-300])
    np.save(tmp_path / "one.npy", X)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    for name in ("cut.npz", "one.npz"):
        with pytest.raises(FileFormatError, match="not a readable"):
            read_arrays(tmp_path / name, mode=1)
    for faults in ([99], []):
        with pytest.raises(InvalidInputError, match="faults must be numbers from 0 to 28"):
            read_original(published, faults=faults)
