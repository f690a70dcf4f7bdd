"""The plant under its controller. The reference means come from an independent implementation of the
controller on the same model, with the same noise: between two seeds the mean of the stripper steam alone
differs by up to 2 % in 30 h."""

import json
from pathlib import Path

import numpy as np
import pytest

from baryflow.tep.plant.control import LOOPS, N_MEMORY, TRIMS, memory_at_base_case
from baryflow.tep.plant.simulation import noise_seed
from baryflow.tep.tables import (
    FAULTS,
    MAGNITUDES,
    MEASUREMENTS,
    MODES,
    REACHED_FROM,
    VALVES,
    VARIABLES,
)

REFERENCE = json.loads(Path(__file__).with_name("reference_means.json").read_text())


@pytest.fixture(scope="module", params=range(1, 7))
def mode(request):
    return request.param


@pytest.fixture(scope="module")
def course(plant, settled, mode):
    """Thirty hours of a mode."""
    seed = noise_seed(2024, mode, 0, 2000)
    return plant.run(settled[mode], MODES[mode], hours=35, seed=seed, record_from=5)


def test_every_mode_settles_where_the_reference_does_and_does_not_trip_in_30_hours(course, mode):
    assert course.trip is None
    assert course.signal.shape == (600, 34)
    np.testing.assert_allclose(course.signal[:, :22].mean(0), REFERENCE[str(mode)], rtol=0.01)


def test_the_controller_holds_what_it_is_asked_for(course, mode):
    setpoints = MODES[mode]
    mean = dict(zip([v.tag for v in VARIABLES], course.signal.mean(0), strict=True))
    assert mean["XMEAS17"] == pytest.approx(setpoints.production, rel=0.005)
    assert mean["XMEAS7"] == pytest.approx(setpoints.reactor_pressure, rel=0.002)
    assert mean["XMEAS8"] == pytest.approx(setpoints.reactor_level, abs=0.5)
    assert mean["XMEAS9"] == pytest.approx(setpoints.reactor_temperature, abs=0.05)
    assert mean["XMV9"] == setpoints.steam_valve
    assert mean["XMV12"] == setpoints.agitator


def test_same_seed_same_bits_and_another_seed_others(plant, settled):
    runs = [plant.run(settled[1], MODES[1], hours=2, seed=seed).signal for seed in (8.0, 8.0, 24.0)]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_a_run_does_not_change_where_it_began(plant, settled):
    before = [part.copy() for part in settled[1]]
    plant.run(settled[1], MODES[1], hours=1, seed=8.0)
    assert all(np.array_equal(a, b) for a, b in zip(before, settled[1], strict=True))


def test_a_fault_shows_from_its_onset_on_and_in_proportion_to_its_size(plant, settled):
    def feed_a(size):
        return plant.run(
            settled[1], MODES[1], hours=3, seed=8.0, fault=6, magnitude=size, onset=1.0
        ).signal[:, 0]

    none, half, most = feed_a(0.0), feed_a(0.25), feed_a(0.5)
    assert np.array_equal(none[:20], most[:20])  # an hour: 20 rows
    # The feed valve fights back at first; just after the onset the loss is what it is.
    assert none[21] > half[21] > most[21]
    assert (none[21] - half[21]) / (none[21] - most[21]) == pytest.approx(0.5, abs=0.1)


def test_a_trip_is_told_with_its_reason(plant, settled):
    course = plant.run(settled[4], MODES[4], hours=35, seed=8.0, fault=6, onset=5.0)
    assert 5 < course.trip.time < 30
    assert "Shutting down" in course.trip.reason
    assert len(course.signal) == pytest.approx(course.trip.time / 0.05, abs=1)


def test_the_tables_agree_with_each_other():
    assert len(VARIABLES) == 34 == len(MEASUREMENTS) + len(VALVES)
    assert len(FAULTS) == 29
    assert set(REACHED_FROM) == set(range(1, 7))
    assert all(mode in MODES and 0 < fault < 29 for mode, fault in MAGNITUDES)
    assert len({loop.moves for loop in LOOPS + TRIMS}) == N_MEMORY
    assert len(memory_at_base_case(22.95, 53.72)) == N_MEMORY
    assert {valve.name for valve in VALVES} >= {
        loop.moves for loop in LOOPS if loop.moves.endswith("valve")
    }
