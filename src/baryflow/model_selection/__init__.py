"""Will adapting help on these data? Each domain in turn plays the target, as a stream."""

from baryflow.model_selection.evaluation import DomainScore, Evaluation, LabelScore, PlainScore
from baryflow.model_selection.leaving_out import evaluate
from baryflow.model_selection.settings import Setting, SettingScore

__all__ = [
    "DomainScore",
    "Evaluation",
    "LabelScore",
    "PlainScore",
    "Setting",
    "SettingScore",
    "evaluate",
]
