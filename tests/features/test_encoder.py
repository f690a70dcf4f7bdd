import pickle
import sys

import numpy as np
import pytest
from sklearn.base import clone

import baryflow
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.features import OnnxEncoder, windows

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def network(n_dims=3, inputs=("signals",), kind="FLOAT"):
    """The mean over time of every channel; or, of flattened windows, their first two values."""
    from onnx import TensorProto, helper, numpy_helper

    kind = getattr(TensorProto, kind)
    shape = ["n", "time", 2] if n_dims == 3 else ["n", "d"]
    constant = np.array([1] if n_dims == 3 else [0, 1])
    constants = [numpy_helper.from_array(constant, "c")]
    nodes = [
        helper.make_node("ReduceMean", ["signals", "c"], ["features"], keepdims=0)
        if n_dims == 3
        else helper.make_node("Gather", ["signals", "c"], ["features"], axis=1),
        helper.make_node("Neg", ["features"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info(name, kind, shape) for name in inputs],
        [helper.make_tensor_value_info(name, kind, ["n", 2]) for name in ("logits", "features")],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString()


X = np.random.default_rng(0).normal(size=(7, 10, 2))


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_it_computes_what_the_network_does_also_from_a_file(tmp_path, kind):
    (tmp_path / "e.onnx").write_bytes(network(kind=kind))
    model = OnnxEncoder(tmp_path / "e.onnx").fit(X)
    np.testing.assert_allclose(model.transform(X), X.mean(axis=1), atol=1e-6)
    other = clone(OnnxEncoder(network(kind=kind), output="logits")).fit(X)
    np.testing.assert_allclose(other.transform(X), -X.mean(axis=1), atol=1e-6)
    assert model.get_feature_names_out().tolist() == ["feature0", "feature1"]
    flat = OnnxEncoder(network(n_dims=2), n_channels=2).fit_transform(X.reshape(7, -1))
    np.testing.assert_allclose(flat, X[:, 0], rtol=1e-6)
    first = OnnxEncoder(network(n_dims=2), n_channels=2, channels_first=True).fit_transform(X)
    np.testing.assert_allclose(first, X[:, :2, 0], rtol=1e-6)


def test_it_travels_with_its_network(tmp_path):
    (tmp_path / "e.onnx").write_bytes(network())
    model = OnnxEncoder(tmp_path / "e.onnx").fit(X)
    model.save(tmp_path / "e.bary")
    (tmp_path / "e.onnx").unlink()
    again = baryflow.load(tmp_path / "e.bary")
    for other in (again, pickle.loads(pickle.dumps(model))):  # noqa: S301 - our own bytes
        np.testing.assert_array_equal(other.transform(X), model.transform(X))
    assert again.to_bytes() == model.to_bytes()


def test_on_the_fly_is_offline_bit_for_bit_and_gaps_are_bridged():
    rows = np.random.default_rng(1).normal(size=(40, 2))
    rows[5, 0] = np.nan
    rows[20:30, 1] = np.nan
    model, cut = OnnxEncoder(network()).fit(X), windows(rows, 10, 5)
    stream = model.stream(5)
    found = [row for row in map(stream.push, rows) if row is not None]
    np.testing.assert_array_equal(np.array(found), model.transform(cut))
    assert np.isnan(found).any(axis=1).tolist() == (cut.end == 29).tolist()


def test_what_is_no_encoder_is_told(tmp_path):
    with pytest.raises(FileNotFoundError):
        OnnxEncoder(tmp_path / "none.onnx").fit(X)
    with pytest.raises(InvalidInputError, match="not a network that onnxruntime can open"):
        OnnxEncoder(b"hello").fit(X)
    with pytest.raises(InvalidInputError, match="one input, the windows; this one takes signals, scale"):
        OnnxEncoder(network(inputs=("signals", "scale"))).fit(X)
    with pytest.raises(InvalidInputError, match="gives logits, features, not 'hidden'"):
        OnnxEncoder(network(), output="hidden").fit(X)
    with pytest.raises(InvalidInputError, match="failed on windows of length 10 with 1 channel"):
        OnnxEncoder(network()).fit(X[:, :, :1])


@pytest.mark.parametrize("where", ["initializer", "attribute", "hidden"])
def test_a_network_that_refers_to_other_files_is_refused(tmp_path, where):
    """Otherwise any file of the machine would be read as weights, and written into the model."""
    (tmp_path / "weights").write_bytes(np.ones(1).tobytes())
    model = onnx.load_from_string(network())
    tensor = model.graph.initializer[0]
    if where == "attribute":
        model.graph.node.add(op_type="Constant", output=["d"]).attribute.add(name="value", t=tensor)
        tensor = model.graph.node[-1].attribute[0].t
    onnx.external_data_helper.set_external_data(tensor, str(tmp_path / "weights"))
    # A protocol buffer may say things twice, the last time counts; and it skips what it does not know.
    data = b"\xfb\x7f\xfc\x7f" * (where == "hidden") + model.SerializeToString()
    with pytest.raises(InvalidInputError, match=r"other files.*one \.onnx file|not a network"):
        OnnxEncoder(data).fit(X)


def test_a_device_is_no_network():
    with pytest.raises(FileFormatError, match="it is a device"):
        OnnxEncoder("/dev/zero").fit(X)


def test_the_number_of_features_of_a_network_is_bounded():
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("ConstantOfShape", ["shape"], ["many"])],
        "bomb",
        [helper.make_tensor_value_info("signals", TensorProto.FLOAT, ["n", "time", 2])],
        [helper.make_tensor_value_info("many", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(np.array([2**21]), "shape")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(InvalidInputError, match="2,097,152 features"):
        OnnxEncoder(model.SerializeToString()).fit(X)


def test_without_onnxruntime_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'baryflow\[encode\]'"):
        OnnxEncoder(network()).fit(X)
