"""Will adapting help on these data? Each domain in turn plays the target, as a stream."""

from baryflow.model_selection.evaluation import DomainScore, Evaluation, LabelScore, PlainScore
from baryflow.model_selection.leaving_out import evaluate

__all__ = ["DomainScore", "Evaluation", "LabelScore", "PlainScore", "evaluate"]
