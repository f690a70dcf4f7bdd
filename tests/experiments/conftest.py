"""Stand-ins for what the experiments ask of the estimators; where these have it, nothing is done."""

import inspect

import pytest

from baryflow import OnlineDaDiL
from baryflow.estimators.decision import Decision
from experiments.msda import methods as msda
from experiments.tep import methods as tep


class StandIn(OnlineDaDiL):
    """A model with a prior, which it ignores, and with a reliability."""

    def __init__(self, class_prior=None, random_state=None, predictor="auto", view=True):
        super().__init__(predictor=predictor, view=view, random_state=random_state)
        self.class_prior = class_prior

    @staticmethod
    def paper(random_state=None):
        return Paper.paper(random_state=random_state)

    reliability_ = property(lambda self: self.trust_)


class Paper(OnlineDaDiL):
    reliability_ = property(lambda self: self.trust_)


@pytest.fixture(autouse=True)
def estimators(monkeypatch):
    if not hasattr(Decision, "summary"):
        monkeypatch.setattr(Decision, "summary", lambda self: self.options.predictor, raising=False)
    if "class_prior" not in inspect.signature(OnlineDaDiL).parameters:
        for module in (msda, tep):
            monkeypatch.setattr(module, "OnlineDaDiL", StandIn)
