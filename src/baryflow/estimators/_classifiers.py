"""Plain classifiers of the sources' rows, kept as arrays.

Each is fitted by scikit-learn and then kept as the few arrays that predict: nothing is pickled, a file
cannot run code, and small batches are faster than with the fitted estimator. To add one, write a
dataclass with ``proba`` and a function that fits it, add the dataclass to :data:`Classifier` and the
function to :data:`CLASSIFIERS`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from io import BytesIO
from typing import Any, Self
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.validation import Floats, Integers

#: Logit of a class that a classifier has never seen.
_NEVER = -50.0
#: Values of the kernel, or of duels between classes, at a time: bounds the memory of a prediction.
_CELLS = 2**20
#: Standardised values beyond this count as this: their squares have to fit into 32 bits.
_FAR = 1e15


def softmax(logits: Floats) -> Floats:
    """Return the softmax of every row."""
    table: Floats = logits - logits.max(axis=1, keepdims=True)
    np.exp(table, out=table)
    table /= table.sum(axis=1, keepdims=True)
    return table


@dataclass(frozen=True, eq=False)
class Linear:
    """Logistic regression."""

    coefficients: Floats  # (d, n_classes)
    intercepts: Floats  # (n_classes,)

    def proba(self, Z: Floats) -> Floats:
        """Return the probability of every class."""
        return softmax(Z @ self.coefficients + self.intercepts)


@dataclass(frozen=True, eq=False)
class KernelMachine:
    """A support vector machine with a Gaussian kernel; margins through a softmax.

    It computes with 32 bits: standardised rows need no more, and it takes half the time and memory.

    The vectors of a class stand together, `counts` of each. Row c of `duals` holds the coefficients of
    the vectors of every class against the c-th of the other classes, and `intercepts` those of all
    pairs of classes, in lexicographic order.
    """

    n_classes: int
    classes: Integers  # those it was trained on
    gamma: float
    vectors: NDArray[np.float32]  # (n_vectors, d)
    counts: Integers  # (len(classes),)
    duals: NDArray[np.float32]  # (len(classes) − 1, n_vectors)
    intercepts: NDArray[np.float32]  # (pairs of classes,)

    def margins(self, Z: Floats) -> Floats:
        """Return the one-against-rest margins, shape (n, len(classes)).

        A margin is the number of the other classes that a class wins against, plus a fraction between
        −1/3 and 1/3 that grows with how clearly it wins.
        """
        step = max(1, _CELLS // max(len(self.vectors), len(self.classes) ** 2))
        return np.concatenate([self._margins(Z[i : i + step]) for i in range(0, max(1, len(Z)), step)])

    @cached_property
    def _squares(self) -> NDArray[np.float32]:
        """Squared norms of the vectors, times gamma."""
        return np.asarray(np.float32(self.gamma) * np.vecdot(self.vectors, self.vectors))[:, None]

    @cached_property
    def _blocks(self) -> list[tuple[slice, NDArray[np.float32]]]:
        """The vectors of every class, and their coefficients against all classes.

        Coefficients are positive where they favour the class, and zero against itself.
        """
        ends, blocks = np.cumsum(self.counts), []
        for a, (end, count) in enumerate(zip(ends, self.counts, strict=True)):
            own = slice(int(end - count), int(end))
            duals = np.insert(self.duals[:, own], a, 0.0, axis=0)
            duals[:a] *= -1.0
            blocks.append((own, duals))
        return blocks

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Intercepts of all pairs of classes, and the value above which a duel is won.

        Of two classes that are equal, the one with the smaller number wins.
        """
        k = len(self.classes)
        first, second = np.triu_indices(k, 1)
        intercepts, least = np.zeros((2, k, k), dtype=np.float32)
        intercepts[first, second], intercepts[second, first] = self.intercepts, -self.intercepts
        least[first, second] = -np.finfo(np.float32).smallest_subnormal
        return intercepts, least

    def _margins(self, Z: Floats) -> Floats:
        # Rows side by side: what belongs to a vector, or to two classes, then stands together.
        columns = np.clip(Z, -_FAR, _FAR).astype(np.float32).T
        gamma = np.float32(self.gamma)
        kernel = self.vectors @ (np.float32(2.0) * gamma * columns)
        kernel -= self._squares
        kernel -= gamma * np.square(columns).sum(axis=0)
        np.exp(np.minimum(kernel, 0.0, out=kernel), out=kernel)
        # duels[a, b]: class a against class b, positive if class a wins.
        halves = np.stack([duals @ kernel[own] for own, duals in self._blocks])
        intercepts, least = self._pairs
        duels = halves - halves.swapaxes(0, 1)
        duels += intercepts[:, :, None]
        wins = (duels > least[:, :, None]).sum(axis=1)
        confidence = duels.sum(axis=1, dtype=np.float64)
        return np.asarray(wins + confidence / (3.0 * (np.abs(confidence) + 1.0))).T

    def proba(self, Z: Floats) -> Floats:
        """Return the softmax of the margins."""
        table = np.zeros((len(Z), self.n_classes))
        table[:, self.classes] = softmax(self.margins(Z))
        return table


