"""Adapt a classifier from many labelled histories to one live, unlabelled stream."""

from importlib.metadata import version as _version

from baryflow.core.barycenters import Barycenter, barycenter
from baryflow.core.bures import bures_squared
from baryflow.core.em import Sweep, fit_mixture, sweep_components
from baryflow.core.mixture import Mixture
from baryflow.core.transport import Plan, mw2_squared, smw2_squared, transport_plan, w2_squared
from baryflow.estimators.classifier import MixtureClassifier
from baryflow.estimators.dadil import DaDiL
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.estimators.online_mixture import OnlineGaussianMixture
from baryflow.persistence import load

__version__ = _version("baryflow")

__all__ = [
    "Barycenter",
    "DaDiL",
    "Mixture",
    "MixtureClassifier",
    "OnlineDaDiL",
    "OnlineGaussianMixture",
    "Plan",
    "Sweep",
    "__version__",
    "barycenter",
    "bures_squared",
    "fit_mixture",
    "load",
    "mw2_squared",
    "smw2_squared",
    "sweep_components",
    "transport_plan",
    "w2_squared",
]
