"""Encoders are trained with PyTorch, written with onnx, and computed with onnxruntime alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow import container
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.features.encoder import open_session

OPSET = 18
_KEY = "baryflow"
_BATCH = 256


def import_torch() -> Any:
    """Return PyTorch, or say how to get it."""
    try:
        import torch
    except ImportError as error:
        raise ModuleNotFoundError(
            "training an encoder needs the extra 'encode' (PyTorch): install a CPU build of torch, then "
            "pip install 'baryflow[encode]'",
            name="torch",
        ) from error
    return torch


class Graph:
    """A chain of ONNX nodes under construction; every step returns the name of its output."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, values: Any) -> str:
        """Put in an array."""
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Put in an operation."""
        from onnx import helper

        name = output or f"x{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def linear(self, x: str, weight: Any, bias: Any, output: str | None = None) -> str:
        """Put in x · weightᵀ + bias."""
        return self.node("Gemm", x, self.constant(weight), self.constant(bias), output=output, transB=1)

    def save(
        self, path: str | os.PathLike[str], inputs: dict[str, list[int | str]], about: dict[str, Any]
    ) -> None:
        """Check the graph and write it; its outputs are the features and the head's logits."""
        import onnx
        from onnx import TensorProto, helper

        def described(name: str, shape: list[int | str]) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

        graph = helper.make_graph(
            self._nodes,
            "encoder",
            [described(name, shape) for name, shape in inputs.items()],
            [described("features", ["n", "d"]), described("logits", ["n", "classes"])],
            self._constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        helper.set_model_props(model, {_KEY: json.dumps(about, sort_keys=True)})
        onnx.checker.check_model(model, full_check=True)
        container.write_bytes(path, model.SerializeToString())


class Network:
    """A trained encoder from an ``.onnx`` file.

    Attributes
    ----------
    about : dict
        What was written down at training: kind of the encoder, sources, validation.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not Path(path).is_file():
            raise FileNotFoundError(f"no such file: {os.fspath(path)}")
        try:
            self._session = open_session(Path(path).read_bytes())
            self.about = dict(json.loads(self._session.get_modelmeta().custom_metadata_map[_KEY]))
        except (InvalidInputError, KeyError, ValueError) as error:
            raise FileFormatError(
                f"{os.fspath(path)} is not an encoder that baryflow wrote: {error}"
            ) from error

    def __call__(
        self, X: NDArray[Any], *normal: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return features and logits of `X`, given what is normal in its domain (further inputs)."""
        first, *others = self._session.get_inputs()
        if X.ndim != len(first.shape) or any(
            a != b for a, b in zip(X.shape, first.shape, strict=True) if isinstance(b, int)
        ):
            raise InvalidInputError(f"expected {first.name} of shape {first.shape}, got {X.shape}")
        if not len(X) or not np.isfinite(X).all():
            raise InvalidInputError(
                f"expected {first.name} of some runs without gaps: fill missing values"
            )
        fixed = {
            node.name: np.asarray(v, dtype=np.float32) for node, v in zip(others, normal, strict=True)
        }
        parts = [
            self._session.run(
                None, {first.name: np.asarray(X[i : i + _BATCH], dtype=np.float32), **fixed}
            )
            for i in range(0, len(X), _BATCH)
        ]
        features, logits = (np.concatenate(part) for part in zip(*parts, strict=True))
        return features, logits
