"""One sentence at the edge that says what was expected, what came, and what to do."""

import datetime as dt
import os
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import baryflow
from baryflow import DaDiL, MixtureClassifier, OnlineDaDiL, OnlineGaussianMixture, fit_mixture
from baryflow.datasets import make_domains
from baryflow.exceptions import FileFormatError, InvalidInputError

P = make_domains(n_sources=3, n_classes=3, n_per_class=20, random_state=0)
X, Y, DOMAIN = P.X, P.y, P.domain
FRAME = pd.DataFrame(X, columns=[f"s{number}" for number in range(X.shape[1])])
QUICK = {"classifier": "linear", "validate": False, "random_state": 0}
ESTIMATORS = [OnlineDaDiL(**QUICK), DaDiL(**QUICK), MixtureClassifier(), OnlineGaussianMixture(10)]
MISSING = [np.nan, None, pd.NA, pd.NaT, np.float32("nan")]


def online(rows=X):
    return OnlineDaDiL(keep_sources=True, **QUICK).fit(rows, Y, DOMAIN)


def says(*parts):
    """Return a pattern for a message that has these parts in this order."""
    return ".*".join(map(re.escape, parts))


def names(estimator):
    return type(estimator).__name__


# -- files ----------------------------------------------------------------------------------------


def test_load_of_a_folder(tmp_path):
    with pytest.raises(FileFormatError, match=says(str(tmp_path), "is a folder; give the name of a")):
        baryflow.load(tmp_path)


def test_load_of_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    def refuse(path, flags):
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "m.bary").touch()
    monkeypatch.setattr(os, "open", refuse)  # tests may be run by root
    with pytest.raises(FileFormatError, match=says("cannot read", "m.bary: Permission denied")):
        baryflow.load(tmp_path / "m.bary")


def test_load_of_something_else(tmp_path):
    (tmp_path / "m.bary").write_text("hello")
    with pytest.raises(
        FileFormatError, match=says("m.bary is not a readable .bary file", "another copy")
    ):
        baryflow.load(tmp_path / "m.bary")


@pytest.mark.parametrize("wrong", [None, 3])
def test_load_of_what_is_no_path(wrong):
    with pytest.raises(
        InvalidInputError, match=f"expected the path of a file, got {type(wrong).__name__}"
    ):
        baryflow.load(wrong)


def test_load_of_bytes_says_who_takes_them():
    with pytest.raises(InvalidInputError, match=says("got bytes", "from_bytes()")):
        baryflow.load(fit_mixture(X).to_bytes())


def test_save_onto_a_folder(tmp_path):
    with pytest.raises(IsADirectoryError) as told:
        fit_mixture(X).save(tmp_path)
    assert str(told.value) == f"cannot write {tmp_path}: it is a folder; give the name of a file in it"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_save_onto_a_full_disk_shows_no_temporary_name(tmp_path, monkeypatch, step):
    def fail(*_):
        raise OSError(28, "No space left on device", f"{tmp_path}/.m.bary.abc")

    monkeypatch.setattr(os if step == "fsync" else type(tmp_path), step, fail)
    with pytest.raises(OSError, match="No space") as told:
        fit_mixture(X).save(tmp_path / "m.bary")
    assert str(told.value) == f"[Errno 28] cannot write {tmp_path / 'm.bary'}: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_save_into_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=says("there is no folder", "none")):
        fit_mixture(X).save(tmp_path / "none" / "m.bary")


# -- labels and domains ---------------------------------------------------------------------------


def with_gap(values, gap, kind):
    """Return names of which the one at position 5 is missing."""
    named = [f"n{value}" for value in values]
    named[5] = gap
    return {"list": list, "series": pd.Series, "array": lambda v: np.array(v, dtype=object)}[kind](named)


@pytest.mark.parametrize("kind", ["list", "series", "array"])
@pytest.mark.parametrize("gap", MISSING, ids=repr)
def test_a_missing_label(gap, kind):
    message = says("y contains NaN or None: 1 row(s) have no label, the first at position 5; drop")
    with pytest.raises(InvalidInputError, match=message):
        OnlineDaDiL(**QUICK).fit(X, with_gap(Y, gap, kind), DOMAIN)
    with pytest.raises(InvalidInputError, match=message):
        MixtureClassifier().fit(X, with_gap(Y, gap, kind))
    domain = np.where(np.arange(len(Y)) < 3, -1, DOMAIN)  # positions are the user's, not the sources'
    with pytest.raises(InvalidInputError, match=message):
        DaDiL(**QUICK).fit(X, with_gap(Y, gap, kind), domain)


