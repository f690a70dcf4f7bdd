from typing import ClassVar

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalFeatures, windows
from baryflow.features.labelled import evaluate_signals, find_normal, fit_signals


def cut_of(names=("a", "b", "c"), n=160):
    """Return windows of machines whose rows are calm, then loose; and the machine of each."""
    rng = np.random.default_rng(0)
    machine, state = np.repeat(names, n), np.tile(np.repeat(["calm", "loose"], n // 2), len(names))
    rows = rng.normal(size=(len(machine), 2)) * np.where(state == "loose", 4.0, 1.0)[:, None]
    cut = windows(rows, 16, 8, by=machine, label=state)
    return cut, cut.group


def model():
    return OnlineDaDiL(classifier="linear", validate=False, random_state=0)


class Recording(SignalFeatures):
    """Remembers whose windows it was fitted on, and what it was told to be normal."""

    fits: ClassVar = []
    told: ClassVar = []

    def fit(self, X, y=None, sample_domain=None, normal=None):
        self.fits.append(sorted(set(sample_domain.tolist())))
        return super().fit(X, y, sample_domain, normal)

    def learn_normal(self, X, domain="target"):
        self.told.append((len(X), set(X.group.tolist()), set(X.label.tolist())))
        return super().learn_normal(X, domain)


def test_the_features_of_a_domain_left_out_are_learned_from_the_others():
    Recording.fits.clear()
    cut, machine = cut_of()
    found = evaluate_signals(cut, machine, Recording(), model(), batch_size=8)
    assert Recording.fits == [["b", "c"], ["a", "c"], ["a", "b"]]
    assert [score.domain for score in found.scores] == ["a", "b", "c"]
    assert found.batch_size == 8
    assert found.summary().end > 0.8


def test_of_a_domain_left_out_some_normal_windows_may_be_known():
    Recording.told.clear()
    cut, machine = cut_of()
    evaluate_signals(cut, machine, Recording(), model(), normal="calm", n_normal=3)
    assert Recording.told == [(3, {name}, {"calm"}) for name in "abc"]


def test_normal_windows_are_those_without_a_change_if_there_are_such():
    cut, machine = cut_of()
    found = find_normal(cut, machine, "calm")
    np.testing.assert_array_equal(found, (cut.label == "calm") & ~cut.mixed)
    pair = fit_signals(cut, machine, SignalFeatures(), model(), step=8, normal="calm")
    assert pair.features.normal_.names == ["a", "b", "c"]


def test_what_cannot_be_learned_is_said():
    cut, machine = cut_of()
    with pytest.raises(InvalidInputError, match="'hot' is not a class of any window; classes are: calm"):
        find_normal(cut, machine, "hot")
    known = (machine != "b") | (cut.label == "loose")
    with pytest.raises(InvalidInputError, match="no window of 'b' is 'calm'"):
        find_normal(cut.where(known), machine[known], "calm")
    with pytest.raises(InvalidInputError, match="a domain is called 'target'"):
        find_normal(*cut_of(("a", "target")), "calm")
    with pytest.raises(InvalidInputError, match="two domains or more"):
        evaluate_signals(*cut_of(("a",)), SignalFeatures(), model())
    bare = windows(np.zeros((40, 2)), 16, 8)
    with pytest.raises(InvalidInputError, match="windows have no labels"):
        fit_signals(bare, np.array(["a"] * len(bare)), SignalFeatures(), model(), step=8)
