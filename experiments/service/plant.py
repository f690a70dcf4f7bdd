"""Inject faults on the live page, and see how long it takes until their alarms are raised.

``python -m experiments.service.plant FOLDER`` takes runs of mode 1 that the model has not learned from
(FOLDER: what ``baryflow tep simulate`` has written) to find the faults that it diagnoses offline: those
of which nine windows of ten are diagnosed correctly, each window beginning with the fault or later.
Without FOLDER it takes the faults in ``results/plant.csv``. It then opens ``baryflow demo --live
--plant`` in chromium. After 24 simulated hours without a fault it injects each of ten such faults,
drawn at random, waits until the page lists its alarm, at most two windows (ten hours), and ends the
fault. A line for each goes to ``results/plant.csv``: the hours until the alarm, how often it was raised
while the fault lasted, and how many other alarms were raised before the next fault.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path

import numpy as np
import pandas as pd
from playwright.sync_api import sync_playwright

from baryflow.live.controller import PlantController, serve_plant
from baryflow.live.plant import INTERVAL, class_name, load_plant_model
from baryflow.tep.signals import read_shard
from baryflow.tep.tables import FAULTS

RESULTS = Path(__file__).parent / "results" / "plant.csv"
RUNS = range(6, 16)
#: Simulated hours of normal operation before the first fault and between two of them.
BEFORE, BETWEEN = 24.0, 40.0
#: Simulated hours per second, and while a fault lasts.
SPEED, SLOW = 30.0, 5.0
ENOUGH = 0.9


def offline(pair, folder):
    """Return the share of windows of each fault that are diagnosed correctly in mode 1."""
    names = np.array([class_name(fault) for fault in range(len(FAULTS))])
    right = np.zeros((len(RUNS), len(FAULTS)))
    starts = (0, 25, 50, 75, 100)
    for i, run in enumerate(RUNS):
        signals, cases = read_shard(folder / "mode1" / f"run{run:03d}.bary")
        for (fault, _), signal in zip(cases, signals, strict=True):
            windows = np.stack([signal[start : start + pair.length] for start in starts])
            rows = pair.features.transform(windows, "mode 1")
            frame = pd.DataFrame(rows, columns=pair.model.feature_names_in_)
            right[i, fault] = (pair.model.predict(frame) == names[fault]).mean()
    return right.mean(axis=0)


def hours_in(text):
    """Return the simulated hours that a text names."""
    day, hour, minute = map(int, re.search(r"day (\d+), (\d+):(\d+)", text).groups())
    return 24 * (day - 1) + hour + minute / 60


def wait_hours(page, feeding, hours):
    until = hours_in(page.inner_text("#plant-said")) + hours
    while hours_in(page.inner_text("#plant-said")) < until:
        assert feeding.running() or feeding.result() is None  # raises the error of the feed
        page.wait_for_timeout(100)


def read(page, path):
    return page.request.get(page.url.split("/?")[0] + path).json()


def alarms_after(page, row):
    """Return the alarms raised after a row of the target: row, hour and class."""
    return [
        (one["row"], hours_in(one["time"]), one["alarm"])
        for one in read(page, "/v1/targets/plant/view")["changes"]
        if one["row"] > row and one["change"] in ("raised", "repeated")
    ]


def set_speed(page, speed):
    page.request.post(page.url.split("/?")[0] + "/v1/plant/speed", data={"speed": speed})


def follow(page, feeding, fault, most):
    """Inject a fault; return hours until its alarm, how often it was raised, and other alarms."""
    set_speed(page, SLOW)
    page.select_option("#plant-fault", str(fault))
    page.get_by_role("button", name="Inject the fault").click()
    page.locator("#events").get_by_text(f"fault {fault} injected").first.wait_for()
    begin, name = hours_in(page.inner_text("#plant-said")), class_name(fault)
    active = page.locator("#alarm-list :is(li.unacknowledged, li.acknowledged)", has_text=name)
    while not active.count() and hours_in(page.inner_text("#plant-said")) <= begin + most:
        page.wait_for_timeout(50)
    page.get_by_role("button", name="End the fault").click()
    set_speed(page, SPEED)
    wait_hours(page, feeding, BETWEEN)
    first, last = read(page, "/v1/demo")["marks"][-2:]
    alarms = alarms_after(page, first["row"])
    own = [hour for row, hour, alarm in alarms if alarm == name and row <= last["row"]]
    hours = f"{own[0] - hours_in(first['words']):.2f}" if own else ""
    return hours, len(own), len(alarms) - len(own)


def choose(pair, folder, seed):
    """Return ten faults that are diagnosed offline, and the share of windows diagnosed correctly."""
    if folder is None:
        with RESULTS.open(encoding="utf-8") as file:
            return {int(line["fault"]): line["diagnosed offline"] for line in csv.DictReader(file)}
    shares = offline(pair, folder)
    fit = [fault for fault in range(1, len(FAULTS)) if shares[fault] >= ENOUGH]
    chosen = np.random.default_rng(seed).permutation(fit)[:10].tolist()
    return {fault: f"{shares[fault]:.2f}" for fault in chosen}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pair = load_plant_model()
    chosen = choose(pair, options.folder, options.seed)
    most, lines = 2 * pair.length * INTERVAL, []
    with serve_plant(PlantController(pair, SPEED)) as (url, feeding), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        page.wait_for_function("() => /^day/.test(document.querySelector('#plant-said').textContent)")
        wait_hours(page, feeding, BEFORE)
        print(len(alarms_after(page, 0)), f"false alarms in {BEFORE:g} h", flush=True)
        for fault, share in chosen.items():
            lines.append((fault, FAULTS[fault], share, *follow(page, feeding, fault, most)))
            print(lines[-1], flush=True)
        browser.close()
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["fault", "what", "diagnosed offline", "hours until the alarm", "alarms", "other alarms"]
        )
        writer.writerows(lines)
    found = sum(hours != "" for *_, hours, _, _ in lines)
    print(f"{found} of {len(lines)} faults raised their alarm within {most:g} simulated hours")


if __name__ == "__main__":
    main()
