"""A fit over partitions compared with a fit in memory, on Dask's threads."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

from baryflow import distributed
from baryflow.exceptions import FileFormatError, InvalidInputError
from tests.distributed import histories
from tests.distributed.histories import COLUMNS, DOMAIN, P, X, Y, after, arrays, new


def frame(names, last):
    return dd.from_pandas(pd.DataFrame({0: [1.0, 2.0], 1: list(last)}).set_axis(names, axis=1))


def test_small_data_give_the_model_of_a_fit_in_memory():
    few = slice(0, 300)
    default = {"classifier": None, "validate": True}
    expected = new(**default).fit(X[few], Y[few], sample_domain=DOMAIN[few])
    found = distributed.fit(new(**default), arrays(90, X[few], Y[few], DOMAIN[few]))
    np.testing.assert_array_equal(after(found), after(expected))
    assert found.to_bytes() == expected.to_bytes()
    assert found.committee_.experts == expected.committee_.experts
    assert found.committee_.adapts == expected.committee_.adapts
    assert found.committee_.reason == expected.committee_.reason
    for weights in ("raw", "weights", "accuracy"):
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
        np.testing.assert_array_equal(after(model), after(expected))
    assert model.sources_ == ["plant 1", "plant 2", "plant 3"]
    assert model.classes_.tolist() == [f"class {c}" for c in range(4)]
    assert model.feature_names_in_.tolist() == COLUMNS


def test_gaps_are_filled_as_in_memory():
    gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    expected = new().fit(gaps, Y, sample_domain=DOMAIN)
    found = distributed.fit(new(), arrays(X=gaps))
    np.testing.assert_array_equal(after(found), after(expected))


@pytest.mark.parametrize(
    "parameters",
    [
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
    np.testing.assert_array_equal(after(found), after(expected))


def nll(model, X, y, domain):
    """Return the negative log-likelihood of rows in the mixtures of their sources."""
    known = model.knowledge_.model
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
    sampled = [distributed.fit(new(), arrays(chunk), sample_rows=2400) for chunk in (150, 700, 3600)]
    assert len({model.to_bytes() for model in sampled}) == 1
    assert abs(nll(sampled[0], X, Y, DOMAIN) / nll(at_once, X, Y, DOMAIN) - 1.0) < 0.02


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

    def names_only(self):
        return self

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
        for most in (5, n, 3):  # in the middle of the first and the second pass
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
        (lambda: distributed.fit(new(half_life=0.0), arrays()), "half_life"),
        (lambda: distributed.fit(new(), arrays(), sample_rows=0), "sample_rows"),
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


def test_other_units_and_missing_columns_are_treated_as_in_memory():
    domain = np.repeat(np.arange(1, 6), len(X) // 5)
    odd = 20.0 + X[: len(domain)]
    odd[domain == 2, 1] *= 14.503774
    odd[domain == 3, 0] = np.nan
    labels = Y[: len(domain)]
    with pytest.warns(UserWarning, match=r"source '2', column 1: about ×14\.[45]"):
        expected = new().fit(odd, labels, sample_domain=domain)
    with pytest.warns(UserWarning, match=r"source '2', column 1: about ×14\.[45]"):
        found = distributed.fit(new(), arrays(170, odd, labels, domain))
    rows = 20.0 + P.X_target[:100]
    for model in (found, expected):
        model.partial_fit(rows)
    np.testing.assert_allclose(found.predict_proba(rows), expected.predict_proba(rows), atol=1e-8)


def test_a_column_that_keeps_its_value_in_the_sources_is_not_stuck_in_a_target():
    """Rows of a sample hardly follow each other, so the sample itself shows no repeated values."""
    slow = X.copy()
    slow[:, 2] = np.repeat(X[::40, 2], 40)  # as of a laboratory
    T = P.X_target[:600].copy()
    T[200:, 2] = T[200, 2]
    for rows, stuck in ((slow, set()), (X, {2})):
        model = distributed.fit(new(), arrays(900, X=rows), sample_rows=240)
        in_memory = new().fit(rows, Y, sample_domain=DOMAIN)
        for one in (model, in_memory):
            one.absorb(T)
            assert set(one.columns_) == stuck


def test_rare_classes_are_in_the_sample():
    y = np.where(np.arange(len(Y)) % 180 == 0, "rare", "common")
    y[7] = "single"
    model = distributed.fit(new(), arrays(400, y=y), sample_rows=100)
    assert model.classes_.tolist() == ["common", "rare", "single"]
    same = np.where((y == "rare")[:, None], 3.0, X)  # all rows of a class are equal
    model = distributed.fit(new(), arrays(100, X=same, y=y), sample_rows=100)
    assert model.classes_.tolist() == ["common", "rare", "single"]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([0.5, 1.0]), "got 0.5"),
        (np.array([1.0, np.inf]), "got inf"),
        (np.array([[1], [2, 3]], dtype=object), "labels and domains must be"),
        (np.array(["a", 1], dtype=object), "labels must be all"),
        (np.array([None, None], dtype=object), "no rows to learn from: 2 have no label"),
    ],
)
def test_invalid_classes_are_refused(labels, words):
    with pytest.raises(InvalidInputError, match=words):
        distributed.fit(new(), arrays(1, X=np.zeros((2, 4)), y=labels, domain=np.ones(2)))


def test_a_label_per_row_is_refused():
    labels = np.arange(10_001)
    parts = arrays(9000, X=np.zeros((len(labels), 1)), y=labels, domain=np.ones(len(labels)))
    with pytest.raises(InvalidInputError, match="more than 10,000 labels"):
        distributed.fit(new(), parts)


def test_a_column_that_no_source_has_is_reported():
    rows = pd.DataFrame(X, columns=COLUMNS).assign(fault=Y, plant=DOMAIN, s1=np.nan)
    parts = distributed.from_frame(dd.from_pandas(rows, npartitions=3), label="fault", domain="plant")
    with pytest.raises(InvalidInputError, match=r"no source has .* 's1'"):
        distributed.fit(new(), parts)


def test_damaged_result_of_a_partition_is_reported(tmp_path):
    distributed.fit(new(), arrays(900), checkpoint=str(tmp_path))
    for path in tmp_path.rglob("*.bary"):
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileFormatError, match=r"\.bary is damaged"):
        distributed.fit(new(), arrays(900), checkpoint=str(tmp_path))


def test_labels_and_domains_may_both_be_folder_names(tmp_path):
    rows = histories.table()
    for label in ("class 0", "class 1"):
        for plant in ("plant 1", "plant 2"):
            keep = [
                (one["fault"], one["plant"]) == (label, plant)
                for one in rows.select(["fault", "plant"]).to_pylist()
            ]
            some = rows.filter(keep).drop_columns(["fault", "plant"])
            histories.folder(tmp_path / f"fault={label}/plant={plant}", some, n_files=1)
    parts = distributed.read_parquet(str(tmp_path), label="fault", domain="plant")
    counted = []
    model = distributed.fit(new(), parts, on_count=counted.append)
    assert sum(counted[0].rows) == 1200
    assert model.classes_.tolist() == ["class 0", "class 1"]
    assert model.sources_ == ["plant 1", "plant 2"]
