"""Adapt a classifier from many labelled histories to one live, unlabelled stream."""

from importlib.metadata import version as _version

from baryflow.core.barycenter import barycenter
from baryflow.core.em import fit_mixture
from baryflow.core.mixture import Mixture
from baryflow.core.transport import mw2_squared, smw2_squared, w2_squared
from baryflow.estimators.classifier import MixtureClassifier
from baryflow.estimators.dadil import DaDiL
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.estimators.online_mixture import OnlineGaussianMixture
from baryflow.persistence import load

__version__ = _version("baryflow")

__all__ = [
    "DaDiL",
    "Mixture",
    "MixtureClassifier",
    "OnlineDaDiL",
    "OnlineGaussianMixture",
    "__version__",
    "barycenter",
    "fit_mixture",
    "load",
    "mw2_squared",
    "smw2_squared",
    "w2_squared",
]
