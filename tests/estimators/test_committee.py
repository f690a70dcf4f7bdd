from dataclasses import replace

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators.decision import SOURCE_ALONE, Decision


def test_weights_go_from_the_beginning_to_the_end():
    decision = Decision(True, (0.4, 0.3, 0.2, 0.1), (0.0, 0.1, 0.2, 0.3, 0.4), "because")
    assert decision.at(0.0) == pytest.approx((0.0, 0.1, 0.2, 0.3, 0.4))
    assert decision.at(1.0) == pytest.approx((0.4, 0.3, 0.2, 0.1, 0.0))
    assert decision.at(0.5) == pytest.approx((0.2, 0.2, 0.2, 0.2, 0.2))
    assert decision.summary() == "0.00/0.10/0.20/0.30/0.40 to 0.40/0.30/0.20/0.10"
    assert Decision().at(0.0) == SOURCE_ALONE
    assert Decision().summary() == "not adapted"
    assert not Decision().adapts


@pytest.mark.parametrize("expert", range(4))
def test_one_expert_alone_can_have_all_the_weight(expert):
    p = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=20, random_state=0)
    weights = tuple(float(number == expert) for number in range(4))
    model = OnlineDaDiL(validate=False, random_state=0).fit(p.X, p.y, p.domain)
    model.adopt(
        replace(model.follower.learned, decision=Decision.fixed(weights, "chosen")),
        model.classes_, model.sources_, 4,
    )  # fmt: skip
    found = model.partial_fit(p.X_target).predict_proba(p.X_target)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert (found.argmax(axis=1) == p.y_target).mean() > 0.6
