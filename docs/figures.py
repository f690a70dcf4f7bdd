"""Draw the pictures of guide/concepts.md: ``python docs/figures.py``, with the extra `plot`."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

import baryflow as bf
from baryflow.estimators._experts import describe_experts

HERE = Path(__file__).parent
PUMPS = HERE.parent / "examples" / "pumps"
#: Colours that colour-blind people can tell apart (Okabe and Ito), one marker for each class.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"
CLASSES = {"normal": (BLUE, "o"), "worn": (ORANGE, "^"), "leak": (GREEN, "s")}
SENSORS = "motor current (A)", "vibration (mm/s)"


def new(width=5.2, height=3.2):
    """Return a figure with one plot."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=110)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure, name):
    """Write a figure into the folder of images."""
    figure.savefig(HERE / "images" / f"concepts-{name}.png", metadata={"Software": None})


def pump(centre, stretch, n=60, seed=0):
    """Return rows and class numbers of a pump: the same three clouds, moved and stretched."""
    rng = np.random.default_rng(seed)
    clouds, sizes = [[0.0, 0.0], [0.6, 1.6], [2.0, 0.2]], [n, n // 2, n // 2]
    rows = [rng.normal(mean, 0.28, size=(size, 2)) for mean, size in zip(clouds, sizes, strict=True)]
    return np.asarray(centre) + np.concatenate(rows) * stretch, np.repeat(np.arange(3), sizes)


def ellipses(axes, mixture, **style):
    """Draw the components of a mixture: two standard deviations around each mean."""
    for mean, std in zip(mixture.means, mixture.stds, strict=True):
        axes.add_patch(Ellipse(mean, *(4 * std), **style))


def scatter(axes, X, y=None):
    """Draw rows by class, or without classes as crosses."""
    if y is None:
        axes.scatter(*X.T, s=9, color=GREY, marker="x", linewidths=0.8)
        return
    for number, (color, marker) in enumerate(CLASSES.values()):
        axes.scatter(*X[y == number].T, s=9, color=color, marker=marker, alpha=0.7, linewidths=0)


def name_sensors(axes):
    """Name the axes."""
    axes.set(xlabel=SENSORS[0], ylabel=SENSORS[1])


def draw_domains():
    """Draw three labelled pumps and one without labels."""
    figure, axes = new(5.6, 3.4)
    places = {"pump A": ((30, 2.0), 3.0), "pump B": ((42, 6.0), 2.2), "pump C": ((53, 2.5), 3.4)}
    for number, (name, (centre, stretch)) in enumerate(places.items()):
        X, y = pump(centre, [stretch, stretch / 2.2], seed=number)
        scatter(axes, X, y)
        axes.annotate(f"source: {name}", (X[:, 0].mean(), X[:, 1].max() + 0.25), ha="center")
    X, _ = pump((41.5, 1.4), [2.6, 1.2], seed=9)
    scatter(axes, X)
    axes.annotate("target: pump D, no labels", (X[:, 0].mean(), X[:, 1].max() + 0.25), ha="center")
    for name, (color, marker) in CLASSES.items():
        axes.scatter([], [], color=color, marker=marker, s=22, label=name)
    axes.legend(frameon=False, loc="upper left")
    axes.set_ylim(0, 10)
    name_sensors(axes)
    save(figure, "domains")


def draw_mixture():
    """Draw the rows of a pump and their mixture."""
    X, _ = pump((30, 2.0), [3.0, 1.4])
    mixture = bf.fit_mixture(X, 1, 6, random_state=0)
    figure, axes = new(4.8, 2.9)
    axes.scatter(*X.T, s=9, color=GREY, alpha=0.6, linewidths=0)
    ellipses(axes, mixture, facecolor="none", edgecolor=BLUE, linewidth=2)
    for mean, weight in zip(mixture.means, mixture.weights, strict=True):
        axes.annotate(f"{weight:.0%}", mean, ha="center", va="center", weight="bold", color="black")
    name_sensors(axes)
    save(figure, "mixture")


def two_mixtures(weights=(0.6, 0.4)):
    """Return two small labelled mixtures."""
    P = bf.Mixture(weights, [[0, 0], [2.2, 1.8]], [[0.45, 0.3], [0.3, 0.45]], [[1, 0], [0, 1]])
    Q = bf.Mixture([0.5, 0.5], [[7.5, 0.6], [10.4, 2.2]], [[0.3, 0.5], [0.55, 0.3]], [[1, 0], [0, 1]])
    return P, Q


def draw_distance():
    """Draw the transport plan between two mixtures."""
    P, Q = two_mixtures()
    figure, axes = new(5.6, 2.6)
    ellipses(axes, P, facecolor=BLUE, alpha=0.45)
    ellipses(axes, Q, facecolor=ORANGE, alpha=0.45)
    coupling = bf.transport_plan(P, Q).coupling
    for i, j in zip(*np.nonzero(coupling > 1e-9), strict=True):
        start, end = P.means[i], Q.means[j]
        axes.annotate(
            "", end, start, arrowprops={"arrowstyle": "->", "lw": 8 * coupling[i, j], "color": GREY}
        )
        axes.annotate(f"{coupling[i, j]:.0%}", 0.5 * (start + end) + [0, 0.14], ha="center", va="bottom")
    axes.annotate("domain P", (0.4, -0.95), ha="center")
    axes.annotate("domain Q", (9, -0.95), ha="center")
    axes.set(xlim=(-1.3, 12), ylim=(-1.2, 3.4), xticks=[], yticks=[])
    save(figure, "distance")


def draw_barycenter():
    """Draw two mixtures and their barycenter."""
    P, Q = two_mixtures((0.5, 0.5))
    figure, axes = new(5.6, 2.6)
    for share in (0, 0.5, 1):
        middle = bf.barycenter([P, Q], [1 - share, share], n_components=2, label_cost=10.0).mixture
        mixture = {0: P, 1: Q}.get(share, middle)
        end = share in (0, 1)
        for mean, std, labels in zip(mixture.means, mixture.stds, mixture.labels, strict=True):
            color = BLUE if labels[0] > 0.5 else ORANGE
            style = {"facecolor": color, "alpha": 0.5} if end else {"facecolor": "none", "lw": 1.6}
            axes.add_patch(Ellipse(mean, *(4 * std), edgecolor=color, **style))
        axes.annotate(
            {0: "P", 1: "Q"}.get(share, f"{1 - share:.0%} P\n{share:.0%} Q"),
            (mixture.weights @ mixture.means[:, 0], -1.05),
            ha="center", va="top",
        )  # fmt: skip
    axes.set(xlim=(-1.3, 12), ylim=(-1.9, 3.4), xticks=[], yticks=[])
    save(figure, "barycenter")


def read(name):
    """Return the measurements of a pump, and the whole table."""
    frame = pd.read_csv(PUMPS / name)
    return frame.drop(columns=["time", "shift", "condition"], errors="ignore"), frame


def follow_pump_e():
    """Fit pumps a to c and stream pump e; return what the pictures show."""
    sources = [read(f"pump_{letter}.csv") for letter in "abc"]
    X = pd.concat([rows for rows, _ in sources])
    y = pd.concat([frame["condition"] for _, frame in sources])
    domain = np.repeat(["pump_a", "pump_b", "pump_c"], [len(rows) for rows, _ in sources])
    model = bf.OnlineDaDiL(3, random_state=0).fit(X, y, sample_domain=domain)
    target, _ = read("pump_e.csv")
    truth = pd.read_csv(PUMPS / "pump_e_labels.csv")["condition"].to_numpy()
    fixed, flowing = model.predict(target), []
    for start in range(0, len(target), 32):
        batch = target[start : start + 32]
        flowing.extend(model.predict(batch))
        model.partial_fit(batch)
    return model, y, truth, fixed == truth, np.array(flowing) == truth


def draw_dictionary(model):
    """Draw the domains by their coordinates between the atoms."""
    corners = np.array([[0, 0], [1, 0], [0.5, 0.86]])
    figure, axes = new(4.4, 3.2)
    axes.fill(*corners.T, facecolor="#f2f2f2", edgecolor=GREY)
    for number, (corner, where) in enumerate(zip(corners, ("top", "top", "bottom"), strict=True), 1):
        offset = [0, 0.03 if where == "bottom" else -0.03]
        axes.annotate(f"atom {number}", corner + offset, ha="center", va=where, weight="bold")
    for name, coordinates in model.coordinates_.items():
        point = coordinates @ corners
        target = name == "target"
        axes.scatter(
            *point, s=70, color=ORANGE if target else BLUE, marker="*" if target else "o", zorder=3
        )
        axes.annotate(name, point + np.array([0.04, 0.01]), color=ORANGE if target else BLUE)
    axes.set(xlim=(-0.15, 1.25), ylim=(-0.14, 1.0))
    axes.set_axis_off()
    save(figure, "dictionary")


def draw_committee(model):
    """Draw the weights of the experts."""
    committee, described = model.committee_, describe_experts(model.knowledge_)
    shares = committee.weights / committee.weights.sum()
    plain = [not ("atoms" in text or "components" in text) for text in described.values()]
    figure, axes = new(7.6, 3.0)
    places = np.arange(len(shares))[::-1]
    axes.barh(places, 100 * shares, color=[BLUE if one else ORANGE for one in plain], height=0.7)
    axes.set_yticks(places, [described[name] for name in committee.experts], fontsize=8)
    axes.set_xlabel("weight (%)")
    axes.barh([0], [0], color=BLUE, label="plain classifiers")
    axes.barh([0], [0], color=ORANGE, label="from the dictionary")
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    save(figure, "committee")


def draw_label_shift(model, y, truth):
    """Draw class proportions in the sources and in the target."""
    names, wide = list(model.classes_), 0.27
    known = [100 * np.mean(y == name) for name in names]
    true = [100 * np.mean(truth == name) for name in names]
    places = np.arange(len(names))
    figure, axes = new(6.4, 2.9)
    axes.bar(places - wide, known, wide, color=GREY, label="in the sources")
    axes.bar(places, 100 * model.proportions_, wide, color=ORANGE, label="target, estimated")
    axes.bar(places + wide, true, wide, color=BLUE, hatch="//", edgecolor="white", label="target, true")
    axes.set_xticks(places, [name.replace(" ", "\n") for name in names])
    axes.set_ylabel("share of rows (%)")
    axes.legend(frameon=False)
    save(figure, "label-shift")


def draw_stream(fixed, flowing):
    """Draw the share of right predictions along the stream."""
    figure, axes = new(5.6, 2.9)
    rows = np.arange(1, len(fixed) + 1)
    for right, name, color, style in (
        (flowing, "adapting", ORANGE, "-"),
        (fixed, "not adapting", BLUE, "--"),
    ):
        share = 100 * np.cumsum(right) / rows
        axes.plot(rows[19:], share[19:], style, color=color, linewidth=2)
        axes.annotate(f"{name}: {share[-1]:.0f} %", (rows[-1] + 8, share[-1]), color=color, va="center")
    axes.set(xlim=(0, 1230), xlabel="rows of pump e", ylabel="right so far (%)")
    axes.set_xticks(range(0, 901, 150))
    save(figure, "stream")


if __name__ == "__main__":
    draw_domains()
    draw_mixture()
    draw_distance()
    draw_barycenter()
    model, y, truth, fixed, flowing = follow_pump_e()
    draw_dictionary(model)
    draw_committee(model)
    draw_label_shift(model, y, truth)
    draw_stream(fixed, flowing)
