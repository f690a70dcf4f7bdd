"""What came out when each domain in turn was the target: as values, words and a picture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from baryflow.estimators._plots import AREA, INK, PALE, new_figure, short_name
from baryflow.exceptions import InvalidInputError
from baryflow.model_selection.settings import Setting, SettingScore
from baryflow.validation import count_of

_FIGURES = (
    "source", "standardised_flowing", "standardised_end", "flowing", "end", "harm",
)  # fmt: skip
_HEAD = (
    "domain", "rows", "source", "flowing", "end", "flowing", "end", "flowing", "end", "harm", "decision",
)  # fmt: skip
_ORDER_WORDS = {
    "as_is": "rows in the given order",
    "shuffled": "rows shuffled",
    "runs": "rows in runs of one class",
    "by_class": "one class after the other",
}
_LEGEND = (
    "source: the pooled classifier, which does not adapt; harm: how far the model's worst is below it",
    "flowing: each batch before it was learned from; end: the same rows after the stream",
)
_NOT_IN_FRAMES = ("report", "labels", "plain", "settings")
_SETTING_HEAD = ("adapt", "known of the target", "flowing", "gain", "end", "balanced")
_SETTING_LEGEND = (
    "adapt: yes, only standardise, or no; flowing: each batch before it was learned from; gain: over",
    "adapting without knowledge; end: after the stream; balanced: every class counts the same, flowing",
)
#: Settings whose scores differ by this count as equally good.
EQUAL = 0.01
_LABEL_FIGURES = ("without", "random", "queried", "plain", "certified")
_LABEL_HEAD = ("domain", "labels", *_LABEL_FIGURES)
_LABEL_LEGEND = (
    "without: the model without labels; random, queried: with labels of rows drawn at random, and of",
    "those it asks for; plain: logistic regression of sources and random labels, the better of pooled",
    "rows and standardised ones; certified: lower bound on the accuracy, proved by the random labels",
)


@dataclass(frozen=True)
class DomainScore:
    """How one domain fared as the target.

    Attributes
    ----------
    domain : name or number
    seed : int
        Of the order in which its rows flowed; -1 for a mean over several.
    n_rows : int
    source : float
        Score of the pooled classifier, which does not adapt.
    standardised_flowing, standardised_end : float
        Score of the classifier of rows standardised domain by domain: with the moments of the rows that
        came before each batch, and of all rows.
    flowing : float
        Score of the predictions that the model made before it learned from each batch; NaN for a model
        that takes the whole target at once.
    end : float
        Score on the same rows after the stream.
    harm : float
        By how much the worse of the last two is below `source`; 0 if none is.
    decision, reason : str
        What the model decided and why, in its own words; empty if it has no ``report``.
    report : str
        All of its report, after the stream.
    labels : LabelScore, optional
        What labels of some of the rows would buy.
    plain : tuple of PlainScore
        Scores of more plain classifiers.
    settings : tuple of SettingScore
        Scores of other settings of the model, on at most 1,000 of the rows.
    """

    domain: Any
    seed: int
    n_rows: int
    source: float
    standardised_flowing: float
    standardised_end: float
    flowing: float
    end: float
    harm: float
    decision: str = ""
    reason: str = ""
    report: str = ""
    labels: LabelScore | None = None
    plain: tuple[PlainScore, ...] = ()
    settings: tuple[SettingScore, ...] = ()

    def rivals(self) -> tuple[PlainScore, ...]:
        """Return the scores of all plain classifiers, those of `source` and `standardised` first.

        Returns
        -------
        tuple of PlainScore
        """
        return (
            PlainScore("not adapting", self.source, self.source),
            PlainScore(
                "standardising each domain separately", self.standardised_flowing, self.standardised_end
            ),
            *self.plain,
        )


@dataclass(frozen=True)
class PlainScore:
    """Score of a plain classifier on a target.

    Attributes
    ----------
    name : str
    flowing, end : float
        As in :class:`DomainScore`.
    """

    name: str
    flowing: float
    end: float


@dataclass(frozen=True)
class LabelScore:
    """What labels of some rows of a target would buy, on the rows that have none.

    Attributes
    ----------
    n_labels : int
    without : float
        Score of the model after the stream, without labels.
    random, queried : float
        With the labels of rows drawn at random, and of those that the model asked for.
    plain : float
        Score of a plain classifier of the sources and the labels drawn at random, both with half the
        weight: on pooled rows or on rows standardised by domain, whichever is better.
    certified : float
        What the labels drawn at random prove about the accuracy: it is at least this, with a confidence
        of 95 %.
    """

    n_labels: int
    without: float
    random: float
    queried: float
    plain: float
    certified: float


@dataclass(frozen=True)
class Evaluation:
    """What :func:`~baryflow.model_selection.evaluate` found.

    Attributes
    ----------
    scores : tuple of DomainScore
        One for each target and seed.
    scoring, order : str
    batch_size : int
    class_proportions, class_prior : dict, optional
        With which targets flowed, and which the model could be given.
    baseline_class : optional
        Class of the rows of a baseline.
    """

    scores: tuple[DomainScore, ...]
    scoring: str = "accuracy"
    order: str = "as_is"
    batch_size: int = 32
    class_proportions: Mapping[Any, float] | None = None
    class_prior: Mapping[Any, float] | None = None
    baseline_class: Any = None

    def by_domain(self) -> tuple[DomainScore, ...]:
        """Return one score for each target, the mean of its seeds.

        Returns
        -------
        tuple of DomainScore
        """
        groups: dict[Any, list[DomainScore]] = {}
        for score in self.scores:
            groups.setdefault(score.domain, []).append(score)
        return tuple(
            group[0] if len(group) == 1 else replace(_average(group), seed=-1)
            for group in groups.values()
        )

    def summary(self) -> DomainScore:
        """Return the mean over targets, each counting the same.

        Returns
        -------
        DomainScore
            Its domain is "mean", and its rows are those of all targets together.
        """
        domains = self.by_domain()
        mean: DomainScore = _average(domains)
        n_rows = sum(score.n_rows for score in domains)
        return replace(mean, domain="mean", seed=-1, n_rows=n_rows, decision="", reason="", report="")

    def best_plain(self) -> str:
        """Return the name of the plain classifier that is best on average, while rows flow.

        It is chosen in hindsight, by the scores themselves: a user has to choose before.

        Returns
        -------
        str
            As in :meth:`DomainScore.rivals`.
        """
        return max(self.summary().rivals(), key=lambda rival: rival.flowing).name

    def table(self) -> str:
        """Return the scores of every target, and their mean, as text for a terminal.

        Returns
        -------
        str
        """
        domains, best = self.by_domain(), self.best_plain()
        cells = [_HEAD, *(_cells(score, best, self._percent) for score in (*domains, self.summary()))]
        head, rule, *body, mean = _align(cells, left=(0, len(_HEAD) - 1))
        over = _name_groups(head)
        lines = [self._title(), "", over, head, rule, *body, rule, mean, "", *_LEGEND]
        lines.append(
            f"best plain: {best}; of all plain classifiers the best while rows flow, in hindsight"
        )
        return "\n".join([*lines, *self._why(domains)])

    def __str__(self) -> str:
        return self.table()

    def label_table(self) -> str:
        """Return what labels would buy on every target, and on the mean, as text for a terminal.

        Returns
        -------
        str

        Raises
        ------
        InvalidInputError
            If the evaluation was made without labels.
        """
        lines = [(short_name(score.domain), score.labels) for score in self.by_domain()]
        found = [labels for _, labels in lines if labels is not None]
        if not found:
            raise InvalidInputError("there are no labels in this evaluation: use labels_per_class=3")
        cells: list[tuple[str, ...]] = [_LABEL_HEAD]
        for name, labels in [*lines, ("mean", _average(found))]:
            if labels is not None:
                figures = [getattr(labels, figure) for figure in _LABEL_FIGURES]
                cells.append((name, str(labels.n_labels), *_show(figures, self._percent)))
        head, rule, *body, mean = _align(cells)
        title = f"{self._what()} on rows without a label, after the stream"
        return "\n".join([title, "", head, rule, *body, rule, mean, "", *_LABEL_LEGEND])

    def settings_table(self) -> str:
        """Return how each setting did on average, as text for a terminal.

        Returns
        -------
        str

        Raises
        ------
        InvalidInputError
            If no settings were tried: the model is not an :class:`~baryflow.OnlineDaDiL`.
        """
        found, spread = self._settings(), self._spread()
        cells: list[tuple[str, ...]] = [_SETTING_HEAD]
        for one in found:
            figures = [one.flowing, one.flowing - found[0].flowing, one.end, one.balanced]
            flowing, gain, *rest = _show(figures, self._percent)
            flowing += f" ± {_show([spread[one.setting]], self._percent)[0]}" if spread else ""
            gain = "" if one is found[0] else gain if gain.startswith("-") else f"+{gain}"
            cells.append((one.setting.way, one.setting.describe_knowledge(), flowing, gain, *rest))
        n_targets, n_seeds = len(self.by_domain()), len({score.seed for score in self.scores})
        title = f"{self._what()} of settings, mean over {count_of(n_targets, 'domain')}"
        if n_seeds > 1:
            title += f"; ±: deviation over {n_seeds} streams of each"
        return "\n".join([title, "", *_align(cells, left=(0, 1)), "", *_SETTING_LEGEND])

    def recommend(self) -> SettingScore:
        """Return the setting to use: the simplest that is at most 1 point worse than the best.

        Settings are compared by their scores while rows flow. The simplest needs the fewest pieces of
        knowledge; a class prior or a baseline is simpler than labels.

        Returns
        -------
        SettingScore

        Raises
        ------
        InvalidInputError
            If no settings were tried: the model is not an :class:`~baryflow.OnlineDaDiL`.
        """
        found = self._settings()
        best = max(one.flowing for one in found)
        return next(one for one in found if one.flowing >= best - EQUAL)

    def _settings(self) -> tuple[SettingScore, ...]:
        """Return the mean scores of the settings, the simplest first."""
        found = self.summary().settings
        if not found:
            raise InvalidInputError("no settings were tried: they need an OnlineDaDiL as the model")
        return found

    def _spread(self) -> dict[Setting, float]:
        """Return the deviation over seeds of each setting's mean over targets; empty for one seed."""
        seeds = sorted({score.seed for score in self.scores})
        if len(seeds) < 2:
            return {}
        means = [_average([s for s in self.scores if s.seed == seed]).settings for seed in seeds]
        return {
            same[0].setting: float(np.std([one.flowing for one in same], ddof=1))
            for same in zip(*means, strict=True)
        }

    def to_frame(self) -> Any:
        """Return a pandas frame with a row for each target and seed, without the reports.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ModuleNotFoundError
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ModuleNotFoundError(
                "a frame needs pandas: pip install pandas", name="pandas"
            ) from error
        rows = []
        for score in self.scores:
            row = {k: v for k, v in asdict(score).items() if k not in _NOT_IN_FRAMES}
            more = {} if score.labels is None else asdict(score.labels)
            for one in score.plain:
                row |= {f"{one.name}, flowing": one.flowing, f"{one.name}, end": one.end}
            rows.append(row | {k if k == "n_labels" else f"labels_{k}": v for k, v in more.items()})
        return pd.DataFrame(rows)

    def plot(self, ax: Any = None) -> Any:
        """Draw the scores of every target as points on a line.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; without it a figure of its own.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ModuleNotFoundError
            If matplotlib is not installed: ``pip install 'baryflow[plot]'``.
        InvalidInputError
            If there is nothing to draw.
        """
        if not self.scores:
            raise InvalidInputError("there is nothing to draw: no domain was evaluated")
        domains = [*self.by_domain(), self.summary()]
        if ax is None:
            ax = new_figure(7.5, 1.4 + 0.34 * len(domains)).subplots()
        # The mean stands apart, at the bottom.
        height = np.append(np.arange(len(domains) - 1), len(domains) - 0.5)
        unit = 100.0 if self._percent else 1.0
        values = {name: [unit * getattr(s, name) for s in domains] for name in _FIGURES}
        ax.hlines(height, values["source"], values["end"], color=PALE, lw=3, zorder=1)
        style = {"ls": "none", "ms": 7, "mew": 1.6}
        ax.plot(values["source"], height, "o", color=INK, label="not adapting", **style)
        ax.plot(
            values["standardised_end"], height, "d", mfc="none", mec=INK, label="standardised", **style
        )
        if not np.isnan(values["flowing"]).all():
            ax.plot(
                values["flowing"], height, "o", mfc="white", mec=AREA[0], label="while it flows", **style
            )
        ax.plot(values["end"], height, "o", color=AREA[0], label="at the end", zorder=3, **style)
        ax.set_yticks(height, [short_name(score.domain) for score in domains])
        ax.invert_yaxis()
        ax.set_xlabel(self._what())
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color=PALE, lw=0.6, zorder=0)
        ax.set_axisbelow(True)
        ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize=9)
        return ax

    @property
    def _percent(self) -> bool:
        return self.scoring in {"accuracy", "balanced_accuracy"}

    def _what(self) -> str:
        return f"{'% ' if self._percent else ''}{self.scoring.replace('_', ' ')}"

    def _title(self) -> str:
        seeds = len({score.seed for score in self.scores})
        several = f", {seeds} streams of each" if seeds > 1 else ""
        if self.class_proportions:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in self.class_proportions.items())
            several += f", {shares}"
        how = f"{_ORDER_WORDS.get(self.order, self.order)}{several}, in batches of {self.batch_size}"
        return f"{self._what()}, with each domain in turn as the target; {how}"

    def _why(self, domains: tuple[DomainScore, ...]) -> list[str]:
        """Return a line for each decision and its reason, and for which targets it was taken."""
        reasons: dict[tuple[str, str], list[str]] = {}
        for score in domains:
            if score.reason:
                reasons.setdefault((score.decision, score.reason), []).append(short_name(score.domain))
        return [
            f"{', '.join(names) if len(names) < len(domains) else 'all'}: {decision}; {reason}"
            for (decision, reason), names in reasons.items()
        ]


def _average(scores: Sequence[Any]) -> Any:
    """Return the mean of the numbers in scores, and in the scores they hold; the rest is the first's."""
    found: dict[str, Any] = {}
    for field in fields(scores[0]):
        values = [getattr(score, field.name) for score in scores]
        values = [value for value in values if value is not None]
        kind = type(values[0]) if values else None
        if kind in (float, int):
            found[field.name] = float(np.mean(values)) if kind is float else round(np.mean(values))
        elif kind is tuple:
            found[field.name] = tuple(map(_average, zip(*values, strict=True)))
        elif kind is LabelScore:
            found[field.name] = _average(values)
    return replace(scores[0], **found)


def _cells(score: DomainScore, best: str, percent: bool) -> tuple[str, ...]:
    (rival,) = (one for one in score.rivals() if one.name == best)
    figures = [getattr(score, name) for name in _FIGURES]
    shown = _show([*figures[:3], rival.flowing, rival.end, *figures[3:]], percent)
    return (short_name(score.domain), str(score.n_rows), *shown, score.decision)


def _show(values: Sequence[float], percent: bool) -> list[str]:
    return ["–" if np.isnan(v) else f"{100 * v:.1f}" if percent else f"{v:.3f}" for v in values]


def _align(cells: Sequence[tuple[str, ...]], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table, with a rule below the first; columns in `left` are not numbers."""
    width = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(size) if k in left else cell.rjust(size)
            for k, (cell, size) in enumerate(zip(line, width, strict=True))
        ).rstrip()
        for line in cells
    ]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def _name_groups(head: str) -> str:
    """Return the line above the heads of the columns, which says whose figures stand below."""
    line, starts = "", [match.start() for match in re.finditer("flowing", head)]
    for start, name in zip(starts, ("standardised", "best plain", "model"), strict=True):
        end = head.index("end", start) + len("end")
        line = line.ljust(start) + name.center(end - start)
    return line.rstrip()
