from copy import copy

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._predict import in_view
from baryflow.estimators._watching import known_target, measure
from baryflow.exceptions import InvalidInputError
from tests.estimators.streams import stream


@pytest.fixture(scope="module")
def plant():
    return make_domains(n_sources=3, n_classes=4, n_per_class=60, random_state=1)


def measure_rows(model, rows, known=None):
    return measure(model.knowledge_, model.state_, rows, known)


def fitted(plant, **given):
    model = OnlineDaDiL(classifier="linear", random_state=0, validate=False, **given)
    return model.fit(plant.X, plant.y, sample_domain=plant.domain)


def test_signals_are_what_they_are_said_to_be(plant):
    model = stream(fitted(plant), plant.X_target[:160])
    before, rows = model.to_bytes(), plant.X_target[160:]
    found = measure_rows(model, rows)
    assert model.to_bytes() == before
    known, Z = (
        known_target(model.knowledge_, model.state_),
        in_view(model.knowledge_, model.state_, rows),
    )
    np.testing.assert_allclose(found.likelihood, known.mixture.log_density(Z), rtol=1e-9)
    np.testing.assert_allclose(found.proportions, known.mixture.predict_proba(Z), atol=1e-9)
    distances = np.square((Z[:, None] - known.means) / known.stds).mean(axis=2).min(axis=1)
    np.testing.assert_allclose(found.loss, distances / known.typical, rtol=1e-9)
    np.testing.assert_array_equal(found.novelty, model.novelty(rows))
    np.testing.assert_allclose(found.resemblance.sum(axis=1), 1.0)
    blend = np.array([model.resemblance_[name] for name in model.sources_])
    np.testing.assert_allclose(found.likeness, np.log(found.resemblance @ blend * 3), rtol=1e-6)
    assert not found.lost.any()


def test_rows_are_held_against_the_target_as_it_was_known(plant):
    model = stream(fitted(plant), plant.X_target[:96])
    known, rows = known_target(model.knowledge_, model.state_), plant.X_target[96:120]
    before = measure_rows(model, rows)
    stream(model, plant.X_target[96:])
    after = measure_rows(model, rows, known)
    np.testing.assert_array_equal(after.likelihood, before.likelihood)
    np.testing.assert_array_equal(after.loss, before.loss)
    assert not np.allclose(measure_rows(model, rows).likelihood, before.likelihood)


def test_a_row_of_a_source_resembles_it(plant):
    model = stream(fitted(plant), plant.X_target)
    far = plant.X[plant.domain == 2]
    # Seen with the moments of its own domain, as a target's rows are.
    moments = far.mean(axis=0), far.std(axis=0)
    there = known_target(model.knowledge_, model.state_)
    mine = type(there)(**{**vars(there), "centre": moments[0], "scale": moments[1]})
    assert measure_rows(model, far, mine).resemblance.mean(axis=0).argmax() == 1


def test_nothing_can_be_held_against_a_target_of_which_nothing_is_known(plant):
    with pytest.raises(InvalidInputError, match="no target row"):
        measure_rows(fitted(plant), plant.X_target)


def test_a_lost_row_is_marked(plant):
    model = stream(fitted(plant), plant.X_target[:96])
    rows = plant.X_target[96:100].copy()
    rows[1] = np.nan
    found = measure_rows(model, rows)
    assert found.lost.tolist() == [False, True, False, False]
    kept = [found.loss[i] for i in (0, 2, 3)]
    assert found.summary()["loss"] == pytest.approx(np.mean(kept))


def test_forgotten_the_target_is_as_new_but_for_the_count(plant):
    model = stream(fitted(plant), plant.X[:96]).forget()
    assert model.state_.mass == 0.0
    assert model.resemblance_ == {}
    assert model.n_samples_seen_ == 96
    assert len(model.history_) == 3
    again = OnlineDaDiL.from_bytes(model.to_bytes())  # also with nothing seen
    fresh = fitted(plant)
    np.testing.assert_array_equal(
        model.predict_proba(plant.X_target), fresh.predict_proba(plant.X_target)
    )
    for one in (model, fresh, again):
        stream(one, plant.X_target)
    np.testing.assert_array_equal(
        model.predict_proba(plant.X_target), fresh.predict_proba(plant.X_target)
    )
    assert again.to_bytes() == model.to_bytes()
    assert model.n_samples_seen_ == 96 + len(plant.X_target)
    assert 96 < model.history_.n_rows[-1] <= model.n_samples_seen_


def test_a_copy_that_forgets_leaves_the_other_as_it_was(plant):
    model = stream(fitted(plant), plant.X_target[:96])
    before = model.to_bytes()
    stream(copy(model).forget(), plant.X_target[96:])
    assert model.to_bytes() == before


def test_what_counts_less_gives_way_sooner(plant):
    old, new = plant.X[plant.domain == 1][:160], plant.X_target[:64]
    one, two = stream(fitted(plant), old), stream(fitted(plant), old)
    two.forget(keep=0.1)
    assert two.state_.mass == pytest.approx(16.0)
    stream(one, new)
    stream(two, new)
    means = [m.compare_columns().target_means for m in (one, two)]
    gaps = [np.abs(mean - new.mean(axis=0)).max() for mean in means]
    assert gaps[1] < 0.5 * gaps[0]
    assert OnlineDaDiL.from_bytes(two.to_bytes()).to_bytes() == two.to_bytes()


def test_to_keep_everything_changes_nothing(plant):
    model = stream(fitted(plant), plant.X_target[:96])
    before = model.to_bytes()
    assert model.forget(keep=1.0).to_bytes() == before
    with pytest.raises(InvalidInputError, match="keep"):
        model.forget(keep=1.5)
