"""An OnlineDaDiL as plain values and arrays, and back."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from baryflow import container
from baryflow.core.dictionary import Dictionary, Domain
from baryflow.core.paper_summary import PaperSummary
from baryflow.core.proportions import ProportionPrior
from baryflow.core.settings import PaperSettings
from baryflow.core.summary import StreamSummary
from baryflow.estimators.adaptation import Adapted
from baryflow.estimators.class_moments import ClassMoments
from baryflow.estimators.decision import Decision
from baryflow.estimators.sensors import Limits, Tally
from baryflow.estimators.sources import LinearClassifier, SourceModel
from baryflow.exceptions import BaryflowError, FileFormatError, InvalidInputError
from baryflow.validation import check_values

_DAMAGE = (TypeError, KeyError, AttributeError, IndexError, ValueError, ArithmeticError, MemoryError)


def pack(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return everything a fitted model knows."""
    parameters = model.get_params() | {"class_prior": None}  # kept apart
    if not isinstance(model.random_state, (int, np.integer, type(None))):
        parameters["random_state"] = None  # its effect lives on in what was learned
    model_values, model_arrays = _model_state(model._model)
    summary_values, summary_arrays = model._summary.state()
    names = getattr(model, "feature_names_in_", None)
    values = {
        "parameters": container.plain(parameters),
        "feature_names": None if names is None else [str(name) for name in names],
        "classes": container.labels(model.classes_),
        "sources": container.labels(np.asarray(model.sources_)),
        "decision": asdict(model._decision),
        "model": model_values,
        "summary": summary_values,
        "reliability": model.reliability_,
        "refined": model._refined,
        "last": model._last,
        "adapted": model._adapted is not None,
        "keeps_rows": model._kept is not None,
        "fixed": list(model._learned),
    }
    arrays = {f"model_{name}": array for name, array in model_arrays.items()}
    arrays |= {f"summary_{name}": array for name, array in summary_arrays.items()}
    arrays |= {"usual": model._usual, "losses": model.loss_curve_}
    values["source_typical"] = model._source_typical
    values["class_prior"] = _told(model.class_prior)
    arrays |= {f"tally_{name}": array for name, array in vars(model._tally).items()}
    if model._adapted is not None and not model._last["from_scratch"]:
        arrays |= {f"last_{n}": a for n, a in model._adapted.carried().items()}
    if model._kept is not None:
        X, y, sources = model._kept
        arrays["rows"] = X
        arrays["row_classes"] = np.searchsorted(model.classes_, y)
        numbers = {name: number for number, name in enumerate(model.sources_)}
        arrays["row_sources"] = np.array([numbers[name] for name in sources.tolist()])
    return values, arrays


def _told(class_prior: Any) -> Any:
    """Return a class prior as JSON can hold it: the names of classes may be numbers."""
    if class_prior is None:
        return None
    if not isinstance(class_prior, Mapping):
        return {"shares": np.asarray(class_prior, dtype=np.float64).tolist()}
    names = container.labels(np.array(list(class_prior)))
    return {"names": names, "shares": [float(share) for share in class_prior.values()]}


def _remembered(told: Any) -> Any:
    if told is None:
        return None
    if "names" not in told:
        return np.array(told["shares"], dtype=np.float64)
    names = container.from_labels(told["names"]).tolist()
    return dict(zip(names, told["shares"], strict=True))


def unpack(kind: Any, values: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Rebuild a model of class `kind`; a file that does not fit together is one clear error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # damaged numbers may upset a solver; errors tell
            return _rebuilt(kind, values, arrays)
    except FileFormatError:
        raise
    except (*_DAMAGE, BaryflowError) as error:
        raise FileFormatError(f"the saved OnlineDaDiL is damaged: {error!r}") from error


def _rebuilt(kind: Any, values: dict[str, Any], arrays: dict[str, Any]) -> Any:
    model = kind(**(values["parameters"] | {"class_prior": _remembered(values["class_prior"])}))
    model._check_parameters()

    def part(prefix: str) -> dict[str, Any]:
        return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}

    for name, array in arrays.items():
        if array.dtype.kind == "f" and not name.startswith("summary_"):
            bounded = name not in ("model_low", "model_high")  # a constant column has no limits
            check_values(array if bounded else np.nan_to_num(array, posinf=0.0, neginf=0.0), name,
                         allow_nan=name in ("rows", "losses"))  # fmt: skip
    model._model = _model_from_state(values["model"], part("model_"))
    model.classes_ = container.from_labels(values["classes"])
    model.sources_ = container.from_labels(values["sources"]).tolist()
    decision = dict(values["decision"])
    decision["plays"] = tuple(tuple(play) for play in decision["plays"])
    for name in ("weights", "beginning", "remoteness"):
        decision[name] = tuple(float(number) for number in decision[name])
    model._decision = Decision(**decision)
    model._learned = {name: getattr(model, name) for name in values["fixed"]}
    settings = model._settings(model._model.n_classes)
    seen = values["summary"], part("summary_")
    if isinstance(settings, PaperSettings):
        model._summary = PaperSummary.from_state(settings, *seen)
    else:
        metric = model._model.metric(model._model.scale) if settings.full_covariance else None
        model._summary = StreamSummary.from_state(settings, *seen, metric)
    model._refined = int(values["refined"])
    model._tally = Tally(**part("tally_"))
    model._usual, model._source_typical = arrays["usual"], float(values["source_typical"])
    model.n_features_in_ = model._summary.n_features
    _check_names(model, values["feature_names"])
    model._kept = None
    if values["keeps_rows"]:
        sources = container.from_labels(values["sources"])[arrays["row_sources"]]
        model._kept = (arrays["rows"], model.classes_[arrays["row_classes"]], sources)
    model._adapted = None
    model._last = dict(values["last"])
    if values["adapted"]:
        _readapt(model, part("last_"))
    model._losses = deque(map(tuple, arrays["losses"].tolist()), maxlen=10_000)
    model._expose()
    model.reliability_ = float(values["reliability"])
    model.columns_ = model._faults()
    # A trial prediction finds arrays whose shapes do not fit each other.
    trial = np.zeros((1, model.n_features_in_))
    pooled = model._model.pooled_proba(trial)
    if model._adapted is not None:
        model._adapted.experts(trial, pooled)
    return model


