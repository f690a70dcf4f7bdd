"""Labels: what they prove and how long."""

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

P = make_domains(n_per_class=20, random_state=0)
X, Y = P.X_target, P.y_target


def fit(y=P.y, **how):
    model = OnlineDaDiL(classifier="linear", random_state=0, **({"validate": False} | how))
    return model.fit(P.X, y, P.domain)


def test_a_row_counts_once_for_the_certificate_even_if_its_label_is_not_kept_any_more():
    noise = 1e-3 * np.random.default_rng(0).standard_normal((120, X.shape[1]))
    rows, labels = X[:1] + noise, [int(Y[0])] * 120
    model = fit().partial_fit(X).feedback(rows, labels, certify=True)
    again = OnlineDaDiL.from_bytes(model.to_bytes())
    for one in (model, model.spawn(), again):
        one.feedback(rows, labels, certify=True)
        assert one.certificate_.n == 120
        assert len(one.tracker.labelled) == 50


def test_the_certificate_is_about_what_predict_returns():
    model = fit(validate=True, unknown=0.3).partial_fit(X[:60])
    said = model.predict(X[60:])
    model.feedback(X[60:], Y[60:], certify=True)
    assert (said == -1).any()
    assert model.certificate_.right == (said == Y[60:]).sum()
