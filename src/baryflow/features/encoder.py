"""A trained network that makes features of windows, in the place of statistics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from baryflow.container import read_regular
from baryflow.estimators._persistence import Persistable, Shell
from baryflow.exceptions import InvalidInputError
from baryflow.features.cut import TakesWindows
from baryflow.features.protobuf import has_external_data
from baryflow.features.statistics import bridge, in_chunks
from baryflow.validation import Floats, count_of

#: Features of a window at most.
_MOST_FEATURES = 2**20


@dataclass(frozen=True, eq=False)
class OnnxEncoderState:
    """All that an OnnxEncoder knows, the network's bytes included."""

    shell: Shell
    length: int
    channels: list[str]
    network: NDArray[np.uint8]


def import_runtime() -> Any:
    """Return onnxruntime, or say what to install."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ModuleNotFoundError(
            "an ONNX encoder needs onnxruntime: pip install 'baryflow[encode]', or it alone",
            name="onnxruntime",
        ) from error
    return onnxruntime


def open_session(network: bytes) -> Any:
    """Return what computes a network, on one thread: the same bits whatever the machine."""
    onnxruntime = import_runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(network, options, ["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base but this
        raise InvalidInputError(f"not a network that onnxruntime can open: {error}") from error


class OnnxEncoder(Persistable, TakesWindows, TransformerMixin, BaseEstimator):
    """Turn windows of raw signals into features by a network in an ONNX file.

    It stands wherever :class:`SignalFeatures` does, and needs ``pip install 'baryflow[encode]'``. The
    network's bytes become part of what is saved. Gaps are bridged by straight lines, as there. Windows
    are computed one by one, so that a row is the same bits on a stream.

    .. warning::
        A network is trusted code, like a Python package: onnxruntime executes it in this process,
        without limits on time or memory, and so does loading a ``.bary`` file that contains one. Use
        networks and models from people you trust. Networks that refer to other files are refused.

    Parameters
    ----------
    model : path or bytes
        Of a network with one input: windows (n, length, n_channels) or flattened
        (n, length · n_channels), float32 or float64.
    output : str, optional
        Which of the network's outputs are the features; without it that named "features", or the first.
    channels_first : bool
        Whether the network takes (n, n_channels, length).
    n_channels : int
        As in :class:`SignalFeatures`.

    Attributes
    ----------
    network_ : bytes
    length_, n_channels_ : int
    channels_ : list of str
    n_features_in_, feature_names_in_
        As in scikit-learn, of flattened windows.
    """

    def __init__(
        self,
        model: Any,
        *,
        output: str | None = None,
        channels_first: bool = False,
        n_channels: int = 1,
    ) -> None:
        self.model = model
        self.output = output
        self.channels_first = channels_first
        self.n_channels = n_channels

    def fit(self, X: Any, y: Any = None, sample_domain: Any = None, normal: Any = None) -> Self:
        """Read the network and try it on a window; nothing is learned.

        Parameters
        ----------
        X : windows, as in :meth:`SignalFeatures.fit`
        y, sample_domain, normal
            Not looked at.

        Returns
        -------
        OnnxEncoder
            Itself.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ModuleNotFoundError
            If onnxruntime is not installed.
        FileFormatError
            If it is a folder, a device or a pipe, or cannot be read.
        InvalidInputError
            If it is no network, or not one for such windows.
        """
        network = self.model
        if not isinstance(network, bytes):
            network = read_regular(Path(network), "an .onnx file")
        held = self._first_windows(X)
        self._open(network)
        self.transform(held[:1])
        return self

    def transform(self, X: Any, sample_domain: Any = None) -> Floats:
        """Return the features of windows.

        Parameters
        ----------
        X : windows, as in :meth:`SignalFeatures.transform`
        sample_domain
            Not looked at.

        Returns
        -------
        array of shape (n, n_features_out)
            NaN for a window in which a channel has no value at all.

        Raises
        ------
        InvalidInputError
            If the windows are of another shape, or the network fails on them.
        """
        check_is_fitted(self, "network_")
        parts = [self._encode(window) for chunk in in_chunks(self._windows(X)) for window in chunk]
        return np.array(parts, dtype=np.float64)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return what the features are called: "feature0", "feature1" and so on.

        Parameters
        ----------
        input_features : array of str, optional
            Names of the channels or columns; only checked.

        Returns
        -------
        array of str

        Raises
        ------
        ValueError
            If there are neither as many names as channels nor as columns.
        """
        check_is_fitted(self, "network_")
        self._channel_names(input_features)
        width = len(self._encode(np.zeros((self.length_, self.n_channels_))))
        return np.array([f"feature{number}" for number in range(width)], dtype=object)

    def _encode(self, window: NDArray[Any]) -> Floats:
        filled, gone = bridge(window[None])
        taken = self._session.get_inputs()[0]
        kind = np.float64 if taken.type == "tensor(double)" else np.float32
        values = filled.transpose(0, 2, 1) if self.channels_first else filled
        if len(taken.shape) == 2:
            values = values.reshape(1, -1)
        try:
            (found,) = self._session.run([self._output()], {taken.name: values.astype(kind)})
        except Exception as error:  # onnxruntime's errors have no common base but this
            raise InvalidInputError(
                f"the network takes {taken.name} of shape {taken.shape} and failed on windows of length "
                f"{self.length_} with {count_of(self.n_channels_, 'channel')}: {error}"
            ) from error
        if np.size(found) > _MOST_FEATURES:
            raise InvalidInputError(
                f"the network makes {np.size(found):,} features of a window, more than "
                f"{_MOST_FEATURES:,}; choose another of its outputs"
            )
        row = np.asarray(found, dtype=np.float64).reshape(-1)
        return np.full(row.shape, np.nan) if gone.any() else row

    def _output(self) -> str:
        names = [node.name for node in self._session.get_outputs()]
        wanted = self.output or ("features" if "features" in names else names[0])
        if wanted not in names:
            raise InvalidInputError(f"the network gives {', '.join(names)}, not {wanted!r}")
        return wanted

    def _open(self, network: bytes) -> None:
        try:
            elsewhere = has_external_data(network)
        except ValueError as error:
            raise InvalidInputError(f"not a network that onnxruntime can open: {error}") from error
        if elsewhere:
            raise InvalidInputError(
                "the network keeps weights in other files, which is refused: save it as one .onnx file "
                "(onnx.save_model without save_as_external_data)"
            )
        session = open_session(network)
        inputs = [node.name for node in session.get_inputs()]
        if len(inputs) != 1:
            raise InvalidInputError(
                f"expected a network with one input, the windows; this one takes {', '.join(inputs)}"
            )
        self._session, self.network_ = session, network

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open session, which cannot be copied."""
        return {name: value for name, value in super().__getstate__().items() if name != "_session"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "network_" in state:
            self._open(state["network_"])

    kind = "onnx_encoder"
    state_type = OnnxEncoderState

    def _state(self) -> OnnxEncoderState:
        shell = self._shell()
        del shell.parameters["model"]  # the bytes say it
        network = np.frombuffer(self.network_, dtype=np.uint8)
        return OnnxEncoderState(shell, self.length_, self.channels_, network)

    @classmethod
    def _from_state(cls, state: OnnxEncoderState) -> Self:
        network = state.network.tobytes()
        model = cls(network, **state.shell.parameters)
        state.shell.fill(model)
        model._set_shape(state.length, state.channels)
        model._open(network)
        model._output()
        return model