#: Trees of a forest, and counts of classes in nodes that are held at a time.
_TREES, _COUNTS = 100, 2**25
#: Rows times trees that walk together: few enough to stay in the cache.
_WALKS = 2**17
#: A node of a tree: 16 bytes, which NumPy gathers at once.
_NODE = np.dtype([("child", np.int64), ("feature", np.int32), ("threshold", np.float32)])
#: Steps after which rows that have reached a leaf are set aside.
_STRIDE = 4


@dataclass(frozen=True, eq=False)
class Forest:
    """Extremely randomised trees, all in one set of arrays.

    A leaf leads to itself, so that all rows can walk through all trees together, `depth` steps long.
    """

    features: NDArray[np.int32]  # (n_nodes,)
    thresholds: Floats
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    leaves: NDArray[np.int32]  # row of `table` that a leaf stands for
    table: Floats  # (n_distinct_leaves, n_classes); first those of a single class
    roots: NDArray[np.int32]  # (n_trees,)
    depth: int

    def __post_init__(self) -> None:
        nodes = np.concatenate([self.left, self.right, self.roots])
        if nodes.min() < 0 or nodes.max() >= len(self.features):
            raise ValueError("a tree leads to a node that does not exist")
        if self.leaves.min() < 0 or self.leaves.max() >= len(self.table):
            raise ValueError("a tree leads to a leaf that does not exist")

    @cached_property
    def _nodes(self) -> tuple[NDArray[np.complex128], Integers]:
        """The nodes packed for walking, and their leaves.

        Roots come first, then the children of every node side by side: right, left. The trees compare
        values of 32 bits with thresholds of 64, so a threshold can be rounded down to 32.
        """
        is_leaf = self.left == np.arange(len(self.left))
        inner = np.flatnonzero(~is_leaf)
        pairs = len(self.roots) + 2 * np.arange(len(inner))
        place = np.zeros(len(self.left), dtype=np.int64)
        place[self.roots] = np.arange(len(self.roots))
        place[self.right[inner]], place[self.left[inner]] = pairs, pairs + 1
        child = place.copy()
        child[inner] = pairs
        with np.errstate(over="ignore"):
            rounded = self.thresholds.astype(np.float32)
        rounded = np.where(
            rounded > self.thresholds, np.nextafter(rounded, np.float32(-np.inf)), rounded
        )
        nodes = np.zeros(len(place), dtype=_NODE)
        nodes["child"][place], nodes["feature"][place] = child, self.features
        nodes["threshold"][place] = np.where(is_leaf, np.float32(np.nan), rounded)
        leaves = np.zeros(len(place), dtype=np.intp)
        leaves[place] = self.leaves
        return nodes.view(np.complex128), leaves

    def proba(self, Z: Floats) -> Floats:
        """Return the mean of the trees' class proportions."""
        step = max(1, _WALKS // max(len(self.roots), len(self.table)))
        return np.concatenate([self._proba(Z[i : i + step]) for i in range(0, max(1, len(Z)), step)])

    def _proba(self, Z: Floats) -> Floats:
        (n, d), n_trees = Z.shape, len(self.roots)
        nodes, leaves = self._nodes
        cells = Z.astype(np.float32).ravel()  # as the trees were grown
        at, rows = np.tile(np.arange(n_trees), n), np.repeat(np.arange(0, n * d, d), n_trees)
        ends: list[tuple[Integers, Integers]] = []
        for number in range(1, self.depth + 1):
            node = nodes.take(at, mode="clip").view(_NODE)
            goes_left = cells.take(rows + node["feature"], mode="clip") <= node["threshold"]
            below = node["child"] + goes_left
            if number % _STRIDE == 0:
                moved = below != at
                still, walking = np.flatnonzero(~moved), np.flatnonzero(moved)
                ends.append((at.take(still), rows.take(still)))
                below, rows = below.take(walking), rows.take(walking)
            at = below
            if not len(at):
                break
        ends.append((at, rows))
        at, rows = (np.concatenate(part) for part in zip(*ends, strict=True))
        n_leaves, n_classes = self.table.shape
        reached = rows // d * n_leaves + leaves.take(at)
        counts = np.bincount(reached, minlength=n * n_leaves).reshape(n, n_leaves)
        # Leaves of a single class need no table.
        proportions = counts if n_leaves == n_classes else counts @ self.table
        return np.asarray(proportions / n_trees)


@dataclass(frozen=True, eq=False)
class ScikitClassifier:
    """A user's own scikit-learn classifier, kept as skops writes it: no pickle, trusted types only."""

    n_classes: int
    classes: Integers  # those it was trained on
    archive: NDArray[np.uint8]  # empty until it is saved
    estimator: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.archive):
            object.__setattr__(self, "estimator", _unpack(self.archive.tobytes()))

    @classmethod
    def of(cls, estimator: Any, classes: Integers, n_classes: int) -> Self:
        """Take a fitted estimator."""
        found = cls(n_classes, classes, np.zeros(0, dtype=np.uint8))
        object.__setattr__(found, "estimator", estimator)
        return found

    def packed(self) -> Self:
        """Return it with its archive, as it can be saved."""
        if len(self.archive):
            return self
        data, name = _skops().dumps(self.estimator), type(self.estimator).__name__
        instead = f"use another classifier, or one of {', '.join(map(repr, CLASSIFIERS))}"
        unknown = set(_skops().get_untrusted_types(data=data)) - {*_trusted(self.estimator)}
        if unknown:
            raise InvalidInputError(
                f"a model with the classifier {name} cannot be saved: skops does not trust "
                f"{', '.join(sorted(unknown))}; {instead}"
            )
        if fault := _find_fault(self.estimator):
            raise InvalidInputError(
                f"a model with the classifier {name} cannot be saved: {fault}; {instead}"
            )
        # Kept: skops writes other bytes every time, and the same model is the same bytes.
        object.__setattr__(self, "archive", np.frombuffer(data, dtype=np.uint8))
        return self

    def proba(self, Z: Floats) -> Floats:
        """Return the estimator's probabilities, or its decision function through a softmax."""
        table = np.zeros((len(Z), self.n_classes))
        if hasattr(self.estimator, "predict_proba"):
            table[:, self.classes] = self.estimator.predict_proba(Z)
            return table
        margins = self.estimator.decision_function(Z)
        if margins.ndim == 1:
            margins = np.stack([np.zeros(len(Z)), margins], axis=1)
        table[:, self.classes] = softmax(margins)
        return table


