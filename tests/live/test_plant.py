"""The simulated plant in the loop: by itself, and by the buttons of the page."""

import csv
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from baryflow.live.controller import Driver
from baryflow.live.fault_names import class_name, clock
from baryflow.live.plant import RunningPlant, embedded_pair, embedded_settled
from baryflow.live.runner import show_plant
from baryflow.tep.plant.model import Plant
from baryflow.tep.tables import MODES
from tests.service.browser import open_browser, open_page

SAID = "document.querySelector('#plant-said').textContent"


@pytest.fixture(scope="module")
def pair():
    return embedded_pair()


def _go(plant, hours):
    """Return the windows of some hours, and why the plant shut down."""
    windows, end = [], plant.hours + hours
    while plant.hours < end - 1e-9:
        some, trip = plant.go_on()
        windows += some
        if trip is not None:
            return windows, trip
    return windows, None


def test_a_run_that_is_led_on_is_the_run_in_one_go():
    begin, seed = embedded_settled()[1], 8.0 * 12345
    whole = Plant().run(begin, MODES[1], hours=8, seed=seed, fault=8, onset=3.0).signal
    led = Plant()
    led.begin(begin, seed)
    parts = [led.go_on(20, MODES[1]).signal for _ in range(3)]
    parts += [led.go_on(20, MODES[1], fault=8).signal for _ in range(5)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_windows_come_as_they_fill(pair):
    plant = RunningPlant(pair)
    windows, trip = _go(plant, 10.0)
    assert trip is None
    assert [round(window.hour, 2) for window in windows] == [5.0, 6.25, 7.5, 8.75, 10.0]
    assert {window.fault for window in windows} == {0}


def test_the_plant_goes_to_another_mode_and_is_compared_with_it(pair):
    plant = RunningPlant(pair)
    _go(plant, 6.0)
    plant.set_mode(4)
    on_its_way, _ = _go(plant, 20.0)
    there, trip = _go(plant, 90.0)
    assert trip is None
    far, near = (np.abs([w.features for w in some[-4:]]).mean() for some in (on_its_way, there))
    assert near < 0.5 * far


def test_a_plant_that_shuts_down_starts_again(pair, monkeypatch):
    monkeypatch.setattr("baryflow.live.plant.MAGNITUDES", {})
    plant = RunningPlant(pair, mode=4)
    plant.set_fault(6)  # at its full size
    _, trip = _go(plant, 60.0)
    assert trip
    assert (plant.fault, plant.n_trips) == (0, 1)
    windows, trip = _go(plant, 6.0)
    assert trip is None
    assert len(windows) == 1  # no window holds rows of both lives


@pytest.mark.parametrize(
    ("what", "body", "status", "words"),
    [
        ("fault", {"fault": 29}, 422, "expected a fault from 0 to 28, got 29"),
        ("fault", {"fault": True}, 422, "got True"),
        ("mode", {"mode": 0}, 422, "expected a mode from 1 to 6, got 0"),
        ("speed", {"speed": "fast"}, 422, "expected 1 to 40 hours in a second"),
        ("speed", {"mode": 3}, 422, 'expected {"speed": number}'),
        ("speed", [3], 422, 'expected {"speed": number}'),
        ("fault", {"fault": 1, "more": "x" * 2000}, 413, "1024 bytes"),
        ("power", {"power": 1}, 404, "the plant has fault, mode, speed"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(buttons, what, body, status, words):
    answer = buttons.post(f"/v1/plant/{what}", json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]


@pytest.fixture(scope="module")
def buttons(pair):
    """Return a client of a plant that never runs."""
    from baryflow.service import background, create_app

    app = create_app(pair.model, extra_routes=Driver(pair, 5.0).routes())
    with background(app) as url, httpx.Client(base_url=url) as client:
        yield client


def test_times_are_said_as_people_do():
    assert clock(0.0) == "day 1, 00:00"
    assert clock(24.0 + 13.75) == "day 2, 13:45"
    assert class_name(0) == "normal"
    assert class_name(4) == "F04 · reactor cooling water inlet temperature: step"


def test_a_fault_from_the_page_is_named_on_it(pair):
    with (
        show_plant(Driver(pair, 40.0)) as (url, _),
        open_browser() as browser,
        open_page(browser, url) as page,
    ):
        page.wait("() => Number(document.body.dataset.rows) >= 16", seconds=300)
        for fault in (4, 14):
            page.page.get_by_role("button", name=f"fault {fault}:").click()
            page.wait(f"() => /Fault {fault} .*found after/.test({SAID})", 30)
            said = page.text("#plant-said")
            assert float(re.search(r"found after ([\d.]+) h", said)[1]) <= 10.0
            name = class_name(fault)
            page.wait(f"() => document.querySelector('#recent').textContent.includes({name!r})")
            page.page.locator("#events").get_by_text(f"fault {fault} is let in").wait_for()
        page.page.get_by_role("button", name="operating mode 4").click()
        page.wait(
            "() => document.querySelector('#plant-said').textContent.includes('its way to mode 4')"
        )
        assert (
            page.page.get_by_role("button", name="operating mode 4").get_attribute("aria-pressed")
            == "true"
        )
        assert page.violations() == []
        assert page.errors == []
        assert page.elsewhere == []


def test_what_the_docs_promise_was_measured():
    path = Path(__file__).parents[2] / "experiments" / "service" / "results" / "plant.csv"
    with path.open(encoding="utf-8") as file:
        hours = [line["hours until the page named it"] for line in csv.DictReader(file)]
    assert len(hours) == 10
    assert sum(took != "" and float(took) <= 10.0 for took in hours) >= 8


def test_the_command_serves_the_page_until_it_is_interrupted():
    command = [sys.executable, "-m", "baryflow", "demo", "--live", "--plant", "--no-browser"]
    # Compiling the plant takes four seconds of CPU; here it need not be fast.
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            address = process.stderr.readline().removeprefix("the page: ").strip()
            assert address.endswith("/?demo#plant")
            assert "baryflow live" in httpx.get(address.split("?")[0]).text
        finally:
            process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 0
