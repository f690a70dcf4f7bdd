"""A scikit-learn classifier of the user's own as an expert, and in files."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier

from baryflow import OnlineDaDiL, load
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError


def fit(classifier):
    plant = make_domains(n_sources=2, n_classes=3, n_per_class=20, random_state=0)
    model = OnlineDaDiL(classifier=classifier, validate=False, random_state=0)
    model.fit(plant.X, plant.y, sample_domain=plant.domain).partial_fit(plant.X_target)
    return model, plant.X_target


@pytest.mark.parametrize(
    "classifier", [LinearDiscriminantAnalysis(), ["linear", LinearDiscriminantAnalysis()]]
)
def test_it_is_saved_and_loaded(classifier, tmp_path):
    model, X = fit(classifier)
    model.save(tmp_path / "model.bary")
    loaded = load(tmp_path / "model.bary")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert repr(loaded.classifier) == repr(classifier)


def test_one_that_skops_does_not_trust_predicts_but_is_not_saved(tmp_path):
    model, X = fit(RandomForestClassifier(5, random_state=0))
    assert model.predict(X).shape == (len(X),)
    with pytest.raises(InvalidInputError, match="RandomForestClassifier"):
        model.save(tmp_path / "model.bary")
    assert not list(tmp_path.iterdir())
