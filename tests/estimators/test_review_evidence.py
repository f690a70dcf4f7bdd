"""Labels: evidence against a label shift is weighed again."""

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

P = make_domains(n_per_class=20, random_state=0)
X, Y = P.X_target, P.y_target


def fit(y=P.y, **how):
    model = OnlineDaDiL(classifier="linear", random_state=0, **({"validate": False} | how))
    return model.fit(P.X, y, P.domain)


def test_labels_that_speak_for_a_label_shift_count_after_others_spoke_against_it():
    few, others = Y < 3, Y >= 3
    model = fit(validate=True).partial_fit(X[few])
    model.feedback(X[others][:60], Y[others][:60], certify=True)
    assert model.tracker.adaptation.shifted is None
    before = model.target_state().shift_evidence
    model.feedback(X[others][60:80], Y[others][60:80], certify=True)
    assert model.target_state().shift_evidence != before
    assert np.array_equal(model.predict_proba(X), model.spawn().predict_proba(X))
