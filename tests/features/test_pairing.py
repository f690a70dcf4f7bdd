import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import baryflow
from baryflow import OnlineDaDiL, codec, container
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.features import OnnxEncoder, SignalFeatures, SignalModel, windows
from baryflow.features.cut import Position

LENGTH, STEP = 12, 5


def signals(seed=0, n=240):
    """Return rows of two channels, and which of two classes they are of: one shakes more."""
    rng = np.random.default_rng(seed)
    y = np.repeat(["calm", "loose"], n // 2)
    rows = 100 + rng.normal(size=(n, 2)) * np.where(y == "loose", 4.0, 1.0)[:, None]
    rows[rng.random(rows.shape) < 0.02] = np.nan
    return rows, y


@pytest.fixture(scope="module")
def pair():
    rows, y = signals()
    cut = windows(rows, LENGTH, STEP, label=y)
    features = SignalFeatures(max_features=6).fit(cut, cut.label)
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    return SignalModel(features, model.fit(features.transform(cut), cut.label), STEP)


def test_it_says_which_columns_it_takes_and_how_it_makes_rows(pair):
    assert pair.columns == ["x0", "x1"] == pair.feature_names_in_.tolist()
    assert (pair.length, pair.step) == (LENGTH, STEP)
    assert "windows of 12 rows, one every 5; each becomes 6 features from 2 channels" in pair.describe()


def test_saved_and_loaded_it_gives_the_same_bits(pair, tmp_path):
    pair.save(tmp_path / "it.bary")
    back = baryflow.load(tmp_path / "it.bary")
    assert isinstance(back, SignalModel)
    assert back.to_bytes() == pair.to_bytes()
    assert SignalModel.from_bytes(pair.to_bytes()).to_bytes() == pair.to_bytes()
    rows = signals(1)[0]
    offline = pair.features.transform(windows(rows, LENGTH, STEP))
    pushed = [found for found in map(back.stream().push, rows) if found is not None]
    np.testing.assert_array_equal(pushed, offline)
    np.testing.assert_array_equal(back.model.predict_proba(offline), pair.model.predict_proba(offline))


def test_the_model_inside_goes_on_learning(pair):
    mine = SignalModel.from_bytes(pair.to_bytes())
    mine.model.partial_fit(mine.features.transform(windows(signals(1)[0], LENGTH, STEP)))
    back = SignalModel.from_bytes(mine.to_bytes())
    assert back.model.n_samples_seen_ == mine.model.n_samples_seen_ > 0
    assert mine.to_bytes() != pair.to_bytes()


def test_what_is_normal_on_the_target_travels_too(pair):
    mine = SignalModel.from_bytes(pair.to_bytes())
    cut = windows(3 * signals(2)[0], LENGTH, STEP)
    mine.features.learn_normal(cut[:8])
    back = SignalModel.from_bytes(mine.to_bytes())
    assert "target" in back.features.normal_.names
    np.testing.assert_array_equal(back.features.transform(cut), mine.features.transform(cut))
    assert not np.array_equal(back.features.transform(cut), pair.features.transform(cut))


def test_a_network_travels_in_it(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from tests.features.test_encoder import network

    rows, y = signals()
    cut = windows(rows, LENGTH, STEP, label=y)
    features = OnnxEncoder(network()).fit(cut)
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(
        features.transform(cut), cut.label
    )
    SignalModel(features, model, STEP).save(tmp_path / "it.bary")
    back = baryflow.load(tmp_path / "it.bary")
    assert isinstance(back.features, OnnxEncoder)
    assert "2 features by a network" in back.describe()
    pushed = [found for found in map(back.stream().push, rows) if found is not None]
    np.testing.assert_array_equal(pushed, features.transform(cut))


@pytest.mark.parametrize("n_rows", [0, 7, 29])
def test_where_a_stream_is_can_be_written_down(pair, n_rows):
    rows = signals(1)[0]
    one = pair.stream()
    for row in rows[:n_rows]:
        one.push(row)
    data = container.to_bytes("position", *codec.encode(one.position))
    content = container.from_bytes(data)
    other = pair.stream()
    other.resume(codec.decode(Position, content.values, content.arrays))
    for row in rows[n_rows:]:
        np.testing.assert_equal(one.push(row), other.push(row))


def test_what_does_not_belong_together_is_refused(pair):
    rows, y = signals()
    cut = windows(rows, LENGTH, STEP, label=y)
    wider = SignalFeatures(max_features=9).fit(cut, cut.label)
    with pytest.raises(InvalidInputError, match="rows of 6 features, but windows become rows of 9"):
        SignalModel(wider, pair.model, STEP)
    with pytest.raises(InvalidInputError, match="step must be"):
        SignalModel(pair.features, pair.model, 0)
    with pytest.raises(NotFittedError):
        SignalModel(SignalFeatures(), pair.model, STEP)
    with pytest.raises(NotFittedError):
        SignalModel(pair.features, OnlineDaDiL(), STEP)


def test_a_file_whose_parts_do_not_fit_is_damaged(pair):
    content = container.from_bytes(pair.to_bytes())
    content.values["fields"]["step"] = 0
    with pytest.raises(FileFormatError, match="signal_model is damaged"):
        SignalModel.from_content(content)