#: Trees of histogram gradient boosting. Reading one executes nothing: skops sets its attributes, three
#: arrays. Predicting follows numbers of nodes and columns without a check: _find_fault checks them.
_BOOSTED_TREE = "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"


def _trusted(estimator: Any) -> list[str]:
    """Return the types that are trusted for this estimator beside those that skops trusts."""
    return [_BOOSTED_TREE] if type(estimator) is HistGradientBoostingClassifier else []


def _unpack(data: bytes) -> Any:
    """Return the estimator in an archive of skops.

    Members must be stored, and be no larger together than the archive: a few compressed bytes may unpack
    to gigabytes.
    """
    skops = _skops()
    try:
        with ZipFile(BytesIO(data)) as archive:
            members = archive.infolist()
        if any(one.compress_type != ZIP_STORED for one in members):
            raise FileFormatError("the classifier in it is compressed, which save never does")
        if sum(one.file_size for one in members) > len(data):
            raise FileFormatError("the classifier in it is larger than its archive")
        unknown = set(skops.get_untrusted_types(data=data))
        estimator = skops.loads(data, trusted=[_BOOSTED_TREE])
        if unknown - {*_trusted(estimator)}:
            raise FileFormatError(f"the classifier in it has {', '.join(sorted(unknown))}")
        if fault := _find_fault(estimator):
            raise FileFormatError(f"the classifier in it is damaged: {fault}")
    except (BadZipFile, NotImplementedError, RuntimeError, EOFError, ImportError) as error:
        raise FileFormatError(f"the classifier in it is damaged: {error}") from error
    return estimator


