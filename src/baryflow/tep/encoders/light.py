"""The light encoder: statistics of a run, the discriminative ones, a small network, 128 features.

It trains in half a minute on one core. What a network would have to find in the raw signals is computed
by :mod:`baryflow.features`, and every statistic is centred on what is normal in its mode.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.features.selection import discriminative
from baryflow.tep.encoders.graph import Graph, import_torch
from baryflow.tep.tables import FAULTS
from baryflow.validation import Floats, Integers

WIDTH, FEATURES = 256, 128
EPOCHS, BATCH, RATE, WEIGHT_DECAY = 40, 128, 2e-3, 1e-2
DROP_INPUT, DROP, NOISE, SMOOTHING = 0.5, 0.3, 0.1, 0.1
_CLIP = 5.0


@dataclass(frozen=True)
class Trained:
    """The parts of a trained encoder."""

    columns: Integers  # the statistics that are used
    mean: Floats  # of their deviations over the sources
    std: Floats
    network: Any

    def prepared(self, deviations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the network's input."""
        chosen = (deviations[:, self.columns] - self.mean) / self.std
        return np.clip(chosen, -_CLIP, _CLIP).astype(np.float32)


def train(
    deviations: NDArray[np.float32],
    y: Integers,
    domain: Integers,
    *,
    random_state: int = 0,
    epochs: int = EPOCHS,
    progress: Callable[[int, int], None] | None = None,
) -> Trained:
    """Train on deviations from normal of labelled source runs."""
    torch = import_torch()
    mean, std = deviations.mean(axis=0, dtype=np.float64), deviations.std(axis=0, dtype=np.float64)
    std = np.where(std > 1e-6, std, 1.0)
    whole = Trained(np.arange(deviations.shape[1]), mean, std, None)
    columns = discriminative(whole.prepared(deviations), y, domain)
    parts = Trained(columns, mean[columns], std[columns], None)
    X, labels = torch.from_numpy(parts.prepared(deviations)), torch.from_numpy(y.astype(np.int64))
    with torch.random.fork_rng():
        torch.manual_seed(random_state)
        network = _network(torch, len(columns))
        n_steps = max(1, len(X) // BATCH)
        optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, RATE, total_steps=epochs * n_steps, pct_start=0.1
        )
        for epoch in range(epochs):
            for rows in torch.randperm(len(X))[: n_steps * BATCH].split(BATCH):
                noisy = X[rows] + NOISE * torch.randn(len(rows), X.shape[1])
                loss = torch.nn.functional.cross_entropy(
                    network(noisy), labels[rows], label_smoothing=SMOOTHING
                )
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
            if progress is not None:
                progress(epoch + 1, epochs)
    return Trained(parts.columns, parts.mean, parts.std, network.eval())


def save(trained: Trained, spread: Floats, path: str | os.PathLike[str], about: dict[str, Any]) -> None:
    """Write the network as ONNX: statistics and their centre in the mode in, features and logits out."""
    graph = Graph()
    columns = trained.columns
    float32 = np.float32
    x = graph.node("Gather", "statistics", graph.constant(columns.astype(np.int64)), axis=1)
    x = graph.node(
        "Div", graph.node("Sub", x, "centre"), graph.constant(spread[columns].astype(float32))
    )
    x = graph.node("Sub", graph.node("Asinh", x), graph.constant(trained.mean.astype(float32)))
    x = graph.node("Div", x, graph.constant(trained.std.astype(float32)))
    x = graph.node("Clip", x, graph.constant(float32(-_CLIP)), graph.constant(float32(_CLIP)))
    weights = {name: value.detach().numpy() for name, value in trained.network.state_dict().items()}
    x = graph.node("Relu", graph.linear(x, weights["1.weight"], weights["1.bias"]))
    x = graph.linear(x, weights["4.weight"], weights["4.bias"], output="features")
    graph.linear(x, weights["5.weight"], weights["5.bias"], output="logits")
    graph.save(path, {"statistics": ["n", len(spread)], "centre": [len(columns)]}, about)


def _network(torch: Any, n_columns: int) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Dropout(DROP_INPUT),
        nn.Linear(n_columns, WIDTH),
        nn.ReLU(),
        nn.Dropout(DROP),
        nn.Linear(WIDTH, FEATURES),
        nn.Linear(FEATURES, len(FAULTS)),
    )
