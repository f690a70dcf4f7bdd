"""Inject faults by the buttons of the live page, and see how long it takes until the page names them.

``python -m experiments.service.plant FOLDER`` takes runs of mode 1 that the model has not learned from
(FOLDER: what ``baryflow tep simulate`` has written) to find the faults that it diagnoses offline: those
of which nine windows of ten are named rightly, each window beginning with the fault or later. Then it
starts ``baryflow demo --live --plant``, opens the page in chromium, and for each of ten such faults,
drawn at random: presses its button, waits until the page's last diagnosis is that fault or two windows
(ten simulated hours) have passed, and takes the fault away. A line for each goes to
``results/plant.csv``.
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
BEFORE, BETWEEN = 100.0, 40.0
SPEED = 20.0
ENOUGH = 0.9


def offline(pair, folder):
    """Return the share of windows of each fault that are named rightly in mode 1."""
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
        feeding.wait(0.0)  # says what went wrong, if something did
        page.wait_for_timeout(100)


def inject(page, fault, most):
    """Press a button; return the hours from the fault to its name on the page, or None."""
    page.get_by_role("button", name=f"fault {fault}:").click()
    told = page.locator("#events").get_by_text(f"fault {fault} injected").first
    told.wait_for()
    begun = hours_in(told.inner_text())
    while True:
        # All diagnoses that the page lists, each with the simulated time at the end of its window.
        listed = page.evaluate(
            "() => [...document.querySelectorAll('#recent .row')].map((b) => [b.title, b.innerText])"
        )
        times = [hours_in(text) for label, text in listed if label == class_name(fault)]
        found = [at - begun for at in times if begun < at <= begun + most]
        if found:
            return min(found)
        if hours_in(page.inner_text("#plant-said")) > begun + most + 5.0:
            return None
        page.wait_for_timeout(50)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pair = load_plant_model()
    shares = offline(pair, options.folder)
    fit = [fault for fault in range(1, len(FAULTS)) if shares[fault] >= ENOUGH]
    chosen = np.random.default_rng(options.seed).permutation(fit)[:10].tolist()
    print("diagnosable offline:", fit, "chosen:", chosen, flush=True)
    most = 2 * pair.length * INTERVAL
    lines = []
    with serve_plant(PlantController(pair, SPEED)) as (url, feeding), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        page.wait_for_function("() => /^day/.test(document.querySelector('#plant-said').textContent)")
        wait_hours(page, feeding, BEFORE)
        for fault in chosen:
            took = inject(page, fault, most)
            lines.append(
                (fault, FAULTS[fault], f"{shares[fault]:.2f}", "" if took is None else f"{took:.2f}")
            )
            print(lines[-1], flush=True)
            page.get_by_role("button", name="no fault").click()
            wait_hours(page, feeding, BETWEEN)
        browser.close()
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["fault", "what", "named rightly offline", "hours until the page named it"])
        writer.writerows(lines)
    found = sum(took != "" for *_, took in lines)
    print(f"{found} of {len(lines)} faults were named within {most:g} simulated hours")


if __name__ == "__main__":
    main()
