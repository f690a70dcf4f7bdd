"""Rows sampled from values that arrive one at a time."""

import json
import math
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.exceptions import InvalidInputError
from baryflow.streams.sampling.clock import parse_duration
from baryflow.streams.sampling.sampler import Sampler
from baryflow.streams.sampling.tags import Tag

TWO = [Tag("A", "a"), Tag("B", "b")]


def sampled(updates, tags=TWO, columns=("a", "b"), **options):
    sampler = Sampler(columns, tags, **({"interval": 10, "lateness": 0} | options))
    for update in updates:
        sampler.update(*update)
    return sampler


def rows(sampler, n=None):
    batch = sampler.batch(n)
    times = [datetime.fromisoformat(time).timestamp() for time in batch.times]
    return [(time, *row) for time, row in zip(times, batch.rows.tolist(), strict=True)]


def same(found, expected):
    np.testing.assert_equal(found, expected)


def test_a_row_holds_the_last_values_not_later_than_its_instant():
    sampler = sampled([("A", 1, 3), ("B", 2, 4), ("A", 3, 10), ("A", 4, 10.000001), ("B", 5, 21)])
    same(rows(sampler), [(10, 3.0, 2.0), (20, 4.0, 2.0)])


def test_a_row_is_made_only_after_its_instant_has_passed():
    sampler = sampled([("A", 1, 3), ("B", 2, 10)])
    assert rows(sampler) == []
    sampler.advance(10.000001)
    same(rows(sampler), [(10, 1.0, 2.0)])


def test_the_order_among_tags_does_not_matter_within_the_lateness():
    late = sampled([("A", 1, 9), ("A", 2, 10.9), ("B", 7, 9.9), ("A", 3, 31)], lateness=1)
    same(rows(late), [(10, 1.0, 7.0), (20, 2.0, 7.0)])
    assert late.counts["late"] == 0


def test_late_values_are_counted_and_used_unless_outdated():
    sampler = sampled([("A", 1, 9), ("B", 1, 9), ("A", 2, 15), ("B", 5, 9.5), ("A", 0, 8), ("A", 3, 21)])
    same(rows(sampler), [(10, 1.0, 1.0), (20, 2.0, 5.0)])
    assert sampler.counts["late"] == 2


def test_a_repeated_value_is_not_late():
    sampler = sampled([("A", 1, 9), ("B", 1, 9), ("A", 2, 15), ("B", 1, 9), ("A", 2, 15)])
    assert sampler.counts["late"] == 0


def test_a_first_value_may_be_old():
    sampler = sampled([("A", 1, 100), ("B", 2, 3), ("A", 1, 101)])
    same(rows(sampler), [(100, 1.0, 2.0)])
    assert sampler.counts["late"] == 0


def test_rows_begin_at_the_skipped_time():
    sampler = sampled([])
    sampler.skip(100)
    sampler.update("B", 2, 3)
    sampler.update("A", 1, 100)
    sampler.update("A", 1, 101)
    same(rows(sampler), [(100, 1.0, 2.0)])


@pytest.mark.parametrize(
    "value",
    [None, "x", "", [1.0], {}, b"1", math.nan, math.inf, -math.inf, 10**400, 1e200, 1j],
)
def test_a_value_that_is_not_a_number_is_missing_in_its_column_only(value):
    sampler = sampled([("A", 1, 9), ("B", 2, 9), ("A", value, 10), ("B", 3, 11)])
    same(rows(sampler), [(10, math.nan, 2.0)])
    assert sampler.counts["missing"] == 1


def test_a_bad_value_is_missing_until_a_good_one_arrives():
    sampler = sampled([("A", 1, 5), ("B", 2, 5), ("A", 1, 6, False), ("A", 4, 12), ("B", 2, 21)])
    same(rows(sampler), [(10, math.nan, 2.0), (20, 4.0, 2.0)])


@pytest.mark.parametrize("time", [None, "now", math.nan, math.inf, -1, 0, 1e300, 10**400, 2.6e11])
def test_a_value_without_a_time_is_skipped_and_reported(time):
    sampler = sampled([("A", 1, 5), ("B", 2, 5), ("A", 9, time), ("B", 2, 11)])
    batch = sampler.batch()
    same(batch.rows, [[1.0, 2.0]])
    assert batch.notices == ["values without a valid time, skipped: 1 so far"]


def test_text_booleans_and_scale():
    tags = [Tag("A", "a", scale=0.5, offset=1), Tag("B", "b")]
    sampler = sampled([("A", "3", 5), ("B", True, 5), ("A", 0, 11)], tags)
    same(rows(sampler), [(10, 2.5, 1.0)])


