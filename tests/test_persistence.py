import random
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

import baryflow
from baryflow import DaDiL, Mixture, MixtureClassifier, OnlineDaDiL, OnlineGaussianMixture, container
from baryflow.datasets import make_domains
from baryflow.exceptions import FileFormatError
from baryflow.persistence import open_content
from tests.files import reseal

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=30, random_state=0)
NAMES = ["p", "T", "flow", "level"]
LETTERS = np.array(["a", "b", "c"])[P.y]


def joined(**options):
    X = np.concatenate([P.X, P.X_target])
    y = np.concatenate([P.y, np.zeros_like(P.y_target)])
    domain = np.concatenate([P.domain, np.full(len(P.y_target), -1)])
    return DaDiL(random_state=0, **options).fit(X, y, domain)


def online(**options):
    return OnlineDaDiL(random_state=0, **options).fit(P.X, P.y, P.domain)


def quick(**options):
    return online(**{"classifier": "linear", "validate": False} | options)


def named(model):
    plants = np.array(["", "north", "south", "west"])[P.domain]
    return model.fit(pd.DataFrame(P.X, columns=NAMES), LETTERS, plants)


def begun(model, frame=False):
    X = pd.DataFrame(P.X_target, columns=NAMES) if frame else P.X_target
    for start in (0, 20, 40):
        model.partial_fit(X[start : start + 20])
    return model


MODELS = {
    "mixture": lambda: Mixture([0.5, 0.5], [[0.0], [1.0]], [[1.0], [2.0]], np.eye(2), mass=7),
    "mixture without labels": lambda: Mixture([1.0], [[0.0, 3.0]], [[1.0, 2.0]]),
    "online mixture": lambda: begun(OnlineGaussianMixture(7, half_life=50.0)),
    "online mixture, plain": lambda: begun(OnlineGaussianMixture(7, resolution=1)),
    "classifier": lambda: MixtureClassifier(max_components=3, random_state=0).fit(P.X, LETTERS),
    "offline": lambda: joined(classifier="linear"),
    "offline, all classifiers": lambda: joined(validate=False),
    "online, no target": quick,
    "online": lambda: begun(online(classifier="linear")),
    "online, all classifiers": lambda: begun(online(validate=False)),
    "online, scikit-learn": lambda: begun(
        quick(classifier=["linear", GaussianNB()], keep_sources=False)
    ),
    "online, no sources": lambda: begun(quick(keep_sources=False, label_shift=False)),
    "online, prior": lambda: begun(quick(class_prior={0: 0.5}, half_life=40.0)),
    "online, named": lambda: begun(
        named(OnlineDaDiL(classifier="linear", validate=False, random_state=0)), frame=True
    ),
}


def go_on(model):
    """Return what a model says and learns from now on."""
    if isinstance(model, Mixture):
        return [model.log_density(np.zeros((2, model.n_features)))]
    X = P.X_target[60:]
    rows = pd.DataFrame(X, columns=NAMES) if hasattr(model, "feature_names_in_") else X
    said = []
    if not isinstance(model, OnlineGaussianMixture):
        said += [model.predict_proba(rows), model.predict(rows)]
    if hasattr(model, "partial_fit"):
        model.partial_fit(rows[:15]).partial_fit(rows[15:])
        said.append(model.predict_proba(rows))
    if isinstance(model, OnlineDaDiL):
        said += [model.predict_proba(rows), model.novelty(rows), model.report(), model.history_.losses]
        if model.keep_sources:
            own = rows[:20], P.y[:20] if model.classes_.dtype.kind == "i" else LETTERS[:20]
            model.add_source(*own, 9 if isinstance(model.sources_[0], int) else "late")
            said.append(model.predict_proba(rows))
    return [*said, model.to_bytes()]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


def assert_same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, np.ndarray):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)
        else:
            assert a == b


# -- there and back ---------------------------------------------------------------------------------


def test_the_same_model_is_the_same_bytes(model):
    data = model.to_bytes()
    assert model.to_bytes() == data
    again = type(model).from_bytes(data)
    assert type(again) is type(model)
    assert again.to_bytes() == data


