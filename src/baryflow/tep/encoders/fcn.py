"""The fully convolutional encoder of the paper: three convolutions over time, averaged to 128 features.

Convolutions 34 → 128 → 256 → 128 with kernels of 9, 5 and 3, each followed by instance normalisation and
ReLU; the average over time is the feature vector, on which a linear head predicts the fault. It is
trained on random cuts of a signal, which costs a third of whole signals and makes it see each one in
many ways; as it ends in an average it takes signals of any length.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.features.statistics import Scale
from baryflow.tep.encoders.graph import Graph, import_torch
from baryflow.tep.tables import FAULTS, VARIABLES

CHANNELS, KERNELS = (128, 256, 128), (9, 5, 3)
EPOCHS, BATCH, RATE, CUT = 10, 64, 1e-3, 200


def scaled(X: NDArray[np.float32], scale: Scale) -> NDArray[np.float32]:
    """Return signals in units of normal operation, large values damped, as (n, 34, n_times)."""
    z = np.arcsinh((X - scale.median.astype(np.float32)) / scale.spread.astype(np.float32))
    return np.ascontiguousarray(z.transpose(0, 2, 1))


def train(
    X: NDArray[np.float32],
    y: NDArray[np.intp],
    *,
    random_state: int = 0,
    epochs: int = EPOCHS,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """Train on scaled signals (n, 34, n_times); return the network, in evaluation mode."""
    torch = import_torch()
    generator = torch.Generator().manual_seed(random_state)
    with torch.random.fork_rng():
        torch.manual_seed(random_state)
        network = _network(torch)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=1e-2)
    n_steps = epochs * -(-len(X) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2 * RATE, total_steps=n_steps)
    signals, labels = torch.from_numpy(X), torch.from_numpy(y.astype(np.int64))
    cut = min(CUT, X.shape[2])
    network.train()
    for epoch in range(epochs):
        for rows in torch.randperm(len(X), generator=generator).split(BATCH):
            start = int(torch.randint(X.shape[2] - cut + 1, (1,), generator=generator))
            logits = network(signals[rows, :, start : start + cut])
            loss = torch.nn.functional.cross_entropy(logits, labels[rows], label_smoothing=0.1)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        if progress is not None:
            progress(epoch + 1, epochs)
    return network.eval()


def save(network: Any, path: str | os.PathLike[str], about: dict[str, Any]) -> None:
    """Write the network as ONNX: raw signals and the scale of their mode in, features and logits out."""
    graph = Graph()
    x = graph.node("Div", graph.node("Sub", "signals", "median"), "spread")
    x = graph.node("Transpose", graph.node("Asinh", x), perm=[0, 2, 1])
    weights = {name: value.detach().numpy() for name, value in network.state_dict().items()}
    for layer, kernel in enumerate(KERNELS):
        convolution, norm = f"{3 * layer}", f"{3 * layer + 1}"
        parts = [graph.constant(weights[f"{convolution}.{part}"]) for part in ("weight", "bias")]
        x = graph.node("Conv", x, *parts, kernel_shape=[kernel], pads=[kernel // 2] * 2)
        parts = [graph.constant(weights[f"{norm}.{part}"]) for part in ("weight", "bias")]
        x = graph.node("Relu", graph.node("InstanceNormalization", x, *parts, epsilon=1e-5))
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x), output="features")
    head = len(network) - 1
    graph.linear(x, weights[f"{head}.weight"], weights[f"{head}.bias"], output="logits")
    d = len(VARIABLES)
    graph.save(path, {"signals": ["n", "times", d], "median": [d], "spread": [d]}, about)


def _network(torch: Any) -> Any:
    nn = torch.nn
    layers: list[Any] = []
    width = len(VARIABLES)
    for channels, kernel in zip(CHANNELS, KERNELS, strict=True):
        layers += [
            nn.Conv1d(width, channels, kernel, padding=kernel // 2),
            nn.InstanceNorm1d(channels, affine=True),
            nn.ReLU(),
        ]
        width = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, len(FAULTS)))