@pytest.mark.parametrize("kind", ["list", "series", "array"])
@pytest.mark.parametrize("gap", MISSING, ids=repr)
def test_a_missing_domain(gap, kind):
    message = says("sample_domain has no value in 1 row(s), the first at position 5: drop these rows")
    for model in (OnlineDaDiL(**QUICK), DaDiL(**QUICK)):
        with pytest.raises(InvalidInputError, match=message):
            model.fit(X, Y, with_gap(DOMAIN, gap, kind))


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "string", "category"])
def test_missing_labels_and_domains_of_all_types_of_pandas(dtype):
    text = dtype in ("string", "category")
    y = pd.Series([str(v) if text else v for v in Y]).astype(dtype)
    domain = pd.Series([str(v) if text else v for v in DOMAIN]).astype(dtype)
    OnlineDaDiL(**QUICK).fit(X, y, domain)  # without a gap it is fine
    y[7], domain[7] = None, None
    with pytest.raises(InvalidInputError, match="no label, the first at position 7"):
        OnlineDaDiL(**QUICK).fit(X, y, DOMAIN)
    with pytest.raises(InvalidInputError, match=says("no value in 1 row(s), the first at position 7")):
        OnlineDaDiL(**QUICK).fit(X, Y, domain)


def test_rows_of_a_target_need_no_labels():
    domain = np.where(DOMAIN == 1, -1, DOMAIN)
    y = [None if code < 0 else f"class {label}" for code, label in zip(domain, Y, strict=True)]
    assert list(DaDiL(**QUICK).fit(X, y, domain).classes_) == ["class 0", "class 1", "class 2"]


@pytest.mark.parametrize("model", [OnlineDaDiL(**QUICK), DaDiL(**QUICK)], ids=names)
def test_domains_numbered_from_0(model):
    with pytest.raises(InvalidInputError, match=says("must not hold 0", "pd.factorize(names)[0] + 1")):
        model.fit(X, Y, pd.factorize(DOMAIN)[0])


def test_a_forgotten_sample_domain():
    with pytest.warns(UserWarning, match="without sample_domain all rows are one source") as caught:
        model = OnlineDaDiL(classifier="linear", random_state=0).fit(X, Y)
    assert [record.filename for record in caught] == [__file__]
    assert "one source" in model.committee_.reason
    assert model.report().startswith(
        "One source (if its rows come from several, name the domain of each row"
    )
    assert "Why: there is only one source" in model.report()


def test_offline_without_target_rows_nothing_is_adapted():
    with pytest.warns(UserWarning, match="nothing is adapted.*negative number for target") as caught:
        model = DaDiL(**QUICK).fit(X, Y)
    assert [record.filename for record in caught] == [__file__]
    assert model.n_samples_seen_ == 0  # sources are not taken for a target
    assert model.resemblance_ == {}
    assert not hasattr(model, "target_mixture_")
    standardised = (X - X.mean(axis=0)) / X.std(axis=0)
    plain = LogisticRegression(C=0.1).fit(standardised, Y).predict_proba(standardised)
    np.testing.assert_allclose(model.predict_proba(X), plain, atol=3e-3)
    assert "target" in model.report()
    assert np.array_equal(DaDiL.from_bytes(model.to_bytes()).predict_proba(X), model.predict_proba(X))
    with pytest.raises(InvalidInputError, match="target='new' names a domain"):
        model.fit(X, Y, target="new")
    with pytest.raises(InvalidInputError, match="negative numbers, or the name given as target"):
        model.fit(X, Y, DOMAIN)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (("name", "X", "y"), "X must be rows, got 'new'"),
        (("name", "y", "X"), "X must be rows, got 'new'"),
        (("X", "name", "y"), "y must be labels, one for each row, got 'new'"),
        (("y", "name", "X"), "y must be labels, one for each row, got 'new'"),
        (("y", "X", "name"), "X must be rows and columns, got one column of length 20"),
    ],
)
@pytest.mark.parametrize("is_frame", [False, True])
def test_add_source_with_its_arguments_swapped(order, message, is_frame):
    model = OnlineDaDiL(keep_sources=True, **QUICK).fit(X, Y, [f"m{number}" for number in DOMAIN])
    parts = {"X": X[:20], "y": Y[:20], "name": "new"}
    if is_frame:
        parts |= {"X": pd.DataFrame(X[:20]), "y": pd.Series(Y[:20])}
    with pytest.raises(InvalidInputError, match=says(message, ": the order is add_source(X, y, name)")):
        model.add_source(*(parts[part] for part in order))
    assert model.sources_ == ["m1", "m2", "m3"]
    model.add_source(parts["X"], parts["y"], parts["name"])
    assert model.sources_ == ["m1", "m2", "m3", "new"]


