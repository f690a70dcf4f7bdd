"""Leave one domain out, let it flow past, and keep score."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing as take_rows
from sklearn.utils.validation import has_fit_parameter

from baryflow.estimators._domains import check_classes, expect_proportions
from baryflow.estimators._input import InOrder
from baryflow.estimators._sensors import describe_new_faults
from baryflow.estimators._state import find_faults
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.metrics import (
    ORDERS,
    Metric,
    arrange,
    as_metric,
    balanced_accuracy,
    follow,
    last_step,
    learns_from_rows,
)
from baryflow.model_selection.evaluation import DomainScore, Evaluation, LabelScore, PlainScore
from baryflow.model_selection.rivals import Rivals
from baryflow.model_selection.settings import (
    MOST_ROWS,
    Knowledge,
    SettingScore,
    draw_proportions,
    play,
)
from baryflow.validation import Floats, as_choice, as_count, as_matrix, count_of

#: How often rows to label are drawn.
_DRAWS = 3
#: A warning is issued if fewer rows of a target flow.
_FEW = 30


def evaluate(
    model: Any,
    X: Any,
    y: Any,
    sample_domain: Any,
    *,
    order: str = "as_is",
    batch_size: int = 32,
    targets: Any = None,
    scoring: str | Metric = "accuracy",
    classifier: Any = None,
    n_seeds: int = 1,
    labels_per_class: int = 0,
    class_proportions: Mapping[Any, float] | None = None,
    class_prior: Mapping[Any, float] | None = None,
    baseline_rows: int = 0,
    baseline_class: Any = None,
    labels: int = 0,
    random_state: int = 0,
    n_jobs: int | None = None,
    verbose: Any = 0,
    feature_names: Sequence[str] | None = None,
) -> Evaluation:
    """Leave one labelled domain out at a time, let it flow past as a stream, and keep score.

    Use it before there is a target, to see whether adapting would help on your data. A copy of the model
    learns the other domains. Then each batch of the domain left out is predicted *before* the model
    learns from it, without its labels; at the end all its rows are predicted again. Beside it stand, on
    the same rows, classifiers that cost next to nothing: the pooled one, which does not adapt, and one
    of rows standardised domain by domain; both as logistic regression, and others for comparison.

    An :class:`~baryflow.OnlineDaDiL` is also tried with other settings, on at most 1,000 rows of each
    target: adapting, only standardising and not adapting, and with what you say you may know of a
    target: `class_prior`, `baseline_rows`, `labels`. Nothing is fitted again for that.

    Parameters
    ----------
    model : classifier
        :class:`~baryflow.OnlineDaDiL`, or whatever has a ``partial_fit`` that takes rows without
        labels. A model without one whose ``fit`` takes ``sample_domain``, such as
        :class:`~baryflow.DaDiL`, gets the target's rows there, marked by a negative number and with
        labels that mean nothing. Any other classifier is fitted and then only predicts. It may be the
        last step of a pipeline.
    X : array or frame of shape (n_samples, n_features)
        NaN marks a missing value.
    y : array of shape (n_samples,)
    sample_domain : array of shape (n_samples,)
        The domain of each row, a name or a positive number.
    order : {"as_is", "shuffled", "runs", "by_class"}
        In which order the rows of a target flow: as they stand in X, shuffled, in runs of 20 rows of
        one class, or one class after the other.
    batch_size : int, default=32
    targets : list of domains, optional
        Those to leave out; without it each in turn.
    scoring : {"accuracy", "balanced_accuracy"} or callable
        A callable takes labels and predictions and returns a number; more is better.
    classifier : classifier, optional
        The plain classifier to compare with; without it logistic regression, a support vector machine
        and extra trees.
    n_seeds : int, default=1
        Streams of each target, each in another order and with other rows for `class_proportions`; of no
        use with ``order="as_is"`` alone, which is one.
    labels_per_class : int, default=0
        Also find out what labels would buy: after the stream, this many times the number of classes of
        the target's rows get their label, drawn at random, or chosen by ``query`` in as many rounds. The
        other rows are predicted again; mean of three draws. For :class:`~baryflow.OnlineDaDiL` only.
    class_proportions : mapping of class → share, optional
        Let targets flow with these class proportions, as in operation: ``{"normal": 0.85}``. Rows are
        drawn without repetition, so streams get shorter; other classes keep their proportions to each
        other. The sources stay as they are.
    class_prior : mapping of class → share, optional
        What the model could be given as its class prior; without it `class_proportions`.
    baseline_rows : int, default=0
        As many rows of `baseline_class` could be known before the stream: the first of the target. They
        are not part of the stream.
    baseline_class : class, optional
        Without it the one with the largest share in `class_prior`.
    labels : int, default=0
        As many labels in all could be given, of the row that the model asks for after each batch.
    random_state : int, default=0
        Of the first order; the others count on from it. The model has its own.
    n_jobs : int, optional
        Targets at a time, as in joblib.
    verbose : int or callable, default=0
        Print how many targets are done, as joblib does; or a callable that gets the number of targets
        done, the number of all, and the name of the last one.
    feature_names : sequence of str, optional
        Names of the columns of an array, for what is said of them; a frame has its own.

    Returns
    -------
    Evaluation
        With ``table()``, ``summary()``, ``to_frame()`` and ``plot()``; with `labels_per_class` also
        ``label_table()``; of an :class:`~baryflow.OnlineDaDiL` also ``settings_table()`` and
        ``recommend()``.

    Raises
    ------
    InvalidInputError
        If there are fewer than two domains, a target is not one of them, shapes do not match, the order
        or the scoring is not known, or there is one class only, also without one of the targets.

    Examples
    --------
    >>> from baryflow import OnlineDaDiL
    >>> from baryflow.datasets import make_domains
    >>> from baryflow.model_selection import evaluate
    >>> p = make_domains(n_sources=3, n_classes=3, n_per_class=30, shift=1.0, random_state=0)
    >>> model = OnlineDaDiL(classifier="linear", random_state=0)
    >>> found = evaluate(model, p.X, p.y, p.domain, order="shuffled")
    >>> [score.domain for score in found.scores]
    [1, 2, 3]
    >>> found.summary().n_rows
    270
    """
    as_choice(order, "order", ORDERS)
    metric = as_metric(scoring)
    batch_size, n_seeds = as_count(batch_size, "batch_size"), as_count(n_seeds, "n_seeds")
    random_state = as_count(random_state, "random_state", minimum=0)
    as_count(labels_per_class, "labels_per_class", minimum=0)
    for_online_dadil = {
        "labels_per_class": labels_per_class,
        "class_prior": class_prior,
        "baseline_rows": baseline_rows,
        "labels": labels,
    }
    for name, value in for_online_dadil.items():
        if value and not isinstance(model, OnlineDaDiL):
            raise InvalidInputError(f"{name} needs an OnlineDaDiL, got a {type(model).__name__}")
    rows = as_matrix(X, "X", allow_nan=True)
    y, domain = _column(y, "y", len(rows)), _column(sample_domain, "sample_domain", len(rows))
    check_classes(np.unique(y))
    knowledge = _read_knowledge(y, class_proportions, class_prior, baseline_rows, baseline_class, labels)
    trial = _Trial(
        model,
        X,
        rows,
        y,
        domain,
        order,
        batch_size,
        metric,
        1 if order == "as_is" and class_proportions is None else n_seeds,
        labels_per_class,
        random_state,
        classifier,
        None if feature_names is None else np.array(feature_names, dtype=object),
        class_proportions,
        knowledge,
    )
    found = for_each(trial.leave_out, trial.targets(targets), n_jobs=n_jobs, verbose=verbose)
    name = scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "score")
    return Evaluation(
        tuple(score for scores in found for score in scores),
        name,
        order,
        batch_size,
        class_proportions,
        knowledge.class_prior,
        knowledge.baseline_class,
    )


def _read_knowledge(
    y: Any,
    class_proportions: Mapping[Any, float] | None,
    class_prior: Mapping[Any, float] | None,
    baseline_rows: int,
    baseline_class: Any,
    labels: int,
) -> Knowledge:
    """Check what a user may know of a target."""
    classes = np.unique(y)
    prior = class_proportions if class_prior is None else class_prior
    expect_proportions(class_proportions, classes, "class_proportions")
    expect_proportions(prior, classes)
    as_count(baseline_rows, "baseline_rows", minimum=0)
    as_count(labels, "labels", minimum=0)
    if baseline_rows and baseline_class is None:
        if prior is None:
            raise InvalidInputError(
                "baseline_rows needs baseline_class, the class of rows that are known, such as 'normal'"
            )
        baseline_class = max(prior, key=lambda name: prior[name])
    if baseline_rows and baseline_class not in classes.tolist():
        raise InvalidInputError(
            f"baseline_class is {baseline_class!r}, which is not a class; classes are {classes.tolist()}"
        )
    return Knowledge(prior, baseline_rows, baseline_class, labels)


def for_each(
    work: Callable[[Any], Any], domains: list[Any], *, n_jobs: int | None, verbose: Any = 0
) -> list[Any]:
    """Do some work for each domain, several at a time; return what it gave, in order.

    Warnings are collected from all processes and issued here, each once, with the domains that have it.
    """
    progress = verbose if callable(verbose) else None
    parallel = Parallel(
        n_jobs=n_jobs, verbose=0 if progress else verbose, return_as="generator_unordered"
    )
    found: dict[int, Any] = {}
    heard: dict[tuple[type[Warning], str], set[int]] = {}
    for number, result, warned in parallel(
        delayed(_collect_warnings)(work, number, domain) for number, domain in enumerate(domains)
    ):
        found[number] = result
        for one in warned:
            heard.setdefault(one, set()).add(number)
        if progress is not None:
            progress(len(found), len(domains), str(domains[number]))
    for (category, words), numbers in heard.items():
        names = ", ".join(str(domains[number]) for number in sorted(numbers))
        text = words if len(numbers) == len(domains) else f"{names}: {words}"
        warnings.warn(text, category, stacklevel=3)
    return [found[number] for number in range(len(domains))]


def _collect_warnings(
    work: Callable[[Any], Any], number: int, domain: Any
) -> tuple[int, Any, list[tuple[type[Warning], str]]]:
    with warnings.catch_warnings(record=True) as heard:
        result = work(domain)
    return number, result, [(one.category, str(one.message)) for one in heard]


def _column(values: Any, name: str, n: int) -> Any:
    """Return one value for each row, none of them missing."""
    column = np.asarray(values)
    if column.shape != (n,):
        raise InvalidInputError(f"expected {name} to have shape (n_samples={n},), got {column.shape}")
    missing = np.array(
        [value is None or str(value) in {"nan", "NaT", "<NA>"} for value in column.tolist()]
    )
    if missing.any():
        raise InvalidInputError(
            f"{name} holds no value at position {int(missing.argmax())} ({int(missing.sum())} such "
            f"entries): fill it in, or drop the row"
        )
    return column


@dataclass(frozen=True, eq=False)
class _Trial:
    """A model, labelled rows of several domains, and how they flow past it."""

    model: Any
    X: Any  # as they came, for the model
    rows: Floats  # as an array, for its rivals
    y: Any
    domain: Any
    order: str
    batch_size: int
    metric: Metric
    n_seeds: int
    labels_per_class: int
    random_state: int
    classifier: Any
    names: Any
    class_proportions: Mapping[Any, float] | None
    knowledge: Knowledge

    def targets(self, wanted: Any) -> list[Any]:
        """Return the domains to leave out, having checked that the others can be learned."""
        domains = np.unique(self.domain).tolist()
        if len(domains) < 2:
            raise InvalidInputError(
                f"sample_domain must name two domains or more, one to leave out and one to learn from; "
                f"all rows belong to {domains[0]!r}"
            )
        targets = domains if wanted is None else list(np.ravel(wanted).tolist())
        for name in targets:
            if name not in domains:
                known = ", ".join(map(repr, domains[:10]))
                raise InvalidInputError(
                    f"targets names {name!r}, which is no domain; domains are: {known}"
                )
            classes = np.unique(self.y[self.domain != name])
            if len(classes) < 2:
                raise InvalidInputError(
                    f"without the domain {name!r} there is only one class, {classes.tolist()[0]!r}: add "
                    "a domain with other classes, or do not evaluate this one"
                )
        return targets

    def leave_out(self, target: Any) -> list[DomainScore]:
        """Return the scores of one target, in as many orders as there are seeds."""
        flows = self.domain == target
        known, mine = np.flatnonzero(~flows), np.flatnonzero(flows)
        rivals = Rivals.fit(self.rows[known], self.y[known], self.domain[known], self.classifier)
        fitted = self._fit(known, mine)
        baseline = self._find_baseline(mine)
        mine, scores = np.setdiff1d(mine, baseline), []
        for seed in range(self.random_state, self.random_state + self.n_seeds):
            some = self._draw(mine, seed, target)
            turn = some[arrange(self.y[some], self.order, seed)]
            score = self._score(deepcopy(fitted), rivals, turn, target, seed)
            scores.append(replace(score, settings=self._try_settings(fitted, turn, baseline)))
        return scores

    def _find_baseline(self, mine: Any) -> Any:
        """Return the first rows of a target that are of the baseline's class; at most half of them."""
        wanted = self.knowledge.baseline_rows
        known = mine[self.y[mine] == self.knowledge.baseline_class] if wanted else mine[:0]
        return known[: min(wanted, len(known) // 2)]

    def _draw(self, mine: Any, seed: int, target: Any) -> Any:
        """Return those rows of a target that flow."""
        if self.class_proportions is None:
            return mine
        rng = np.random.default_rng([seed, 1])
        some = mine[draw_proportions(self.y[mine], self.class_proportions, rng)]
        if len(some) < _FEW:
            warnings.warn(
                f"{target} has only {count_of(len(some), 'row')} for these class proportions: add rows "
                "of the frequent class, or lower its share",
                UserWarning,
                stacklevel=2,
            )
        return some

    def _fit(self, known: Any, mine: Any) -> Any:
        """Return the model, having learned all domains but one, in one of the ways of `evaluate`."""
        model = clone(self.model)
        prefix = f"{model.steps[-1][0]}__" if isinstance(model, Pipeline) else ""
        domains = f"{prefix}sample_domain"
        rows, y = take_rows(self.X, known), self.y[known]
        # A pipeline takes a parameter of its last step by this name only without routing.
        with config_context(enable_metadata_routing=False):
            if not has_fit_parameter(last_step(model), "sample_domain"):
                return model.fit(rows, y)
            if learns_from_rows(model):
                if self.names is None or not isinstance(model, OnlineDaDiL):
                    return model.fit(rows, y, **{domains: self.domain[known]})
                model.fit(InOrder(rows, self.names), y, self.domain[known])
                del model.feature_names_in_  # rows to predict have no names
                return model
            codes = 1 + np.unique(self.domain, return_inverse=True)[1]
            codes[mine] *= -1
            labels = self.y.copy()
            labels[mine] = labels[known[0]]
            return model.fit(self.X, labels, **{domains: codes})

    def _score(self, model: Any, rivals: Rivals, turn: Any, target: Any, seed: int) -> DomainScore:
        """Let rows flow past a fitted model, and return how it did beside its rivals."""
        X, rows, y, score = take_rows(self.X, turn), self.rows[turn], self.y[turn], self.metric
        pooled, standardised, *others = (
            PlainScore(name, *(score(y, said) for said in both))
            for name, both in rivals.predict(rows, self.batch_size).items()
        )
        flowing, last = float("nan"), last_step(model)
        if learns_from_rows(model) or not has_fit_parameter(last, "sample_domain"):
            with warnings.catch_warnings():
                if isinstance(last, OnlineDaDiL):  # named below
                    warnings.filterwarnings("ignore", "columns? ", UserWarning)
                flowing = score(y, np.concatenate(list(follow(model, X, self.batch_size))))
        if isinstance(last, OnlineDaDiL):
            self._warn_of_columns(last)
        end = score(y, model.predict(X))
        decision = getattr(last, "committee_", None)
        return DomainScore(
            domain=target,
            seed=seed,
            n_rows=len(y),
            source=pooled.end,
            standardised_flowing=standardised.flowing,
            standardised_end=standardised.end,
            flowing=flowing,
            end=end,
            harm=max(0.0, pooled.end - float(np.nanmin([flowing, end]))),
            decision="" if decision is None else "adapt" if decision.adapts else "do not adapt",
            reason="" if decision is None else decision.reason,
            report=last.report() if hasattr(last, "report") else "",
            labels=self._try_labels(model, rivals, turn, seed),
            plain=tuple(others),
        )

    def _warn_of_columns(self, model: OnlineDaDiL) -> None:
        """Warn of columns of the target that are not as they should be."""
        names = getattr(model, "feature_names_in_", self.names)
        faults = find_faults(model.knowledge_, model.state_, names)
        if faults:
            warnings.warn(describe_new_faults({}, faults), UserWarning, stacklevel=2)

    def _try_settings(self, fitted: Any, turn: Any, baseline: Any) -> tuple[SettingScore, ...]:
        """Return the scores of all settings on one stream of a target."""
        if not isinstance(fitted, OnlineDaDiL):
            return ()
        turn = turn[:: -(-len(turn) // MOST_ROWS) or 1]
        X, y, known, found = take_rows(self.X, turn), self.y[turn], self.knowledge, []
        for setting in known.list_settings(fitted.adapt):
            model = known.apply(fitted, setting, take_rows(self.X, baseline))
            flowing, end = play(model, X, y, self.batch_size, setting.labels)
            scores = self.metric(y, flowing), self.metric(y, end), balanced_accuracy(y, flowing)
            found.append(SettingScore(setting, *scores))
        return tuple(found)

    def _try_labels(self, model: OnlineDaDiL, rivals: Rivals, turn: Any, seed: int) -> LabelScore | None:
        """Return what labels of some rows would buy, as the mean of several draws.

        All scores are of the same rows: those to which neither way of choosing gives a label.
        """
        if not self.labels_per_class:
            return None
        X, rows, y, score = take_rows(self.X, turn), self.rows[turn], self.y[turn], self.metric
        known = np.flatnonzero(~np.isin(np.arange(len(self.y)), turn))
        sources = self.rows[known], self.y[known], self.domain[known]
        # At least half of the rows are left to be predicted, however the others were chosen.
        n = min(self.labels_per_class * len(model.classes_), len(y) // 4)
        if n == 0:
            return None
        queried, asked = model.spawn(), np.zeros(0, dtype=np.intp)
        while len(asked) < n:
            query = queried.query(min(len(model.classes_), n - len(asked)))
            if not len(query):
                break
            asked = np.append(asked, query.positions)
            queried.feedback(query.rows, y[query.positions])
        found = []
        for draw in range(_DRAWS):
            chosen = np.random.default_rng([seed, draw]).choice(len(y), n, replace=False)
            random = model.spawn().feedback(take_rows(X, chosen), y[chosen], certify=True)
            rest = np.setdiff1d(np.arange(len(y)), np.append(chosen, asked))
            plain = rivals.predict_with_labels(*sources, rows, chosen, y[chosen])
            scores = [
                score(y[rest], one.predict(take_rows(X, rest))) for one in (model, random, queried)
            ]
            best = max(score(y[rest], predicted[rest]) for predicted in plain)
            found.append([*scores, best, random.certificate_.accuracy])
        return LabelScore(n, *np.mean(found, axis=0).tolist())