def test_an_unknown_address_returns_false():
    assert not sampled([]).update("C", 1, 1)


def test_values_too_old_are_missing():
    sampler = sampled([("A", 1, 9), ("B", 2, 9), ("B", 3, 19), ("B", 4, 29), ("B", 4, 31)], max_age=15)
    same(rows(sampler), [(10, 1.0, 2.0), (20, 1.0, 3.0), (30, math.nan, 4.0)])


def test_a_week_without_values_makes_few_rows_and_is_reported():
    sampler = sampled(
        [("A", 1, 1_000_009), ("B", 2, 1_000_009), ("A", 3, 1_600_001), ("B", 4, 1_600_011)]
    )
    batch = sampler.batch()
    assert len(batch.rows) == 20 + 1
    assert sampler.counts["late"] == 0
    assert batch.notices[1:] == [
        "no values from the plant since 1970-01-12T13:46:49Z: no rows until some arrive",
        "values from the plant arrive again; 59980 instants from 1970-01-12T13:50:10Z to 1970-01-19T12:26:40Z are missing",  # noqa: E501
    ]


def test_one_wrong_time_ahead_is_ignored():
    sampler = sampled(
        [("A", 1, 5), ("B", 2, 5), ("A", 9, 4e9), ("B", 3, 11), ("A", 5, 12), ("A", 6, 21)]
    )
    same(rows(sampler), [(10, 1.0, 2.0), (20, 5.0, 3.0)])
    assert sampler.counts["doubted"] == 1


def test_a_single_tag_is_trusted_after_many_repetitions_and_no_value_is_lost():
    later = [("A", number, 4e9 + 10 * number) for number in range(102)]
    sampler = sampled([("A", 1, 5), ("B", 2, 5), *later])
    assert [row[1] for row in rows(sampler)[-101:]] == list(range(101))


def test_a_wrong_clock_does_not_stop_the_others():
    """One tag is always an hour ahead; the others are not affected."""
    both = [("A", 0, 1)]
    for number in range(1, 200):
        both += [("A", number, 10 * number + 1), ("B", 7, 10 * number + 3601)]
    assert [row[1] for row in rows(sampled(both))] == list(range(199))


def test_a_wrong_clock_that_came_first_is_overruled():
    both = [("B", 7, 100_000)]
    for number in range(400):
        both += [("A", number, 10 * number + 1)] + [("B", 7, 100_000 + number)] * (number % 10 == 0)
    sampler = sampled(both)
    assert [row[1] for row in rows(sampler)[-100:]] == list(range(299, 399))


def test_a_confirmed_jump_loses_no_value():
    sampler = sampled([("A", 1, 5), ("B", 2, 5), ("A", 9, 4e9), ("B", 3, 4e9), ("A", 9, 4e9 + 1)])
    assert rows(sampler)[-1] == (4e9, 9.0, 3.0)


def test_a_clock_that_was_set_back_is_followed():
    sampler = sampled([("A", 1, 4e9), ("B", 2, 4e9)])
    sampler.advance(4e9 + 1)
    for step in range(300):
        sampler.update("A", step, 1000 + step)
        sampler.update("B", step, 1000 + step)
    batch = sampler.batch()
    assert batch.times[0] == "2096-10-02T07:06:40Z"
    assert batch.times[-1] == "1970-01-01T00:21:30Z"
    assert any("went back" in notice for notice in batch.notices)


def test_each_target_has_its_own_rows():
    tags = [Tag(f"{key}{column}", column, key=key) for key in ("p", "q") for column in "ab"]
    first = [("pa", 1, 5), ("pb", 2, 5), ("qa", 3, 5)]
    sampler = sampled([*first, ("pa", 1, 11), ("qb", 4, 12), ("pa", 1, 21)], tags)
    batch = sampler.batch()
    assert batch.keys == ["p", "q", "p", "q"]
    assert batch.offsets[1] == "q@1970-01-01T00:00:10Z"
    same(batch.rows, [[1, 2], [3, math.nan], [1, 2], [3, 4]])


def test_a_gap_is_skipped_and_reported():
    sampler = sampled([("A", 1, 5), ("B", 2, 5), ("A", 1, 12)])
    sampler.skip(55, "the server was away")
    sampler.update("A", 3, 55)
    sampler.update("A", 3, 61)
    batch = sampler.batch()
    assert batch.times == ["1970-01-01T00:00:10Z", "1970-01-01T00:01:00Z"]
    same(batch.rows, [[1, 2], [3, 2]])
    assert batch.notices == [
        "4 instants from 1970-01-01T00:00:20Z to 1970-01-01T00:00:50Z are missing: the server was away"
    ]