@pytest.mark.parametrize("name", [None, np.nan, True, 1.5])
def test_add_source_without_a_name(name):
    with pytest.raises(InvalidInputError, match=says("name must be a string or a positive number, got")):
        online().add_source(X[:20], Y[:20], name)


# -- columns --------------------------------------------------------------------------------------

DATES = {
    "datetime64": pd.date_range("2024", periods=len(X)),
    "with a zone": pd.date_range("2024", periods=len(X), tz="UTC"),
    "timedelta": pd.to_timedelta(np.arange(len(X)), unit="s"),
    "period": pd.period_range("2024", periods=len(X), freq="D"),
    "timestamps": pd.Series([pd.Timestamp("2024")] * len(X), dtype=object),
    "dates": [dt.date(2024, 1, 1)] * len(X),
    "times": [dt.time(12)] * len(X),
}


@pytest.mark.parametrize("dates", DATES)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_a_column_of_dates(estimator, dates):
    message = says("column 'when' holds dates (", "leave them out, or turn them into numbers")
    with pytest.raises(InvalidInputError, match=message):
        estimator.fit(FRAME.assign(when=DATES[dates]), Y)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_dates_without_a_frame(estimator):
    with pytest.raises(InvalidInputError, match=says("X holds dates (datetime64[D]): leave them out")):
        estimator.fit(np.full((len(Y), 2), np.datetime64("2024-01-01")), Y)
    mixed = X.astype(object)
    mixed[:, 1] = dt.datetime(2024, 1, 1)
    with pytest.raises(InvalidInputError, match=says("column 1 holds dates (datetime): leave")):
        estimator.fit(mixed, Y)


def test_dates_and_words_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({name: FRAME[name].to_list() for name in FRAME})
    when = frame.with_columns(when=polars.lit(dt.date(2024, 1, 1)))
    with pytest.raises(InvalidInputError, match=says("column 'when' holds dates (Date)")):
        OnlineDaDiL(**QUICK).fit(when, Y)
    with pytest.raises(InvalidInputError, match=says("column 'when' holds text, such as 'x'")):
        OnlineDaDiL(**QUICK).fit(frame.with_columns(when=polars.lit("x")), Y)
    turned = frame[frame.columns[::-1]]
    model = online(frame)
    assert np.array_equal(model.predict_proba(turned), model.predict_proba(frame))


@pytest.mark.filterwarnings("ignore:without sample_domain")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_words_among_numbers_are_found(estimator):
    values = [*FRAME["s3"][:-1], "Bad Input"]
    message = says("column 's3' holds text, such as 'Bad Input' at position 179", "missing (NaN)")
    with pytest.raises(InvalidInputError, match=message):
        estimator.fit(FRAME.assign(s3=values), Y)
    with pytest.raises(InvalidInputError, match="column 0 holds text, such as '2024-01-01'"):
        estimator.fit([["2024-01-01", 1.0]] * len(Y), Y)
    estimator.fit(FRAME, Y)
    with pytest.raises(InvalidInputError, match=message):
        estimator.predict(FRAME.assign(s3=values))


def test_pandas_na_among_objects():
    values = pd.Series([pd.NA, *FRAME["s3"][1:]], dtype=object)
    with pytest.raises(
        InvalidInputError, match=says("column 's3' holds pd.NA at position 0", "Float64")
    ):
        online(FRAME.assign(s3=values))
    online(FRAME.assign(s3=values.astype("Float64")))


@pytest.mark.filterwarnings("ignore:without sample_domain")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_columns_in_another_order_are_matched_by_name(estimator):
    estimator.fit(FRAME, Y)
    turned = FRAME[FRAME.columns[::-1]]
    assert np.array_equal(estimator.predict_proba(turned), estimator.predict_proba(FRAME))


def test_columns_that_are_missing_or_too_many_are_named():
    model = online(FRAME)
    with pytest.raises(InvalidInputError, match=says("X lacks the column(s) 's2', 's5' that the model")):
        model.partial_fit(FRAME.drop(columns=["s2", "s5"]))
    with pytest.raises(InvalidInputError, match=says("was not fitted on: 'more'; leave them out")):
        model.partial_fit(FRAME.assign(more=1.0))
    with pytest.raises(InvalidInputError, match=says("X has the column 's0' 2 times: keep one")):
        model.partial_fit(pd.concat([FRAME, FRAME[["s0"]]], axis=1))