def test_bytes_and_file_go_on_bit_for_bit(model, tmp_path):
    data = model.to_bytes()
    model.save(tmp_path / "m.bary")
    twins = [type(model).from_bytes(data), baryflow.load(tmp_path / "m.bary")]
    expected = go_on(deepcopy(model))
    for twin in twins:
        assert_same(go_on(twin), expected)
    assert model.to_bytes() == data  # saving and loading has left it alone


def test_parameters_and_columns_come_back(model):
    again = type(model).from_bytes(model.to_bytes())
    if isinstance(model, Mixture):
        assert again == model
        return
    assert repr(again.get_params()) == repr(model.get_params())  # estimators are not equal to copies
    assert again.n_features_in_ == model.n_features_in_
    assert hasattr(again, "feature_names_in_") == hasattr(model, "feature_names_in_")


def test_a_file_says_what_wrote_it_and_when(model, tmp_path):
    model.save(tmp_path / "m.bary")
    content = container.read(tmp_path / "m.bary")
    assert content.kind == type(model).kind
    assert content.version == baryflow.__version__
    assert len(content.date) == len("2026-01-01T00:00:00+00:00")
    bare = container.from_bytes(model.to_bytes())
    assert (bare.version, bare.date) == (content.version, "")


def test_two_models_that_learned_the_same_are_the_same_bytes():
    for make in (MODELS["online"], MODELS["offline, all classifiers"], MODELS["online mixture"]):
        assert make().to_bytes() == make().to_bytes()


def test_bytes_of_another_kind_are_refused():
    data = MODELS["mixture"]().to_bytes()
    for kind in (OnlineDaDiL, DaDiL, MixtureClassifier, OnlineGaussianMixture):
        with pytest.raises(FileFormatError, match=f"holds a 'mixture', not a '{kind.kind}'"):
            kind.from_bytes(data)


# -- damage -----------------------------------------------------------------------------------------


def small(**options):
    """Return a small saved model without its sources."""
    some = P.y < 2
    model = OnlineDaDiL(keep_sources=False, random_state=0, **options)
    model.fit(P.X[some][:, :2], P.y[some], P.domain[some]).partial_fit(P.X_target[:20, :2])
    return model.to_bytes()


def damage(raw, rng):
    """Flip bits, cut, or exchange bytes and pieces."""
    data = bytearray(raw)
    kind = rng.randrange(5)
    if kind == 0:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 2:
        del data[rng.randrange(len(data)) :]
    elif kind == 3:
        start = rng.randrange(len(data))
        del data[start : start + rng.randint(1, 64)]
    else:
        i, j = rng.randrange(len(data)), rng.randrange(len(data))
        data[i], data[j] = data[j], data[i]
    return bytes(data)


def test_damaged_files_are_one_clear_error_each():
    raw = small(classifier="linear", validate=False)
    rng = random.Random(0)
    refused = 0
    for _ in range(1000):
        data = damage(raw, rng)
        try:
            model = OnlineDaDiL.from_bytes(data)
        except FileFormatError:
            refused += 1
        else:
            assert data == raw  # bytes were exchanged for the same
            assert model.to_bytes() == raw
    assert refused > 950


def test_a_file_of_another_release_names_both_releases():
    content = container.from_bytes(small(classifier="linear", validate=False))
    old = container.Content("old.bary", content.kind, {"layout": "another"}, {}, version="0.1.9")
    with pytest.raises(FileFormatError, match=r"old\.bary was saved by baryflow 0\.1\.9.*fit and save"):
        open_content(old)


def test_damage_under_a_checksum_that_fits_is_an_error_or_a_model():
    rng = random.Random(0)
    raw, refused = small(classifier="linear", validate=False), 0
    for _ in range(100):
        data = reseal(damage(raw, rng))
        try:
            with np.errstate(all="ignore"):
                assert isinstance(OnlineDaDiL.from_bytes(data), OnlineDaDiL)
        except FileFormatError:
            refused += 1
    assert 50 < refused < 100


def test_a_mixture_of_a_stream_damaged_under_a_checksum_that_fits():
    rng = random.Random(1)
    for resolution in (1, 2):
        raw = OnlineGaussianMixture(3, resolution=resolution).fit(P.X[:12, :2]).to_bytes()
        refused = 0
        for _ in range(200):
            try:
                again = OnlineGaussianMixture.from_bytes(reseal(damage(raw, rng)))
                assert isinstance(again, OnlineGaussianMixture)
            except FileFormatError:
                refused += 1
        assert 75 < refused < 200
