"""``baryflow inspect``: describe the contents of a ``.bary`` file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from baryflow import container
from baryflow.cli.console import echo, file_size, report_errors
from baryflow.cli.options import Command, expect_bary
from baryflow.datasets import tennessee_eastman
from baryflow.features import OnnxEncoder
from baryflow.persistence import open_content
from baryflow.tep import signals
from baryflow.tep.plant import settling
from baryflow.tep.tables import VARIABLES
from baryflow.validation import count_of

#: Names on the left, values on the right.
Lines = list[tuple[str, str]]

KINDS = {
    "mixture": "a Gaussian mixture",
    "online_mixture": "a Gaussian mixture of a stream (OnlineGaussianMixture)",
    "mixture_classifier": "a classifier with a mixture for each class (MixtureClassifier)",
    "dadil": "a classifier adapted to a fixed target (DaDiL)",
    "online_dadil": "a classifier that follows a stream (OnlineDaDiL)",
    "signal_features": "statistics of windows of signals (SignalFeatures)",
    "onnx_encoder": "a network that makes features of windows of signals (OnnxEncoder)",
    "signal_model": "a classifier that follows a stream of raw signals (SignalModel)",
    tennessee_eastman.KIND: "encoded signals of the Tennessee Eastman plant",
    signals.KIND: "simulated signals of the Tennessee Eastman plant",
    settling.KIND: "the Tennessee Eastman plant at rest in its modes",
}


@click.command(cls=Command, example="baryflow inspect pumps.bary", docs="docs/reference/file-formats.md")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def inspect(file: Path) -> None:
    """Describe the contents of a .bary FILE, and which release wrote it and when."""
    with report_errors(), expect_bary(file):
        text = describe(file)
    echo(text)


def describe(path: Path) -> str:
    """Return a line for each property of a file."""
    content = container.read(path)
    lines = _DESCRIBERS.get(content.kind, _describe_model)(path, content)
    lines = [
        ("holds", KINDS.get(content.kind, content.kind)),
        ("kind", content.kind),
        ("release", f"baryflow {content.version}"),
        ("date", content.date.replace("T", " ") or "unknown"),
        *lines,
        ("size", file_size(path)),
    ]
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(f"{name:<{width}}{value}" for name, value in lines)


def _describe_model(path: Path, content: container.Content) -> Lines:
    """Describe a mixture or an estimator."""
    model = open_content(content)
    if content.kind == "mixture":
        return _mixture_lines(model, None, None)
    columns = getattr(model, "feature_names_in_", None)
    if content.kind in ("online_mixture", "mixture_classifier"):
        lines = _mixture_lines(model.mixture_, columns, getattr(model, "classes_", None))
        if content.kind == "online_mixture":
            lines.append(("rows seen", f"{model.n_samples_seen_:,}"))
        return lines
    return _adapter_lines(path, model, [("columns", _listed(columns, model.n_features_in_))])


def _adapter_lines(path: Path, model: Any, columns: Lines, rows: str = "rows") -> Lines:
    """Return what distinguishes one model from another; 'baryflow report' has the rest."""
    lines = [
        ("classes", _listed(model.classes_)),
        *columns,
        ("sources", _listed(model.sources_)),
        (f"{rows} seen", f"{model.n_samples_seen_:,} of the target"),
        ("decision", "adapt" if model.committee_.adapts else "do not adapt"),
    ]
    if getattr(model, "keep_sources", False):
        lines.append(("inside", "the labelled rows of the sources, for 'baryflow add-source'"))
    return [*lines, ("more", f"'baryflow report {path}' prints what was learned and decided")]


def _mixture_lines(mixture: Any, columns: Any, classes: Any) -> Lines:
    labelled = "unlabelled" if mixture.labels is None else _listed(classes, mixture.n_classes)
    return [
        ("components", str(mixture.n_components)),
        ("classes", labelled),
        ("columns", _listed(columns, mixture.n_features)),
        ("mass", f"{mixture.mass:,g} {'row' if mixture.mass == 1 else 'rows'}"),
    ]


def _describe_windows(_: Path, content: container.Content) -> Lines:
    model = open_content(content)
    return [
        ("channels", _listed(model.channels_)),
        ("windows", f"of {count_of(model.length_, 'row')}"),
        ("columns", _listed(model.get_feature_names_out())),
    ]


def _describe_signal_model(path: Path, content: container.Content) -> Lines:
    pair = open_content(content)
    made = "a network" if isinstance(pair.features, OnnxEncoder) else "statistics"
    columns = [
        ("channels", _listed(pair.columns)),
        ("windows", f"of {count_of(pair.length, 'row')}, one every {pair.step:,}"),
        ("features", f"{pair.model.n_features_in_:,} of each window, by {made}"),
    ]
    return _adapter_lines(path, pair.model, columns, "windows")


def _describe_features(path: Path, _: container.Content) -> Lines:
    held = tennessee_eastman.read_features(path)
    about = ", ".join(f"{name} {value}" for name, value in held.about.items() if _is_short(value))
    return [
        ("target", f"mode {held.target}, unseen by the encoder"),
        ("encoder", about or "unknown"),
        ("classes", _listed(sorted(set(held.y.tolist())))),
        ("columns", _listed(None, held.X.shape[1])),
        ("modes", _listed(sorted(set(held.domain.tolist())))),
        ("runs", f"{len(held):,}"),
    ]


def _describe_signals(path: Path, content: container.Content) -> Lines:
    X, cases = signals.read_shard(path)
    return [
        ("classes", _listed(sorted({fault for fault, _ in cases}))),
        ("columns", _listed([f"{one.tag} {one.name}" for one in VARIABLES])),
        ("mode", str(content.values.get("mode", "unknown"))),
        ("runs", f"{len(X):,}, of {X.shape[1]:,} points in time each"),
    ]


def _describe_settled(_: Path, content: container.Content) -> Lines:
    # Each array is named after a part of the plant's state and its mode.
    modes = {int(match[0]) for name in content.arrays if (match := re.search(r"\d+$", name))}
    return [("modes", _listed(sorted(modes)))]


_DESCRIBERS: dict[str, Callable[[Path, container.Content], Lines]] = {
    "signal_features": _describe_windows,
    "onnx_encoder": _describe_windows,
    "signal_model": _describe_signal_model,
    tennessee_eastman.KIND: _describe_features,
    signals.KIND: _describe_signals,
    settling.KIND: _describe_settled,
}


def _listed(names: Sequence[Any] | None, n: int = 0) -> str:
    """Return the number of names, and all of them."""
    if names is None:
        return f"{n}, without names"
    return f"{len(names)}: {', '.join(map(str, names))}"


def _is_short(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and len(str(value)) < 40