# -- parameters and weights -----------------------------------------------------------------------


def test_more_atoms_than_sources():
    message = says("n_atoms is 9, but there are only 3 source(s)", "lower it, or leave it out")
    with pytest.raises(InvalidInputError, match=message):
        OnlineDaDiL(9, **QUICK).fit(X, Y, DOMAIN)
    with pytest.raises(InvalidInputError, match=message):
        DaDiL(9, **QUICK).fit(
            np.vstack([X, X[:50]]), np.append(Y, Y[:50]), np.append(DOMAIN, np.full(50, -1))
        )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"target_components": 0}, "target_components must be an integer >= 1, got 0"),
        ({"unknown": 1.5}, "unknown must be a number in [0, 1], got 1.5"),
        ({"half_life": -1}, "half_life must be a number in (0, inf], got -1"),
    ],
)
def test_parameters_set_after_fit_are_checked_where_they_are_used(tmp_path, wrong, message):
    model = online().partial_fit(P.X_target[:32])
    model.set_params(**wrong)
    uses = [
        lambda: model.partial_fit(P.X_target[32:]),
        lambda: model.add_source(X[:20], Y[:20], 9),
        lambda: model.save(tmp_path / "m.bary"),
        model.to_bytes,
    ]
    if "unknown" in wrong:
        uses.append(lambda: model.predict(P.X_target))
    for use in uses:
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            use()
    assert model.n_samples_seen_ == 32
    assert model.sources_ == [1, 2, 3]


@pytest.mark.parametrize(
    "use",
    [
        lambda weights: online().partial_fit(X, sample_weight=weights),
        lambda weights: OnlineGaussianMixture(10).fit(X, sample_weight=weights),
        lambda weights: MixtureClassifier().fit(X, Y, sample_weight=weights),
        lambda weights: fit_mixture(X, sample_weight=weights),
    ],
)
def test_weights_that_are_no_counts_of_rows(use):
    weights = np.ones(len(X))
    weights[4] = 1e23
    message = says(
        "sample_weight counts rows and must not be above 1e+12, got 1e+23 at position 4: divide"
    )
    with pytest.raises(InvalidInputError, match=message):
        use(weights)
    use(np.minimum(weights, 5.0))


# -- a refit that fails ---------------------------------------------------------------------------

OTHER = FRAME[["s1", "s0"]]


@pytest.mark.filterwarnings("ignore:without sample_domain")
@pytest.mark.parametrize(
    ("estimator", "parameters", "fit"),
    [
        (ESTIMATORS[0], {}, {"y": [None, *Y[1:]]}),
        (ESTIMATORS[0], {}, {"y": Y, "sample_domain": np.zeros(len(Y), dtype=int)}),
        (ESTIMATORS[0], {"n_atoms": 9}, {"y": Y, "sample_domain": DOMAIN}),
        (ESTIMATORS[0], {"half_life": 0.0}, {"y": Y, "sample_domain": DOMAIN}),
        (ESTIMATORS[1], {}, {"y": [None, *Y[1:]]}),
        (ESTIMATORS[1], {"n_atoms": 9}, {"y": Y, "sample_domain": np.where(DOMAIN == 1, -1, DOMAIN)}),
        (ESTIMATORS[2], {}, {"y": [None, *Y[1:]]}),
        (ESTIMATORS[2], {}, {"y": Y, "sample_weight": -np.ones(len(Y))}),
        (ESTIMATORS[2], {"min_components": 0}, {"y": Y}),
        (ESTIMATORS[3], {}, {"sample_weight": -np.ones(len(Y))}),
        (ESTIMATORS[3], {"max_components": 0}, {}),
        (ESTIMATORS[3], {"resolution": 0}, {}),
    ],
)
def test_a_refit_that_fails_changes_nothing(estimator, parameters, fit):
    model = type(estimator)(**estimator.get_params()).fit(FRAME, Y)
    before = model.predict_proba(FRAME)
    with pytest.raises(InvalidInputError):
        model.set_params(**parameters).fit(OTHER, **fit)
    assert model.n_features_in_ == 8
    assert list(model.feature_names_in_) == list(FRAME)
    assert np.array_equal(model.predict_proba(FRAME), before)


def test_a_first_fit_that_fails_leaves_nothing():
    model = OnlineDaDiL(**QUICK)
    with pytest.raises(InvalidInputError, match="must not hold 0"):
        model.fit(FRAME, Y, np.zeros(len(Y), dtype=int))
    assert not hasattr(model, "n_features_in_")
    assert not hasattr(model, "feature_names_in_")
