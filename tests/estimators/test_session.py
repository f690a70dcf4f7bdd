from dataclasses import replace

import numpy as np
import pytest

from baryflow import codec
from baryflow.datasets import make_domains
from baryflow.estimators.adaptation import Options
from baryflow.estimators.follower import Follower, FollowerState, Manner
from baryflow.estimators.learned import learn
from baryflow.estimators.sources import SourceOptions
from baryflow.estimators.target import paper_settings, row_settings
from baryflow.exceptions import InvalidInputError

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=40, random_state=0)


def teach(view=True):
    rows, codes = ([part[P.domain == s] for s in (1, 2, 3)] for part in (P.X, P.y))
    options = SourceOptions(view=view, components_per_class=2, n_atoms=None, seed=0, class_prior=None)
    return learn(rows, codes, 3, options, Options(), predictor="combined", rehearsing=False)


LEARNED = teach()
MANNER = Manner(row_settings(3, view=True))
MANNERS = {
    "anew": MANNER,
    "warm": replace(MANNER, warm_start=True, freeze_sources=False),
    "ramped": replace(MANNER, ramp=50.0),
    "forgetting": replace(MANNER, settings=row_settings(3, view=True, half_life=40.0)),
}
every_manner = pytest.mark.parametrize("manner", MANNERS.values(), ids=MANNERS)


def feed(follower, X, size=20):
    for start in range(0, len(X), size):
        batch = X[start : start + size]
        follower.absorb(batch, np.ones(len(batch)))
    return follower


def test_before_any_row_it_says_what_the_sources_say():
    follower = Follower(LEARNED, MANNER)
    assert follower.adaptation is None
    assert follower.n_rows == 0
    assert np.array_equal(follower.proba(P.X_target), LEARNED.model.source_proba(P.X_target))
    with pytest.raises(InvalidInputError, match="no target row was seen yet"):
        follower.refine(3)


@every_manner
def test_many_targets_share_what_was_learned(manner):
    before = codec.encode(LEARNED)[1]
    before = {name: array.copy() for name, array in before.items()}
    alone = feed(Follower(LEARNED, manner), P.X_target)
    one, other = Follower(LEARNED, manner), Follower(LEARNED, manner)
    for start in range(0, len(P.X_target), 20):  # in turn
        feed(one, P.X_target[start : start + 20])
        feed(other, -P.X_target[start : start + 20])
    assert np.array_equal(one.proba(P.X_target), alone.proba(P.X_target))
    assert not np.array_equal(other.proba(P.X_target), alone.proba(P.X_target))
    after = codec.encode(LEARNED)[1]
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@every_manner
@pytest.mark.parametrize("refined", [False, True])
def test_stopped_and_continued_equals_never_stopped(manner, refined):
    follower = feed(Follower(LEARNED, manner), P.X_target[:60])
    if refined:
        follower.refine(4)
    values, arrays = codec.encode(follower.state())
    again = Follower.from_state(LEARNED, manner, codec.decode(FollowerState, values, arrays))
    for _ in range(2):
        assert np.array_equal(again.proba(P.X_target), follower.proba(P.X_target))
        assert np.array_equal(again.resemblance, follower.resemblance)
        assert list(again.losses) == list(follower.losses)
        assert again.reliability == follower.reliability
        for one in (again, follower):
            feed(one, P.X_target[60:]).refine(2)
    saved, resaved = codec.encode(follower.state()), codec.encode(again.state())
    assert saved[0] == resaved[0]
    assert all(np.array_equal(array, resaved[1][name]) for name, array in saved[1].items())


def test_rows_without_weight_teach_nothing():
    follower = Follower(LEARNED, MANNER)
    follower.absorb(P.X_target[:20], np.zeros(20))
    assert follower.adaptation is None
    assert follower.reliability == 0.0
    assert follower.target.mass == 0.0


def test_a_row_without_weight_is_as_good_as_none():
    batch, weights = P.X_target[:40].copy(), np.ones(40)
    batch[::4], weights[::4] = 1e6, 0.0
    with_them, without = Follower(LEARNED, MANNER), Follower(LEARNED, MANNER)
    with_them.absorb(batch, weights)
    without.absorb(batch[weights > 0.0], np.ones(30))
    assert with_them.reliability == without.reliability
    assert with_them.target.find_faults(None) == {}
    assert np.array_equal(with_them.proba(P.X), without.proba(P.X))


def test_with_a_ramp_the_first_rows_weigh_little():
    follower = feed(Follower(LEARNED, MANNERS["ramped"]), P.X_target[:20])
    assert follower.adaptation.bent.target.loss_weight == pytest.approx(20.0 / 70.0)
    feed(follower, P.X_target[20:])
    n = len(P.X_target)
    assert follower.adaptation.bent.target.loss_weight == pytest.approx(n / (n + 50.0))


def test_refining_adds_up_until_the_next_row():
    follower = feed(Follower(LEARNED, MANNER), P.X_target)
    follower.refine(8)
    first = len(follower.adaptation.losses)
    follower.refine(8)
    assert (first, len(follower.adaptation.losses)) == (10, 16)
    feed(follower, P.X_target[:20])
    assert len(follower.adaptation.losses) == MANNER.n_steps
    follower.refine(8)
    assert len(follower.adaptation.losses) == 10
    assert follower.adaptation.bent.dictionary.proximal == 1.0  # more firmly than by itself


def test_the_same_target_told_to_other_sources():
    follower = feed(Follower(LEARNED, MANNER), P.X_target)
    told = follower.retell(teach(), MANNER, [0, 1, 2], [0, 1, 2])
    assert told.n_rows == follower.n_rows
    assert told.reliability == follower.reliability
    np.testing.assert_allclose(told.proba(P.X_target), follower.proba(P.X_target), atol=0.02)
    assert Follower(LEARNED, MANNER).retell(LEARNED, MANNER, [0, 1, 2], [0, 1, 2]).adaptation is None


def test_the_papers_summary_is_followed_too():
    learned = teach(view=False)
    manner = Manner(paper_settings(3), Options(proportions=False, votes=False), warm_start=True)
    follower = feed(Follower(learned, manner), P.X_target)
    assert follower.n_rows == len(P.X_target)
    right = follower.proba(P.X_target).argmax(axis=1) == P.y_target
    assert right.mean() > 0.8
