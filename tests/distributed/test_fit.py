"""Fit, absorb and predict over partitions compared with memory, on Dask's threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.naive_bayes import GaussianNB

from baryflow import OnlineDaDiL, distributed
from baryflow.distributed.fitting.passes import CellStatistics, measure_partition, merge_statistics
from baryflow.distributed.prediction import pack, unpack
from baryflow.distributed.tasks import TaskRunner
from baryflow.exceptions import FileFormatError, InvalidInputError
from tests.distributed import histories
from tests.distributed.histories import COLUMNS, DOMAIN, P, X, Y


def new(**parameters):
    quick = {"keep_sources": False, "classifier": "linear", "validate": False}
    return OnlineDaDiL(random_state=0, **quick | parameters)


def arrays(chunk=500, X=X, y=Y, domain=DOMAIN):
    return distributed.from_arrays(
        da.from_array(X, chunks=(chunk, -1)),
        da.from_array(y, chunks=chunk),
        da.from_array(domain, chunks=chunk),
    )


def frame(names, last):
    return dd.from_pandas(pd.DataFrame({0: [1.0, 2.0], 1: list(last)}).set_axis(names, axis=1))


def after(model):
    T = P.X_target[:400]
    if hasattr(model, "feature_names_in_"):
        T = pd.DataFrame(T, columns=COLUMNS)
    return model.spawn().partial_fit(T).predict_proba(T)


@pytest.fixture(scope="module")
def in_memory():
    """A model with a stacked space, in which a target has a second summary."""
    few = slice(0, 1200)
    return new(classifier=["linear", "trees"]).fit(X[few], Y[few], sample_domain=DOMAIN[few])


def test_small_data_give_the_model_of_a_fit_in_memory():
    few = slice(0, 600)
    default = {"classifier": None, "validate": True}
    expected = new(**default).fit(X[few], Y[few], sample_domain=DOMAIN[few])
    found = distributed.fit(new(**default), arrays(170, X[few], Y[few], DOMAIN[few]))
    np.testing.assert_allclose(after(found), after(expected), atol=1e-9)
    assert found.committee_.experts == expected.committee_.experts
    assert found.committee_.adapts == expected.committee_.adapts
    assert found.committee_.reason == expected.committee_.reason
    for weights in ("raw", "beginning", "end", "shifted", "belief", "accuracy"):
        ours, theirs = (getattr(model.committee_, weights) for model in (found, expected))
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert [name for name, *_ in found.committee_.scores] == [
        name for name, *_ in expected.committee_.scores
    ]


def test_frames_and_files_give_the_model_of_a_fit_in_memory(tmp_path):
    frame = pd.DataFrame(X, columns=COLUMNS).assign(fault=Y, plant=DOMAIN)
    from_files = distributed.read_parquet(
        str(histories.folder(tmp_path)), label="fault", domain="plant", partition_bytes=1
    )
    assert len(from_files.partitions) == 24
    expected = new().fit(X, Y, sample_domain=DOMAIN)
    for parts in (
        distributed.from_frame(dd.from_pandas(frame, npartitions=5), label="fault", domain="plant"),
        from_files,
    ):
        model = distributed.fit(new(), parts)
        np.testing.assert_allclose(after(model), after(expected), atol=1e-9)
    assert model.sources_ == ["plant 1", "plant 2", "plant 3"]
    assert model.classes_.tolist() == [f"class {c}" for c in range(4)]
    assert model.feature_names_in_.tolist() == COLUMNS


def test_gaps_are_filled_as_in_memory():
    gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    expected = new().fit(gaps, Y, sample_domain=DOMAIN)
    found = distributed.fit(new(), arrays(X=gaps))
    np.testing.assert_allclose(after(found), after(expected), atol=1e-9)


@pytest.mark.parametrize(
    "parameters",
    [
        {"method": "paper", "classifier": None},
        {"classifier": ["linear", GaussianNB()]},
        {"classifier": "trees"},
        {"validate": True},
        {"class_prior": {0: 0.7}, "n_atoms": 2, "label_shift": False},
    ],
)
def test_parameters_mean_what_they_mean_in_memory(parameters):
    few = slice(0, 600)
    expected = new(**parameters).fit(X[few], Y[few], sample_domain=DOMAIN[few])
    found = distributed.fit(new(**parameters), arrays(X=X[few], y=Y[few], domain=DOMAIN[few], chunk=170))
    np.testing.assert_allclose(after(found), after(expected), atol=1e-9)


def nll(model, X, y, domain):
    """Return the negative log-likelihood of rows in the mixtures of their sources."""
    known = model.tracker.knowledge.model
    found = []
    for number, name in enumerate(model.sources_):
        rows = X[domain == name]
        V = known.project(rows, rows.mean(axis=0), rows.std(axis=0))
        described, p = known.domains[number], known.n_dimensions
        means, stds = described.points[:, :p], described.points[:, p : 2 * p]
        logs = -0.5 * np.square((V[:, None] - means) / stds).sum(axis=2) - np.log(stds).sum(axis=1)
        found.append(np.logaddexp.reduce(logs + np.log(described.weights), axis=1).mean())
    return -np.mean(found)


def test_larger_data_are_sampled_independently_of_partitions():
    at_once = new().fit(X, Y, sample_domain=DOMAIN)
    sampled = [distributed.fit(new(), arrays(chunk), sample_rows=600) for chunk in (150, 700, 3600)]
    fits = [nll(model, X, Y, DOMAIN) for model in sampled]
    # The sample does not depend on the partitions; sums differ by rounding.
    np.testing.assert_allclose(fits, fits[0], rtol=1e-6)
    for model in sampled:
        np.testing.assert_allclose(after(model), after(sampled[0]), atol=1e-4)
    # One step of EM with all rows, from a start with 200 of 300 of each class.
    assert abs(fits[0] / nll(at_once, X, Y, DOMAIN) - 1.0) < 0.02


def test_a_sample_teaches_the_classifiers_nearly_as_much_as_all_rows():
    def score(model):
        return (after(model).argmax(axis=1) == P.y_target[:400]).mean()

    trees = {"classifier": ["linear", "trees"]}
    sampled = distributed.fit(new(**trees), arrays(1200), sample_rows=600)
    assert score(sampled) > score(new(**trees).fit(X, Y, sample_domain=DOMAIN)) - 0.03


def test_the_same_call_gives_the_same_bits():
    first, second, other = (
        distributed.fit(new().set_params(random_state=seed), arrays(), sample_rows=600).to_bytes()
        for seed in (0, 0, 1)
    )
    assert first == second
    assert first != other


class BrokenError(Exception):
    """A simulated failure."""


class Fragile:
    """A reader that fails after some partitions."""

    def __init__(self, reader, most):
        self.reader, self.left = reader, most

    def blocks(self, partition):
        self.left -= 1
        if self.left < 0:
            raise BrokenError
        return self.reader.blocks(partition)


def test_interrupted_fit_resumes_from_its_checkpoint(tmp_path, monkeypatch):
    from dataclasses import replace

    import dask

    parts = arrays(300)
    n = len(parts.partitions)
    whole = distributed.fit(new(), parts, sample_rows=600)
    kept = str(tmp_path / "kept")
    with dask.config.set(scheduler="synchronous"):
        for most in (5, n, n - 2, 3):  # in the middle of the first, second, and third pass
            fragile = replace(parts, reader=Fragile(parts.reader, most))
            with pytest.raises(BrokenError):
                distributed.fit(new(), fragile, sample_rows=600, checkpoint=kept)
        fragile = replace(parts, reader=Fragile(parts.reader, n))
        model = distributed.fit(new(), fragile, sample_rows=600, checkpoint=kept)
        assert fragile.reader.left > 0  # not all of it was read again
        nothing = replace(parts, reader=Fragile(parts.reader, 0))
        again = distributed.fit(new(), nothing, sample_rows=600, checkpoint=kept)
    assert model.to_bytes() == whole.to_bytes() == again.to_bytes()
    other = distributed.fit(new(n_atoms=1), parts, sample_rows=600, checkpoint=kept)
    assert other.to_bytes() != model.to_bytes()  # other parameters are another fit


def _measure(reader, n_features, partition):
    return measure_partition(reader, partition, n_features)


def test_damaged_partition_is_computed_again_and_damaged_result_is_reported(tmp_path):
    runner = TaskRunner(store=distributed.store.Store(str(tmp_path)))
    parts = arrays(900)

    task = partial(_measure, parts.reader, parts.n_features)

    def count():
        tree = runner.reduce("statistics", CellStatistics, parts.partitions, task, merge_statistics)
        return runner.compute(tree, "counting").counts

    first = count()
    content = (tmp_path / "statistics.bary").read_bytes()
    (tmp_path / "statistics.bary").unlink()
    (tmp_path / "statistics").mkdir()
    (tmp_path / "statistics/000001.bary").write_bytes(content[:100])
    np.testing.assert_array_equal(count(), first)
    (tmp_path / "statistics.bary").write_bytes(content[:-9])
    with pytest.raises(FileFormatError, match=r"statistics\.bary is damaged"):
        count()


def test_unused_rows_cause_a_warning(tmp_path):
    rows = histories.table()
    labels = [None if n < 7 else label for n, label in enumerate(rows["fault"].to_pylist())]
    rows = rows.set_column(rows.column_names.index("fault"), "fault", [labels])
    parts = distributed.read_parquet(
        str(histories.folder(tmp_path, rows)), label="fault", domain="plant"
    )
    with pytest.warns(UserWarning, match="7 rows have no label and are not used"):
        distributed.fit(new(), parts)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: distributed.fit("model", arrays()), "expected an OnlineDaDiL"),
        (lambda: distributed.fit(new(), "history"), "read_parquet"),
        (lambda: distributed.fit(new(), distributed.from_arrays(da.zeros((9, 2)))), "need labels"),
        (lambda: distributed.fit(new(n_atoms=9), arrays()), "n_atoms is 9"),
        (lambda: distributed.fit(new(method="guess"), arrays()), "method must be one of"),
        (lambda: distributed.fit(new(), arrays(), sample_rows=0), "sample_rows"),
        (
            lambda: distributed.fit(OnlineDaDiL(), arrays(), checkpoint="/nowhere"),
            "random_state",
        ),
        (lambda: distributed.from_arrays(X), "X must be"),
        (lambda: distributed.from_arrays(da.zeros((9, 2)), da.zeros(8)), "X has 9 rows, y has 8"),
        (lambda: distributed.from_arrays(da.zeros((9, 2)), np.zeros(9)), "y must be"),
        (lambda: distributed.from_frame(pd.DataFrame()), "expected a Dask data frame"),
        (
            lambda: distributed.from_frame(frame([0, 1], "ab"), columns=[1]),
            "column 1 holds .*: features",
        ),
        (lambda: distributed.from_frame(frame(["a", "a"], [1, 2])), "several columns called 'a'"),
        (lambda: distributed.from_frame(frame(["a", "b"], [1, 2]), label="a", domain="a"), "two roles"),
    ],
)
def test_errors_say_what_was_expected(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()


def test_failed_fit_does_not_change_the_model(in_memory):
    model = new().fit(X[:600], Y[:600], sample_domain=DOMAIN[:600])
    before = model.to_bytes()
    with pytest.raises(InvalidInputError):
        distributed.fit(model.set_params(n_atoms=9), arrays())
    assert model.set_params(n_atoms=None).to_bytes() == before


# -- a target --------------------------------------------------------------------------------------


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
    forgetful = new(half_life=100.0).fit(X[:600], Y[:600], sample_domain=DOMAIN[:600])
    with pytest.raises(InvalidInputError, match="half_life"):
        distributed.absorb(forgetful, parts)


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


# -- predictions -----------------------------------------------------------------------------------


def test_predictions_are_made_block_by_block(in_memory):
    model = in_memory.spawn().partial_fit(P.X_target)
    T = P.X_target[:500]
    blocks = da.from_array(T, chunks=(200, 2))
    np.testing.assert_array_equal(distributed.predict(model, blocks).compute(), model.predict(T))
    found = distributed.predict_proba(model, blocks)
    assert found.chunks == ((200, 200, 100), (4,))
    np.testing.assert_array_equal(found.compute(), model.predict_proba(T))
    np.testing.assert_array_equal(distributed.novelty(model, blocks).compute(), model.novelty(T))


def test_array_blocks_do_not_cause_warnings_about_names(recwarn):
    few = pd.DataFrame(X[:600], columns=COLUMNS)
    model = new().fit(few, Y[:600], sample_domain=DOMAIN[:600])
    blocks = da.from_array(P.X_target[:90], chunks=(30, -1))
    expected = model.predict(pd.DataFrame(P.X_target[:90], columns=COLUMNS))
    np.testing.assert_array_equal(distributed.predict(model, blocks).compute(), expected)
    assert not recwarn


@pytest.mark.parametrize("ask", [distributed.predict, distributed.predict_proba, distributed.novelty])
def test_unfitted_model_is_refused(ask):
    with pytest.raises(NotFittedError):
        ask(new(), da.zeros((3, 5)))


def test_predictions_of_a_frame_keep_its_index(tmp_path):
    parts = distributed.read_parquet(str(histories.folder(tmp_path)), label="fault", domain="plant")
    model = distributed.fit(new(), parts)
    frame = pd.DataFrame(P.X_target[:90], columns=COLUMNS, index=np.arange(90) * 10)
    turned = dd.from_pandas(frame[COLUMNS[::-1]].assign(note="-"), npartitions=3)
    labels = distributed.predict(model, turned).compute()
    assert labels.name == "label"
    assert labels.to_dict() == dict(zip(frame.index, model.predict(frame).tolist(), strict=True))
    shares = distributed.predict_proba(model, turned).compute()
    assert shares.columns.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(shares, model.predict_proba(frame))
    np.testing.assert_array_equal(distributed.novelty(model, turned).compute(), model.novelty(frame))
    with pytest.raises(InvalidInputError, match="'s0'"):
        distributed.predict(model, turned.drop(columns="s0"))
    with pytest.raises(InvalidInputError, match="Dask array"):
        distributed.predict(model, P.X_target)


@pytest.mark.parametrize(
    ("labels", "unknown"),
    [(Y, "new"), (Y, None), (Y > 1, None), (np.array(list("abcd"))[Y], "new kind")],
)
def test_predictions_have_the_announced_dtype(labels, unknown):
    model = new(unknown=0.9, unknown_label=unknown)
    model.fit(X[:600], labels[:600], sample_domain=DOMAIN[:600])
    rows = np.concatenate([X[:100], X[:100] + 1e3])
    found = distributed.predict(model, da.from_array(rows, chunks=(100, -1)))
    assert found.dtype == found.compute().dtype == model.predict(rows).dtype
    assert len(set(found.compute().tolist()) - set(model.classes_.tolist())) == 1


def test_threads_share_one_model(in_memory):
    packed, n = pack(in_memory.spawn().partial_fit(P.X_target[:32])), 8
    together = threading.Barrier(n)

    def ask(_):
        together.wait()
        return unpack(packed)

    with ThreadPoolExecutor(n) as threads:
        assert len({id(model) for model in threads.map(ask, range(n))}) == 1