def _readapt(model: Any, carried: dict[str, Any]) -> None:
    """Make the last update again; one that started from scratch follows from the summary alone."""
    last = dict(model._last)
    previous = None
    if not last.pop("from_scratch"):
        previous, last["n_steps"] = Adapted.from_carried(model._model, carried), 0
    model._adapted = model._adapt(previous, **last)


def _check_names(model: Any, features: list[str] | None) -> None:
    """Check that classes and features are as many as the model has, and set the features' names."""
    if len(set(model.classes_.tolist())) != model._model.n_classes:
        raise InvalidInputError("the classes do not fit the model")
    if features is not None:
        if len(features) != model.n_features_in_:
            raise InvalidInputError("the feature names do not fit the model")
        model.feature_names_in_ = np.array(features, dtype=object)


def _model_state(model: SourceModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a source model as plain values and arrays."""
    values = {
        "n_classes": model.n_classes,
        "prior_strength": model.prior.strength,
        "label_scale": float(model.dictionary.label_scale),
        "std_floor": model.dictionary.std_floor,
        "n_sources": len(model.domains),
        "trust": [domain.trust for domain in model.domains],
        "losses": [domain.loss for domain in model.domains],
        "has_view": model.directions is not None,
        "told": model.told,
    }
    arrays = {
        "centre": model.centre,
        "scale": model.scale,
        "unit": model.unit,
        "pooled_coefficients": model.pooled.coefficients,
        "pooled_intercepts": model.pooled.intercepts,
        "own_coefficients": model.own.coefficients,
        "own_intercepts": model.own.intercepts,
        "prior_mean": model.prior.mean,
        "usual": model.usual,
        "low": model.limits.low,
        "high": model.limits.high,
        "slot_classes": model.slot_classes,
        "atoms": model.dictionary.atoms,
        "loss_curve": model.loss_curve,
    }
    if model.directions is not None:
        arrays["directions"] = model.directions
    for name in _CLASS_ARRAYS:
        arrays[f"classes_{name}"] = getattr(model.classes, name)
    for number, domain in enumerate(model.domains):
        for name in _DOMAIN_ARRAYS:
            arrays[f"domain{number}_{name}"] = getattr(domain, name)
    return values, arrays


_CLASS_ARRAYS = (
    "means", "squares", "usual_centre", "centre_variance", "usual_scale", "scale_variance",
)  # fmt: skip
_DOMAIN_ARRAYS = ("weights", "points", "slot_weights", "coordinates", "match", "plan", "goal")


def _model_from_state(values: dict[str, Any], arrays: dict[str, Any]) -> SourceModel:
    """Rebuild what :func:`_model_state` gave."""
    dictionary = Dictionary(
        arrays["atoms"],
        len(arrays["unit"]),
        label_scale=values["label_scale"],
        std_floor=values["std_floor"],
    )
    domains = [
        Domain(
            **{name: arrays[f"domain{number}_{name}"] for name in _DOMAIN_ARRAYS},
            n_used=int(arrays["atoms"].shape[2]),
            trust=values["trust"][number],
            loss=values["losses"][number],
        )
        for number in range(values["n_sources"])
    ]
    return SourceModel(
        n_classes=values["n_classes"],
        centre=arrays["centre"],
        scale=arrays["scale"],
        limits=Limits(arrays["low"], arrays["high"]),
        directions=arrays["directions"] if values["has_view"] else None,
        unit=arrays["unit"],
        pooled=LinearClassifier(arrays["pooled_coefficients"], arrays["pooled_intercepts"]),
        own=LinearClassifier(arrays["own_coefficients"], arrays["own_intercepts"]),
        prior=ProportionPrior(arrays["prior_mean"], values["prior_strength"]),
        usual=arrays["usual"],
        told=bool(values["told"]),
        classes=ClassMoments(
            proportions=arrays["prior_mean"],
            centre=arrays["centre"],
            scale=arrays["scale"],
            **{name: arrays[f"classes_{name}"] for name in _CLASS_ARRAYS},
        ),
        slot_classes=arrays["slot_classes"],
        dictionary=dictionary,
        domains=domains,
        loss_curve=arrays["loss_curve"],
    )
