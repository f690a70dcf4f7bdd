import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baryflow import codec
from baryflow.drift import BettingDetector
from baryflow.drift.betting import BettingState, Detector
from baryflow.exceptions import InvalidInputError


def alarms(ranks, threshold):
    detector, found = BettingDetector(threshold), []
    for number, x in enumerate(ranks):
        detector.update(x)
        if detector.drift_detected:
            found.append(number)
    return found


def test_bets_are_fair():
    """Otherwise the threshold would not say how often there is a false alarm."""
    detector = BettingDetector(1e9)
    for x in (0.3, 0.9, 0.05, 0.31):
        detector.update(x)
    before = detector.state()
    total, n = np.zeros(len(before.wealth)), 2000
    # Bold bets win most at the very ends: there the midpoints of the integral lie closer.
    for u in (np.arange(n) + 0.5) / n:
        for x in (0.5 * u**8, 1.0 - 0.5 * u**8):
            detector = BettingDetector.from_state(before)
            detector.update(float(x))
            total += detector.state().wealth * 4.0 * u**7 / n
    assert total / np.maximum(before.wealth, 1.0) == pytest.approx(1.0, abs=0.01)


def test_false_alarms_are_as_rare_as_promised():
    ranks = np.random.default_rng(0).random(20_000)
    assert 1 <= len(alarms(ranks, threshold=100.0)) <= 20_000 / 100


@pytest.mark.parametrize(
    "change",
    [lambda x: x / 5, lambda x: 1 - x / 5, lambda x: 0.4 + x / 5],
    ids=["lower", "higher", "in the middle"],
)
def test_it_finds_every_kind_of_unevenness(change):
    rng = np.random.default_rng(1)
    ranks = np.concatenate([rng.random(500), change(rng.random(100))])
    found = alarms(ranks, threshold=10_000.0)
    assert found
    assert 500 <= found[0] < 560


def test_it_says_since_when_and_begins_anew_after_an_alarm():
    rng = np.random.default_rng(2)
    detector = BettingDetector(10_000.0)
    for n in range(1, 1000):
        detector.update(float(rng.random()) / (20 if n > 500 else 1))
        if detector.drift_detected:
            break
    assert abs(n - detector.since - 500) <= 5
    detector.update(0.5)
    assert not detector.drift_detected
    assert detector.since <= 1


@pytest.mark.parametrize("x", [-0.1, 1.1, float("nan")])
def test_what_is_no_rank_is_refused(x):
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        BettingDetector().update(x)


def test_extreme_ranks_do_not_overflow():
    detector = BettingDetector(1e300)
    with np.errstate(all="raise"):
        for x in [0.0, 1.0] * 5:
            detector.update(x)
    assert np.isfinite(detector.value)


