import pytest

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