def test_fractions_of_a_second_are_exact():
    sampler = Sampler(["a"], [Tag("A", "a")], interval=0.1, lateness=0)
    begin = 1_700_000_000
    for step in range(500):
        sampler.update("A", step, begin + step / 10)
    found = rows(sampler)
    assert [value for _, value in found] == list(range(499))
    assert found[3][0] == begin + 0.3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3min", 180), ("10s", 10), ("500ms", 0.5), ("1h", 3600), ("2.5", 2.5), (" 1 d ", 86400)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "min", "3 weeks", "-1s", "0", "1e3", "nan", "1:30"])
def test_invalid_durations_are_refused(text):
    with pytest.raises(InvalidInputError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ([Tag("A", "a")], "lack the column b"),
        ([*TWO, Tag("C", "c")], "'c', which is none"),
        ([*TWO, Tag("C", "b")], "two tags: 'B' and 'C'"),
        ([*TWO, Tag("C", "a", key="q")], "of 'q' lack the column b"),
    ],
)
def test_tags_that_do_not_fit_the_columns_are_refused(tags, words):
    with pytest.raises(InvalidInputError, match=words):
        Sampler(["a", "b"], tags, 10)


# Times near each other and far, in order and not, so that rows, gaps, leaps and late values all occur.
steps = st.sampled_from([0.0, 0.3, 1.0, 4.0, 9.0, -3.0, 25.0, 300.0, 90_000.0, -90_000.0, 1e9])
values = st.one_of(st.floats(-5, 5), st.sampled_from([None, "x", math.inf, 7]))
events = st.lists(st.tuples(st.sampled_from(["pa", "pb", "qa", "qb", ""]), values, steps, st.booleans()),
                  max_size=40)  # fmt: skip


def two_targets(**options):
    tags = [Tag(f"{key}{column}", column, key=key) for key in ("p", "q") for column in "ab"]
    return Sampler(["a", "b"], tags, 10, **options)


def feed(sampler, time, event):
    address, value, step, good = event
    time = min(time + step, 2e11)
    sampler.update(address, value, time, good) if address else sampler.advance(time)
    return time


def written(batch):
    return json.dumps([batch.rows.tolist(), batch.times, batch.keys, batch.offsets, batch.notices,
                       batch.positions.tolist(), batch.cursor])  # fmt: skip


def without_cursor(batch):
    return [list(row) for row in zip(batch.times, batch.keys, batch.rows.tolist(), strict=True)]


@given(events, st.sets(st.integers(0, 40)), st.sampled_from([None, 15.0]), st.sampled_from([None, 1, 3]))
def test_resume_equals_uninterrupted(events, kills, max_age, n):
    whole, broken, time = two_targets(max_age=max_age), two_targets(max_age=max_age), 1e9
    for number, event in enumerate(events):
        feed(whole, time, event)
        feed(broken, time, event)
        time = min(time + event[2], 2e11)
        if number in kills:
            state = json.loads(json.dumps(broken.state(), allow_nan=False))
            broken = two_targets(max_age=max_age)
            broken.resume(state)
        if number % 3 == 0:
            assert written(whole.batch(n)) == written(broken.batch(n))
    assert written(whole.batch()) == written(broken.batch())


@given(events, st.lists(st.integers(1, 40)))
def test_rows_do_not_depend_on_when_they_are_taken(events, moments):
    eager, lazy, time = two_targets(), two_targets(), 1e9
    taken = []
    for event in events:
        feed(eager, time, event)
        taken += without_cursor(eager.batch(1)) + without_cursor(eager.batch())
        time = feed(lazy, time, event)
    np.testing.assert_equal(taken, without_cursor(lazy.batch()))


@given(st.lists(st.tuples(st.sampled_from("AB"), st.floats(-5, 5), st.integers(0, 200)), max_size=60))
def test_rows_equal_a_plain_search(updates):
    """In order and without gaps, a row equals a search through all values."""
    updates = sorted(updates, key=lambda update: update[2])
    updates = [(address, value, 1000 + time) for address, value, time in updates]
    sampler = sampled(updates, max_age=40)
    expected = []
    if updates:
        for instant in range(-(-updates[0][2] // 10) * 10, updates[-1][2], 10):
            known = {address: (value, time) for address, value, time in updates if time <= instant}
            known = {address: value for address, (value, time) in known.items() if time >= instant - 40}
            if known:
                expected.append((instant, known.get("A", math.nan), known.get("B", math.nan)))
    same(rows(sampler), expected)
