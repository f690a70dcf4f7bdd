"""A target in partitions compared with a stream, on Dask's threads."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from baryflow import distributed
from baryflow.exceptions import InvalidInputError
from tests.distributed.histories import COLUMNS, DOMAIN, P, X, Y, after, arrays, new


@pytest.mark.parametrize("chunk", [100, 1200])
def test_absorb_is_as_good_as_a_stream(in_memory, chunk):
    T, y = P.X_target, P.y_target
    parts = distributed.from_arrays(da.from_array(T, chunks=(chunk, -1)))
    found = distributed.absorb(in_memory, parts)
    stream = in_memory.spawn()
    for start in range(0, len(T), 100):
        stream.partial_fit(T[start : start + 100])
    assert found.n_samples_seen_ == stream.n_samples_seen_ == len(T)
    assert found.score(T, y) > stream.score(T, y) - 0.02
    assert found.reliability_ == pytest.approx(stream.reliability_, abs=0.1)
    ours, theirs = (m.compare_columns() for m in (found, stream))
    np.testing.assert_allclose(ours.target_means, theirs.target_means, rtol=1e-9)
    assert in_memory.n_samples_seen_ == 0
    again = distributed.absorb(in_memory, parts)
    assert again.to_bytes() == found.to_bytes()


@pytest.mark.parametrize("half_life", [None, 300.0])
def test_absorb_gives_the_model_of_partial_fit(half_life):
    model = new(half_life=half_life).fit(X[:600], Y[:600], sample_domain=DOMAIN[:600])
    T = P.X_target[:900]
    expected = model.spawn()
    for start in range(0, len(T), 250):
        expected.partial_fit(T[start : start + 250])
    found = distributed.absorb(model, distributed.from_arrays(da.from_array(T, chunks=(250, -1))))
    assert found.to_bytes() == expected.to_bytes()


def test_absorb_resumes_from_its_checkpoint(in_memory, tmp_path):
    parts = distributed.from_arrays(da.from_array(P.X_target, chunks=(200, -1)))
    whole = distributed.absorb(in_memory, parts)

    def stop(done, *_):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distributed.absorb(in_memory, parts, checkpoint=str(tmp_path), progress=stop)
    done = []
    found = distributed.absorb(
        in_memory, parts, checkpoint=str(tmp_path), progress=lambda n, *_: done.append(n)
    )
    assert done[0] == 3
    assert found.to_bytes() == whole.to_bytes()


def test_absorb_continues_an_adapted_model(in_memory):
    T = P.X_target
    begun = in_memory.spawn().partial_fit(T[:300])
    rest = distributed.from_arrays(da.from_array(T[300:], chunks=(250, -1)))
    assert distributed.absorb(begun, rest).n_samples_seen_ == len(T)


def test_absorb_reports_bad_sensors(in_memory):
    T = P.X_target.copy()
    T[:, 1] = np.nan
    T[5, 0] = 1e9
    with pytest.warns(UserWarning, match="column 0: 1 of .* far outside.*column 1: no value at all"):
        found = distributed.absorb(
            in_memory, distributed.from_arrays(da.from_array(T, chunks=(300, -1)))
        )
    assert list(found.columns_) == [0, 1]


def test_absorb_reports_a_sensor_stuck_across_partitions(in_memory):
    fitted = distributed.fit(new(), arrays())
    T = P.X_target[:500].copy()
    T[380:, 2] = T[380, 2]
    for model in (in_memory, fitted):
        begun = model.spawn().partial_fit(T[:200])
        for chunk in (90, 300):  # the run is longer than a partition, or within one
            rest = distributed.from_arrays(da.from_array(T[200:], chunks=(chunk, -1)))
            with pytest.warns(UserWarning, match="column 2: has stopped varying"):
                found = distributed.absorb(begun, rest)
            assert list(found.columns_) == [2]
        more = distributed.from_arrays(da.from_array(P.X_target[500:600], chunks=(50, -1)))
        assert distributed.absorb(found, more).columns_ == {}


def test_absorb_refuses_invalid_input(in_memory):
    parts = distributed.from_arrays(da.zeros((9, 2)))
    with pytest.raises(InvalidInputError, match="5 unnamed columns, got 2"):
        distributed.absorb(in_memory, parts)


def test_numbers_out_of_range_exclude_their_rows_only():
    rows, odd = X[:600].copy(), 5
    rows[odd, 1] = 1e155
    names = Y[:600], DOMAIN[:600]
    with pytest.warns(UserWarning, match=r"1 rows contain infinity or numbers beyond ±1e\+150"):
        found = distributed.fit(new(), arrays(200, rows, *names))
    others, y, domain = (np.delete(one, odd, axis=0) for one in (rows, *names))
    expected = new().fit(others, y, sample_domain=domain)
    np.testing.assert_allclose(after(found), after(expected), atol=1e-9)


def test_absorb_ignores_labels_and_reports_unused_rows(in_memory):
    T, known = P.X_target.copy(), np.full(len(P.X_target), np.nan)
    T[:3, 0] = np.inf, 1e155, -1e308
    parts = distributed.from_arrays(da.from_array(T, chunks=(300, -1)), da.from_array(known, chunks=300))
    with pytest.warns(UserWarning, match=r"3 rows contain infinity or numbers beyond ±1e\+150"):
        found = distributed.absorb(in_memory, parts)
    assert found.n_samples_seen_ == len(T) - 3


def test_absorb_ignores_columns_that_the_model_does_not_need():
    few = pd.DataFrame(X[:600], columns=COLUMNS)
    model = new().fit(few, Y[:600], sample_domain=DOMAIN[:600])
    frame = pd.DataFrame(P.X_target, columns=COLUMNS).assign(spare=np.inf)[["spare", *COLUMNS[::-1]]]
    found = distributed.absorb(model, distributed.from_frame(dd.from_pandas(frame, npartitions=3)))
    assert found.n_samples_seen_ == len(frame)
    np.testing.assert_allclose(found.compare_columns().target_means, P.X_target.mean(axis=0))


def test_checkpoints_of_different_models_are_separate(in_memory, tmp_path):
    parts = distributed.from_arrays(da.from_array(P.X_target, chunks=(400, -1)))
    distributed.absorb(in_memory, parts, checkpoint=str(tmp_path))
    other = new(n_atoms=1).fit(X[:600], Y[:600], sample_domain=DOMAIN[:600])
    found = distributed.absorb(other, parts, checkpoint=str(tmp_path))
    assert found.to_bytes() == distributed.absorb(other, parts).to_bytes()


def test_absorb_converts_columns_in_other_units(in_memory):
    T = P.X_target.copy()
    usual = distributed.absorb(in_memory, distributed.from_arrays(da.from_array(T, chunks=(300, -1))))
    right = usual.score(T, P.y_target)
    T[:, 1] = 1.8 * T[:, 1] + 320.0
    with pytest.warns(UserWarning, match="column 1: about ×"):
        found = distributed.absorb(
            in_memory, distributed.from_arrays(da.from_array(T, chunks=(300, -1)))
        )
    assert found.state_.tally.glitches[1] < 0.1 * len(T)
    assert found.score(T, P.y_target) > right - 0.02 > in_memory.score(P.X_target, P.y_target) + 0.05
