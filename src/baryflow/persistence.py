"""Read back whatever was saved: one front door for every kind of ``.bary`` file."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

from baryflow import container
from baryflow.core.mixture import Mixture
from baryflow.estimators.dadil import DaDiL
from baryflow.estimators.mixture_classifier import MixtureClassifier
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.estimators.online_mixture import OnlineGaussianMixture
from baryflow.exceptions import FileFormatError
from baryflow.features.encoder import OnnxEncoder
from baryflow.features.pairing import SignalModel
from baryflow.features.transformer import SignalFeatures

#: What can be saved and loaded, by the name in the file.
KINDS: dict[str, Any] = {
    known.kind: known
    for known in (
        Mixture,
        OnlineGaussianMixture,
        MixtureClassifier,
        DaDiL,
        OnlineDaDiL,
        SignalFeatures,
        OnnxEncoder,
        SignalModel,
    )
}


def load(path: str | os.PathLike[str]) -> Any:
    """Return the object saved in a ``.bary`` file, equal to the one that was saved.

    No code is loaded from the file, with one exception: a network (OnnxEncoder, or a SignalModel with
    one) is opened and executed by onnxruntime, as trusted code.

    Parameters
    ----------
    path : path
        Of a file that one of our ``save`` methods wrote.

    Returns
    -------
    object of one of these classes
        Mixture, OnlineGaussianMixture, MixtureClassifier, DaDiL, OnlineDaDiL, SignalFeatures,
        OnnxEncoder or SignalModel.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FileFormatError
        If the path is not a regular file, or the file cannot be read, is foreign, truncated, damaged,
        or of another version of the format.

    Examples
    --------
    >>> import baryflow, pathlib, tempfile
    >>> one = baryflow.Mixture([1.0], [[0.0, 1.0]], [[1.0, 1.0]], mass=20)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "one.bary"
    >>> one.save(path)
    >>> baryflow.load(path) == one
    True
    """
    return open_content(container.read(path))


def open_content(content: container.Content) -> Any:
    """Return the object in the content of a file, as :func:`load` does.

    Parameters
    ----------
    content : Content

    Returns
    -------
    object of one of these classes
        Mixture, OnlineGaussianMixture, MixtureClassifier, DaDiL, OnlineDaDiL, SignalFeatures,
        OnnxEncoder or SignalModel.

    Raises
    ------
    FileFormatError
        If it is of a kind that this release does not know, of another release, or damaged.
    """
    if content.kind not in KINDS:
        raise FileFormatError(
            f"{content.name} holds a {content.kind!r}, which this release does not know; it reads "
            f"{', '.join(sorted(KINDS))}"
        )
    try:
        return KINDS[content.kind].from_content(content)
    except FileFormatError as error:
        if content.version == (here := version("baryflow")):
            raise
        raise FileFormatError(
            f"{content.name} was saved by baryflow {content.version}; baryflow {here} cannot read it: "
            "fit and save the model again, or use that release"
        ) from error