def _find_fault(estimator: Any) -> str:
    """Return what is wrong with boosted trees; an empty string if nothing is."""
    if type(estimator) is not HistGradientBoostingClassifier:
        return ""
    parts, width = vars(estimator), estimator.n_features_in_
    if parts["_preprocessor"] is not None or parts.get("_in_fit") or type(width) is not int:
        return "it has categorical columns"
    for nodes in (tree.nodes for trees in parts["_predictors"] for tree in trees):
        if nodes.dtype != PREDICTOR_RECORD_DTYPE or nodes.ndim != 1 or not len(nodes):
            return "a tree has no nodes"
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        below = np.stack([nodes["left"][inner], nodes["right"][inner]])
        columns = nodes["feature_idx"][inner]
        outside = (below <= inner).any() or (below >= len(nodes)).any()
        if outside or (columns < 0).any() or (columns >= width).any() or nodes["is_categorical"].any():
            return "a tree refers to nodes, columns or categories that it does not have"
    return ""


def _skops() -> Any:
    try:
        import skops.io
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a classifier of your own is saved and loaded with skops: pip install 'baryflow[skops]'"
        ) from error
    return skops.io


#: All that can predict; the codec reads no other types.
Classifier = Linear | KernelMachine | Forest | ScikitClassifier


def fit_linear(Z: Floats, codes: Integers, n_classes: int, weights: Floats | None, _: int) -> Classifier:
    """Fit a logistic regression."""
    coefficients, intercepts = np.zeros((Z.shape[1], n_classes)), np.full(n_classes, _NEVER)
    present = np.unique(codes)
    if len(present) == 1:
        intercepts[present] = 0.0
        return Linear(coefficients, intercepts)
    model = LogisticRegression(C=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # near the minimum is good enough
        model.fit(Z, codes, sample_weight=weights)
    if len(present) == 2:  # scikit-learn keeps one row of coefficients for two classes
        coefficients[:, present[1]] = model.coef_[0]
        intercepts[present] = [0.0, model.intercept_[0]]
    else:
        coefficients[:, present], intercepts[present] = model.coef_.T, model.intercept_
    return Linear(coefficients, intercepts)


def fit_kernel(Z: Floats, codes: Integers, n_classes: int, weights: Floats | None, _: int) -> Classifier:
    """Fit a support vector machine; the width of its kernel follows the spread of the rows."""
    present = np.unique(codes)
    if len(present) == 1:
        return fit_linear(Z, codes, n_classes, weights, _)
    gamma = 1.0 / max(Z.shape[1] * float(Z.var()), np.finfo(np.float64).tiny)
    model = SVC(C=3.0, gamma=gamma).fit(Z, codes, sample_weight=weights)
    # For two classes scikit-learn turns the sign: a positive value is the second class.
    sign = -1.0 if len(present) == 2 else 1.0
    return KernelMachine(
        n_classes=n_classes,
        classes=present.astype(np.intp),
        gamma=gamma,
        vectors=np.ascontiguousarray(model.support_vectors_, dtype=np.float32),
        counts=model.n_support_.astype(np.intp),
        duals=np.asarray(sign * model.dual_coef_, dtype=np.float32),
        intercepts=np.asarray(sign * model.intercept_, dtype=np.float32),
    )


def fit_trees(
    Z: Floats, codes: Integers, n_classes: int, weights: Floats | None, seed: int
) -> Classifier:
    """Grow extremely randomised trees on bootstrap samples."""
    model = ExtraTreesClassifier(0, bootstrap=True, warm_start=True, random_state=seed)
    fields: dict[str, list[Any]] = {
        name: [] for name in ("features", "thresholds", "left", "right", "leaves")
    }
    mixed: list[tuple[Integers, Floats]] = []  # nodes and class proportions of leaves of several classes
    roots, depth, n_nodes = [], 0, 0
    present = np.unique(codes)
    # Every node has a count of every class until it is packed; a tree has up to two nodes for each row.
    together = max(1, _COUNTS // (2 * len(Z) * len(present)))
    for number in range(_TREES):
        if number % together == 0:
            model.set_params(n_estimators=min(number + together, _TREES))
            model.fit(Z, codes, sample_weight=weights)
        tree = model.estimators_[number].tree_
        is_leaf, own = tree.children_left < 0, n_nodes + np.arange(tree.node_count)
        fields["features"].append(np.where(is_leaf, 0, tree.feature))
        fields["thresholds"].append(np.where(is_leaf, np.inf, tree.threshold))
        fields["left"].append(np.where(is_leaf, own, n_nodes + tree.children_left))
        fields["right"].append(np.where(is_leaf, own, n_nodes + tree.children_right))
        shares = tree.value[:, 0, :] / np.maximum(tree.value[:, 0, :].sum(axis=1, keepdims=True), 1e-300)
        # A node that is no leaf predicts nothing: any class does.
        fields["leaves"].append(present[np.where(is_leaf, shares.argmax(axis=1), 0)])
        several = is_leaf & (shares.max(axis=1) < 1.0)
        mixed.append((own[several], shares[several]))
        roots.append(n_nodes)
        depth, n_nodes = max(depth, tree.max_depth), n_nodes + tree.node_count
        del model.estimators_[number].tree_
    nodes, rows = (np.concatenate(part) for part in zip(*mixed, strict=True))
    others, which = np.unique(rows, axis=0, return_inverse=True)
    table = np.zeros((n_classes + len(others), n_classes))
    table[:n_classes] = np.eye(n_classes)
    table[n_classes:, present] = others
    leaves = np.concatenate(fields["leaves"]).astype(np.int32)
    leaves[nodes] = n_classes + which.reshape(-1)
    return Forest(
        features=np.concatenate(fields["features"]).astype(np.int32),
        thresholds=np.concatenate(fields["thresholds"]).astype(np.float64),
        left=np.concatenate(fields["left"]).astype(np.int32),
        right=np.concatenate(fields["right"]).astype(np.int32),
        leaves=leaves,
        table=table,
        roots=np.array(roots, dtype=np.int32),
        depth=depth,
    )


Fit = Callable[[Floats, Integers, int, "Floats | None", int], Classifier]
#: The classifiers that are fitted by default, by name. Each is called as
#: ``fit(Z, codes, n_classes, weights, seed)`` on standardised rows.
CLASSIFIERS: dict[str, Fit] = {"linear": fit_linear, "kernel": fit_kernel, "trees": fit_trees}


def fit_scikit(
    estimator: Any, Z: Floats, codes: Integers, n_classes: int, weights: Floats | None, _: int
) -> Classifier:
    """Fit a copy of a user's classifier."""
    model = clone(estimator)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(Z, codes) if weights is None else model.fit(Z, codes, sample_weight=weights)
    for one in caught:
        text: Any = one.message
        if issubclass(one.category, ConvergenceWarning):  # the solver's advice is about its own input
            name = type(estimator).__name__
            text = f"the classifier {name} did not converge: allow it more iterations"
        warnings.warn_explicit(text, one.category, one.filename, one.lineno)
    return ScikitClassifier.of(model, np.asarray(model.classes_, dtype=np.intp), n_classes)


def choose_classifiers(classifier: Any) -> dict[str, Fit]:
    """Return what the parameter `classifier` of an estimator stands for.

    None means all of :data:`CLASSIFIERS`, a name one of them; anything else must be a scikit-learn
    classifier. A list holds several of these.
    """
    if classifier is None:
        return dict(CLASSIFIERS)
    chosen: dict[str, Fit] = {}
    for one in classifier if isinstance(classifier, (list, tuple)) else [classifier]:
        if isinstance(one, str):
            if one not in CLASSIFIERS:
                raise InvalidInputError(
                    f"classifier must be one of {', '.join(map(repr, CLASSIFIERS))}, a scikit-learn "
                    f"classifier or a list of these; got {one!r}"
                )
            chosen[one] = CLASSIFIERS[one]
            continue
        able = hasattr(one, "predict_proba") or hasattr(one, "decision_function")
        able = able and hasattr(one, "__sklearn_tags__") and not isinstance(one, type)
        if not able or not is_classifier(one):
            raise InvalidInputError(
                "classifier must be a scikit-learn classifier with predict_proba or decision_function, "
                f"got {one!r}"
            )
        name = type(one).__name__
        same = sum(known.split(" ")[0] == name for known in chosen)
        chosen[f"{name} {same + 1}" if same else name] = partial(fit_scikit, one)
    if not chosen:
        raise InvalidInputError("classifier must not be an empty list")
    return chosen
