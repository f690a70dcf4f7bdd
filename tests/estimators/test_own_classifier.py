"""A classifier of the user's own: an expert and a voter like the others, saved without pickle."""

import builtins
import io
import struct
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import baryflow
from baryflow import DaDiL, OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.exceptions import FileFormatError, InvalidInputError
from tests.estimators.streams import stream

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=20, random_state=0)
OWN = {
    "probabilities": LogisticRegression(C=0.5),
    "margins": LinearSVC(),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "discriminant": LinearDiscriminantAnalysis(),
    "boosted trees": HistGradientBoostingClassifier(max_iter=8, random_state=0),
    "several": ["linear", LogisticRegression(C=0.5), LogisticRegression(C=50.0)],
}


def fit(classifier, **options):
    options = {"validate": False, "random_state": 0} | options
    return OnlineDaDiL(classifier=classifier, **options).fit(P.X, P.y, P.domain)


class Nearest(ClassifierMixin, BaseEstimator):
    """A class that no library knows."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.means_ = np.stack([X[y == c].mean(axis=0) for c in self.classes_])
        return self

    def predict_proba(self, X):
        closeness = np.exp(-0.5 * np.square(X[:, None] - self.means_).sum(axis=2)) + 1e-12
        return closeness / closeness.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.fixture
def without_skops(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **named):
        if name.split(".")[0] == "skops":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)


# -- an expert and a voter --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "classifier", [RandomForestClassifier(20, random_state=0), Nearest(), *OWN.values()], ids=str
)
def test_it_is_an_expert_on_raw_rows_and_per_domain(classifier):
    model = stream(fit(classifier), P.X_target)
    several = classifier if isinstance(classifier, list) else [classifier]
    names = [one if isinstance(one, str) else type(one).__name__ for one in several]
    if len(names) == 3:
        names[2] = "LogisticRegression 2"
    adapted = [f"{name}, per domain" for name in names]
    assert model.committee_.experts == (*names, *adapted, "reconstruction", "components")
    assert model.committee_.raw.shape == (len(names),)
    assert all(name in model.report() for name in names if name != "linear")
    assert model.score(P.X_target, P.y_target) > 0.8


def test_it_predicts_before_any_row():
    own = LogisticRegression(C=0.5)
    Z, T = ((X - P.X.mean(axis=0)) / P.X.std(axis=0) for X in (P.X, P.X_target))
    expected = own.fit(Z, P.y).predict_proba(T) + 1e-3
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fit(own).predict_proba(P.X_target), expected, atol=1e-9)


def test_the_users_object_is_not_touched():
    own = LogisticRegression(C=0.5)
    fit(own)
    assert not hasattr(own, "coef_")


def test_its_weight_is_learned():
    class Wrong(Nearest):
        def predict_proba(self, X):
            return np.roll(super().predict_proba(X), 1, axis=1)

    p = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=20, shift=0.3, random_state=0)
    model = OnlineDaDiL(classifier=[LogisticRegression(), Wrong()], random_state=0)
    model.fit(p.X, p.y, p.domain)
    right, wrong = model.committee_.raw
    assert right > 3.0 * wrong
    assert model.committee_.accuracy[0] > 0.8
    assert model.committee_.accuracy[1] < 0.4
    assert stream(model, p.X_target).score(p.X_target, p.y_target) > 0.8


def test_offline_it_takes_part_too():
    X, y = np.concatenate([P.X, P.X_target]), np.concatenate([P.y, P.y_target])
    domain = np.concatenate([P.domain, np.full(len(P.y_target), -1)])
    model = DaDiL(classifier=LogisticRegression(), validate=False, random_state=0).fit(X, y, domain)
    assert "LogisticRegression, per domain" in model.committee_.experts
    again = DaDiL.from_bytes(model.to_bytes())
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


# -- saving -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("classifier", OWN.values(), ids=OWN)
def test_saved_in_mid_stream_it_continues_bit_for_bit(classifier, tmp_path):
    model = stream(fit(classifier, keep_sources=True), P.X_target[:30], 10)
    model.save(tmp_path / "m.bary")
    again = baryflow.load(tmp_path / "m.bary")
    for _ in range(2):
        assert np.array_equal(again.predict_proba(P.X_target), model.predict_proba(P.X_target))
        assert again.report() == model.report()
        for one in (model, again):
            stream(one, P.X_target[30:], 10)
    assert repr(again.classifier) == repr(classifier)
    assert again.to_bytes() == model.to_bytes() == model.to_bytes()
    again.add_source(P.X_target, P.y_target, 9)  # it can be fitted again
    model.add_source(P.X_target, P.y_target, 9)
    assert np.array_equal(again.predict_proba(P.X_target), model.predict_proba(P.X_target))


def test_other_parameters_of_it_are_refused_on_the_way():
    model = fit(LogisticRegression(C=0.5))
    model.set_params(classifier__C=5.0)
    with pytest.raises(InvalidInputError, match=r"classifier was .* when the sources were learned"):
        model.partial_fit(P.X_target)


@pytest.mark.parametrize("own", [RandomForestClassifier(5, random_state=0), Nearest()], ids=str)
def test_what_skops_does_not_trust_is_refused_when_it_is_saved(own, tmp_path):
    # Whoever loads such a file would have to trust whoever wrote it.
    model = stream(fit(own), P.X_target)
    for save in (model.to_bytes, lambda: model.save(tmp_path / "m.bary")):
        with pytest.raises(InvalidInputError, match=f"{type(own).__name__} cannot be saved.*not trust"):
            save()
    assert list(tmp_path.iterdir()) == []
    assert model.score(P.X_target, P.y_target) > 0.6  # all else works


def test_without_skops_saving_says_what_to_install(without_skops, tmp_path):
    model = stream(fit(LogisticRegression()), P.X_target)
    for save in (model.to_bytes, lambda: model.save(tmp_path / "m.bary")):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'baryflow\[skops\]'"):
            save()
    assert list(tmp_path.iterdir()) == []
    fit("linear").save(tmp_path / "linear.bary")  # the built-in ones do without


def test_without_skops_loading_says_what_to_install(monkeypatch, request):
    content = fit(LogisticRegression()).to_bytes()
    request.getfixturevalue("without_skops")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'baryflow\[skops\]'"):
        OnlineDaDiL.from_bytes(content)


# -- archives that nobody should open ---------------------------------------------------------------


def repack(archive, compression=zipfile.ZIP_STORED, *, extra=b""):
    """Return the archive of skops with other compression, and one more member."""
    content = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(content, "w", compression) as new:
        for member in old.infolist():
            new.writestr(member.filename, old.read(member))
        if extra:
            new.writestr("extra", extra)
    return content.getvalue()


def twice(archive):
    """Return an archive in which all names stand for the same bytes many times over."""
    with zipfile.ZipFile(io.BytesIO(archive)) as old:
        start, end = old.start_dir, len(archive) - 22
        n = len(old.infolist())
    directory = archive[start:end] * 50
    closing = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 50 * n, 50 * n, len(directory), start, 0)
    return archive[:start] + directory + closing


def encrypt(archive):
    """Return an archive whose members claim to be encrypted."""
    found = bytearray(archive)
    with zipfile.ZipFile(io.BytesIO(archive)) as old:
        place, members = old.start_dir, old.infolist()
    for member in members:
        found[place + 8] |= 1
        place += 46 + len(member.filename.encode()) + len(member.extra) + len(member.comment)
        found[member.header_offset + 6] |= 1
    return bytes(found)


DAMAGES = {
    "compressed": lambda one: repack(one, zipfile.ZIP_DEFLATED, extra=bytes(10**6)),
    "larger than itself": twice,
    "no archive": lambda _: b"no archive at all",
    "cut off": lambda one: one[: len(one) // 2],
    "encrypted": encrypt,
    "an unknown method": lambda one: repack(one).replace(b"\x14\0\0\0\0\0", b"\x14\0\0\0\x63\0"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_archive_that_is_compressed_damaged_or_too_large_is_refused(damage):
    model = fit(LogisticRegression())
    model.to_bytes()  # packs the classifier
    for one in model.knowledge_.plain.raw:
        found = np.frombuffer(damage(one.archive.tobytes()), dtype=np.uint8)
        object.__setattr__(one, "archive", found)
    with pytest.raises(FileFormatError, match="classifier"):
        OnlineDaDiL.from_bytes(model.to_bytes())


@pytest.mark.parametrize(
    ("field", "value"), [("left", 10**6), ("right", 0), ("feature_idx", 99), ("is_categorical", 1)]
)
def test_boosted_trees_that_point_outside_are_refused(field, value):
    model = fit(HistGradientBoostingClassifier(max_iter=2, random_state=0))
    with pytest.raises(InvalidInputError, match="cannot be saved"):
        break_tree(model, field, value).to_bytes()
    model = fit(HistGradientBoostingClassifier(max_iter=2, random_state=0))
    data = skops.io.dumps(first_classifier(break_tree(model, field, value)).estimator)
    object.__setattr__(first_classifier(model), "archive", np.frombuffer(data, dtype=np.uint8))
    with pytest.raises(FileFormatError, match="damaged"):
        OnlineDaDiL.from_bytes(model.to_bytes())


def test_boosted_trees_inside_of_something_else_are_not_trusted():
    inside = make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=2))
    model = fit(inside)
    with pytest.raises(InvalidInputError, match="cannot be saved"):
        model.to_bytes()
    for one in (*model.knowledge_.plain.raw, *model.knowledge_.plain.per_domain):
        data = np.frombuffer(skops.io.dumps(one.estimator), dtype=np.uint8)
        object.__setattr__(one, "archive", data)
    with pytest.raises(FileFormatError, match="TreePredictor"):
        OnlineDaDiL.from_bytes(model.to_bytes())


def first_classifier(model):
    return model.knowledge_.plain.raw[0]


def break_tree(model, field, value):
    tree = first_classifier(model).estimator._predictors[0][0]
    tree.nodes = tree.nodes.copy()
    tree.nodes[field][0] = value
    return model


# -- something else ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("forest", "one of 'linear', 'kernel', 'trees'.*got 'forest'"),
        (LinearRegression(), "scikit-learn classifier with predict_proba .*got LinearRegression"),
        (LogisticRegression, "scikit-learn classifier"),
        (3, "scikit-learn classifier .*got 3"),
        (["linear", None], "scikit-learn classifier .*got None"),
        ([], "empty list"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [DaDiL, OnlineDaDiL])
def test_what_is_no_classifier_is_refused(kind, wrong, message):
    domain = np.where(P.domain == 1, -1, P.domain) if kind is DaDiL else P.domain
    with pytest.raises(InvalidInputError, match=message):
        kind(classifier=wrong).fit(P.X, P.y, domain)
