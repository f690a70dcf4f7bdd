"""Adapt a classifier from many labelled histories to one live, unlabelled stream."""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baryflow.core.barycenters import Barycenter, barycenter
    from baryflow.core.em import Sweep, fit_mixture, sweep_components
    from baryflow.core.mixture import Mixture
    from baryflow.core.transport import Plan, mw2_squared, smw2_squared, transport_plan, w2_squared
    from baryflow.estimators.dadil import DaDiL
    from baryflow.estimators.mixture_classifier import MixtureClassifier
    from baryflow.estimators.online_dadil import OnlineDaDiL
    from baryflow.estimators.online_mixture import OnlineGaussianMixture
    from baryflow.persistence import load

#: Where each public name is defined. It is imported when it is first used: scikit-learn alone takes a
#: second, and parts of the package do without it.
_MODULES = {
    "Barycenter": "core.barycenters",
    "DaDiL": "estimators.dadil",
    "Mixture": "core.mixture",
    "MixtureClassifier": "estimators.mixture_classifier",
    "OnlineDaDiL": "estimators.online_dadil",
    "OnlineGaussianMixture": "estimators.online_mixture",
    "Plan": "core.transport",
    "Sweep": "core.em",
    "barycenter": "core.barycenters",
    "fit_mixture": "core.em",
    "load": "persistence",
    "mw2_squared": "core.transport",
    "smw2_squared": "core.transport",
    "sweep_components": "core.em",
    "transport_plan": "core.transport",
    "w2_squared": "core.transport",
}

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
    "fit_mixture",
    "load",
    "mw2_squared",
    "smw2_squared",
    "sweep_components",
    "transport_plan",
    "w2_squared",
]

__version__ = _version("baryflow")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
