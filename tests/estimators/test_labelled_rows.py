"""Labels of target rows: odd rows and names, what they prove, and evidence that is weighed again."""

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._follow import join
from baryflow.exceptions import InvalidInputError

P = make_domains(n_per_class=20, random_state=0)
X, Y = P.X_target, P.y_target


def fit(y=P.y, **how):
    model = OnlineDaDiL(classifier="linear", random_state=0, **({"validate": False} | how))
    return model.fit(P.X, y, P.domain)


def test_a_query_leaves_out_empty_rows_even_if_there_are_no_others():
    model = fit().partial_fit(X[:20]).feedback(X[:20], Y[:20])
    model.partial_fit(np.full((3, X.shape[1]), np.nan))
    assert len(model.query(3)) == 0


def test_labels_are_learned_if_all_rows_were_seen_elsewhere():
    model, other = fit(), fit().partial_fit(X[:100])
    model.state_ = join(model.knowledge_, model.state_, other.state_, X[:20])
    model.feedback(X[:3], [99] * 3)
    assert model.predict_proba(X).shape == (len(X), 9)


def test_the_label_of_an_empty_row_teaches_nothing():
    model = fit().partial_fit(X[:100])
    before = model.predict_proba(X)
    model.feedback(np.full((1, X.shape[1]), np.nan), [99])
    assert np.array_equal(model.predict_proba(X), before)
    assert model.n_labels_ == 0


def test_the_label_of_a_row_without_weight_is_none():
    model = fit().partial_fit(X[:60])
    model.partial_fit(X[60:62], [Y[60], 99], sample_weight=[1.0, 0.0], certify=True)
    assert (model.n_labels_, model.certificate_.n, len(model.classes_)) == (1, 1, 8)


@pytest.mark.parametrize(("y", "label"), [(P.y > 3, 2), (P.y.astype(np.int8), 300), (P.y, 2**70)])
def test_a_new_class_must_fit_the_type_of_the_others(y, label):
    model = fit(y).partial_fit(X[:60])
    with pytest.raises(InvalidInputError, match="cannot be a class"):
        model.feedback(X[:1], [label])


def test_a_row_counts_once_for_the_certificate_even_if_its_label_is_not_kept_any_more():
    noise = 1e-3 * np.random.default_rng(0).standard_normal((120, X.shape[1]))
    rows, labels = X[:1] + noise, [int(Y[0])] * 120
    model = fit().partial_fit(X).feedback(rows, labels, certify=True)
    again = OnlineDaDiL.from_bytes(model.to_bytes())
    for one in (model, model.spawn(), again):
        one.feedback(rows, labels, certify=True)
        assert one.certificate_.n == 120
        assert len(one.state_.labelled) == 50


def test_the_certificate_is_about_what_predict_returns():
    p = make_domains(n_sources=3, n_classes=4, n_per_class=20, random_state=0)
    model = OnlineDaDiL(classifier="linear", unknown=0.3, random_state=0).fit(p.X, p.y, p.domain)
    model.partial_fit(p.X_target[:40])
    rows, labels = p.X_target[40:], p.y_target[40:]
    said = model.predict(rows)
    model.feedback(rows, labels, certify=True)
    assert (said == -1).any()
    assert model.certificate_.right == (said == labels).sum()
