"""What ``evaluate`` recommends: in words, as commands, and as a configuration file."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from baryflow.cli.labelled_files import LabelledFiles
from baryflow.model_selection import Evaluation
from baryflow.model_selection.evaluation import EQUAL
from baryflow.validation import count_of

#: Options of ``fit`` that make a model of a plain classifier.
_PLAIN = {
    "not adapting": ("no", "linear"),
    "standardising each domain separately": ("standardise", "linear"),
    "a support vector machine": ("no", "kernel"),
    "a support vector machine on standardised domains": ("standardise", "kernel"),
    "extra trees": ("no", "trees"),
    "extra trees on standardised domains": ("standardise", "trees"),
}
_IN_WORDS = {"yes": "adapt", "standardise": "only standardise", "no": "do not adapt"}
_DEFAULT_BATCH = 32
#: Files that a command lists at most.
_LISTED = 8
#: Difference in balanced accuracy from which another setting is mentioned.
_RARE_CLASSES = 0.05


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The best setting of an evaluation, as options of ``fit`` and ``run``."""

    found: Evaluation
    labelled: LabelledFiles
    classifier: tuple[str, ...]
    no_label_shift: bool
    batch_size: int

    def describe(self) -> str:
        """Return the setting with its score, and the commands that use it."""
        chosen = self.found.recommend()
        setting, known = chosen.setting, chosen.setting.describe_knowledge()
        with_ = "" if known == "nothing" else f", with {known}"
        score = f"{100 * chosen.flowing:.1f} % {self.found.scoring.replace('_', ' ')} while rows flow"
        lines = [f"Recommended: {_IN_WORDS[setting.way]}{with_} ({score}).", *self._commands()]
        if setting.labels:
            lines.append(
                f"  and {count_of(setting.labels, 'label')} of rows that the model asks for "
                "(docs/guide/labels.md)"
            )
        return "\n".join([*lines, *self._name_balanced(), *self._name_plain()])

    def as_toml(self) -> str:
        """Return the options as the text of a configuration file."""
        lines = [f"# {self.describe().splitlines()[0]}"]
        for command, options in {"fit": self._fit(), "run": self._run()}.items():
            if options:
                lines += ["", f"[{command}]"]
                # Texts and lists of texts are written alike in JSON and TOML.
                lines += [
                    f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in options.items()
                ]
        return "\n".join(lines) + "\n"

    def _commands(self) -> list[str]:
        names, files = self.labelled.files, "FILES"
        if len(names) <= _LISTED:
            files = " ".join(shlex.quote(str(name)) for name in names)
        return [
            f"  baryflow fit {files} {_as_arguments(self._fit())} -o model.bary",
            f"  baryflow run model.bary INPUT {_as_arguments(self._run())}".rstrip(),
        ]

    def _fit(self) -> dict[str, Any]:
        """Return the options of ``fit``; those with their default are left out."""
        setting, labelled = self.found.recommend().setting, self.labelled
        normal = labelled.normal_class
        if setting.baseline_rows:
            normal = str(self.found.baseline_class)
        prior = (self.found.class_prior or {}) if setting.class_prior else {}
        options: dict[str, Any] = {
            "label": labelled.label,
            "domain": labelled.domain,
            "domain-from-file": labelled.domain_from_file,
            "time": labelled.time,
            "ignore": list(labelled.ignore),
            "window": labelled.window,
            "step": labelled.step,
            "normal-class": normal if setting.baseline_rows or labelled.window is not None else None,
            "encoder": None if labelled.encoder is None else str(labelled.encoder),
            "classifier": list(self.classifier),
            "no-label-shift": self.no_label_shift,
            "adapt": None if setting.adapt is True else setting.way,
            "class-prior": [f"{name}={share:g}" for name, share in prior.items()],
        }
        return {name: value for name, value in options.items() if value}

    def _run(self) -> dict[str, Any]:
        setting = self.found.recommend().setting
        options = {
            "time": self.labelled.time,
            "batch-size": None if self.batch_size == _DEFAULT_BATCH else self.batch_size,
            "baseline-rows": setting.baseline_rows,
        }
        return {name: value for name, value in options.items() if value}

    def _name_balanced(self) -> list[str]:
        """Return which setting is better at rare classes, if one is by far."""
        chosen, tried = self.found.recommend(), self.found.summary().settings
        best = max(tried, key=lambda one: one.balanced)
        if best.balanced <= chosen.balanced + _RARE_CLASSES:
            return []
        what = f"{_IN_WORDS[best.setting.way]}, with {best.setting.describe_knowledge()} known"
        figures = f"{100 * best.balanced:.1f} instead of {100 * chosen.balanced:.1f}"
        why = "If rare classes matter as much as frequent ones"
        return [f"{why}: {what} (balanced accuracy {figures}); see --scoring."]

    def _name_plain(self) -> list[str]:
        """Return how to get a plain classifier that is better, if there is one."""
        best = max(self.found.summary().rivals(), key=lambda rival: rival.flowing)
        gain = best.flowing - self.found.recommend().flowing
        if gain <= EQUAL or best.name not in _PLAIN:
            return []
        adapt, classifier = _PLAIN[best.name]
        options = f"--adapt {adapt} --classifier {classifier}"
        better = f"{best.name} was {100 * gain:.1f} points better, in hindsight"
        return [f"{better}; as a model it is 'baryflow fit {options}'."]


def _as_arguments(options: dict[str, Any]) -> str:
    parts: list[str] = []
    for name, value in options.items():
        if value is True:
            parts.append(f"--{name}")
        else:
            for one in value if isinstance(value, list) else [value]:
                parts += [f"--{name}", shlex.quote(str(one))]
    return " ".join(parts)
