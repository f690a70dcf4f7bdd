"""Raw signals to rows of features, offline and on the fly alike."""

from baryflow.features.cut import FeatureStream, Windows, windows
from baryflow.features.encoder import OnnxEncoder
from baryflow.features.pairing import SignalModel
from baryflow.features.transformer import SignalFeatures

__all__ = ["FeatureStream", "OnnxEncoder", "SignalFeatures", "SignalModel", "Windows", "windows"]