def test_resumed_it_goes_on_bit_for_bit():
    ranks = np.random.default_rng(3).random(300) ** 1.5
    whole, half = BettingDetector(1e6), BettingDetector(1e6)
    for x in ranks:
        whole.update(float(x))
    for x in ranks[:150]:
        half.update(float(x))
    half = BettingDetector.from_state(codec.decode(BettingState, *codec.encode(half.state())))
    for x in ranks[150:]:
        half.update(float(x))
    for mine, other in zip(vars(whole.state()).values(), vars(half.state()).values(), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_state_that_does_not_fit_is_refused():
    state = BettingDetector().state()
    broken = BettingState(**{**vars(state), "wealth": state.wealth[1:]})
    with pytest.raises(InvalidInputError, match="wrong shapes"):
        BettingDetector.from_state(broken)


def test_it_has_the_shape_of_rivers_detectors():
    assert isinstance(BettingDetector(), Detector)
    assert not isinstance(object(), Detector)


@settings(max_examples=20, deadline=None)
@given(block=st.integers(2, 12), seed=st.integers(0, 1000))
def test_a_block_of_equal_ranks_is_one_bet(block, seed):
    ranks = np.random.default_rng(seed).random(60)
    single, blocks = BettingDetector(1e9), BettingDetector(1e9, block=block)
    for rank in ranks:
        single.update(rank)
        for _ in range(block):
            blocks.update(rank)
    assert blocks.value == pytest.approx(single.value)
    assert blocks.largest == pytest.approx(single.largest)
    assert blocks.since == pytest.approx(single.since * block)


def test_runs_of_equal_ranks_sound_unless_they_are_blocks():
    ranks = np.repeat(np.random.default_rng(0).random(400), 20)
    single, blocks = BettingDetector(), BettingDetector(block=20)
    alarms = [0, 0]
    for rank in ranks:
        for number, detector in enumerate((single, blocks)):
            detector.update(rank)
            alarms[number] += detector.drift_detected
    assert alarms[0] > 10
    assert alarms[1] == 0


def test_a_state_within_a_block_continues_bit_for_bit():
    ranks = np.random.default_rng(0).random(50)
    whole, first = BettingDetector(block=7), BettingDetector(block=7)
    for rank in ranks[:24]:
        first.update(rank)
    second = BettingDetector.from_state(first.state())
    for rank in ranks:
        whole.update(rank)
    for rank in ranks[24:]:
        second.update(rank)
    assert second.value == whole.value
    assert second.since == whole.since


def bet_one_by_one(ranks, threshold, block):
    """The definition: every gambler bets on every block, one after the other; return the alarms."""
    exponents, alarms, start = np.array([0.2, 0.4, 0.6, 0.8]), [], 0
    wealth, counts = np.ones(9), np.zeros(10)
    for end in range(1, len(ranks) + 1):
        if end - start < block:
            continue
        x, start = ranks[start:end], end
        parts = np.minimum((x * 10).astype(int), 9)
        if wealth[-1] < 1.0:
            counts = np.zeros(10)
        low, high = (np.maximum(side, 1e-12)[:, None] for side in (x, 1.0 - x))
        powers = np.hstack([exponents * side ** (exponents - 1.0) for side in (low, high)])
        learned = 10.0 * (counts[parts] + 0.5) / (counts.sum() + 5.0)
        wealth = np.maximum(wealth, 1.0) * np.append(powers.mean(axis=0), learned.mean())
        np.add.at(counts, parts, 1.0 / len(x))
        if wealth.mean() >= threshold:
            alarms.append((end - 1, wealth.mean()))
            wealth, counts = np.ones(9), np.zeros(10)
    return alarms


@given(
    seed=st.integers(0, 1000),
    skew=st.sampled_from([0.5, 1.0, 2.0, 5.0]),
    block=st.sampled_from([1, 2, 7]),
)
def test_alarms_are_those_of_the_definition(seed, skew, block):
    ranks = np.random.default_rng(seed).random(500) ** skew
    found = BettingDetector(50.0, block=block).update_many(ranks)
    expected = bet_one_by_one(ranks, 50.0, block)
    assert [one.number for one in found] == [number for number, _ in expected]
    assert [one.value for one in found] == pytest.approx([value for _, value in expected])


@given(
    ranks=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60),
    skew=st.sampled_from([0.2, 1.0, 5.0]),
    block=st.sampled_from([1, 3, 7]),
    cuts=st.lists(st.integers(0, 60), max_size=3),
)
def test_many_ranks_are_taken_as_one_after_the_other(ranks, skew, block, cuts):
    x = np.array(ranks) ** skew
    single, many = BettingDetector(20.0, block=block), BettingDetector(20.0, block=block)
    expected = []
    for number, one in enumerate(x):
        single.update(one)
        if single.drift_detected:
            expected.append((number, single.since, single.value))
    found, start = [], 0
    for end in sorted({*cuts, len(x)}):
        alarms = many.update_many(x[start:end])
        found += [(start + one.number, one.since, one.value) for one in alarms]
        start = max(start, min(end, len(x)))
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    assert [one[2] for one in found] == pytest.approx([one[2] for one in expected])
    for name, value in vars(single.state()).items():
        np.testing.assert_allclose(getattr(many.state(), name), value, err_msg=name)
