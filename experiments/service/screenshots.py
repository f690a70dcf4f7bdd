"""Take pictures of the live page, wide and narrow, light and dark, for docs/images.

``python -m experiments.service.screenshots`` replays the embedded stream, runs the plant with a fault,
and follows a machine whose calibration is not known. Pictures are reduced to 256 colours: what is on
them is flat.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from baryflow import OnlineDaDiL, demo
from baryflow.alarms import AlarmConfig
from baryflow.client import Client
from baryflow.datasets import make_domains
from baryflow.live.controller import PlantController, serve_plant
from baryflow.live.plant import load_plant_model
from baryflow.live.replay import Replay, serve_replay
from baryflow.service import background, create_app

IMAGES = Path(__file__).parents[2] / "docs" / "images"
TALL = {"width": 1440, "height": 1280}
WIDE, NARROW = {"width": 1440, "height": 1000}, {"width": 390, "height": 844}


def take(browser, url, name, size, scheme, act, whole=True):
    page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
    page.goto(url)
    act(page)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path, full_page=whole)
    page.context.close()
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path.name, path.stat().st_size // 1024, "KB", flush=True)


def wait_rows(page, n):
    page.wait_for_function(f"() => Number(document.body.dataset.rows) >= {n}", timeout=180_000)
    page.wait_for_timeout(1500)  # until rows that were sent are shown


def inject(page, fault):
    page.select_option("#plant-fault", str(fault))
    page.get_by_role("button", name="Inject the fault").click()
    status = "document.querySelector('#plant-said').textContent"
    page.wait_for_function(f"() => /Fault {fault} .*alarm raised/.test({status})", timeout=60_000)


def with_fault(page):
    """Fault 4, acknowledged and over; then fault 14."""
    wait_rows(page, 40)
    inject(page, 4)
    page.get_by_role("button", name="Acknowledge F04").click()
    page.get_by_role("button", name="End the fault").click()
    wait_rows(page, 75)
    inject(page, 14)
    page.wait_for_timeout(1500)
    page.locator("#demo").evaluate("(node) => scrollTo(0, node.offsetTop - 12)")


def explained(page):
    page.get_by_text("F14").first.wait_for()
    page.locator("#recent button").first.click()
    page.wait_for_selector("#why[open] table")
    page.wait_for_timeout(300)


@contextlib.contextmanager
def serve_unsettled():
    """Follow a machine that is mostly normal and calibrated unlike four others; yield the address."""
    p, rng = make_domains(n_classes=4, shift=1.0, random_state=1), np.random.default_rng(1)
    names = np.array(["normal", "worn", "leak", "dry"])

    def calibrate(X):
        gain, offset = np.exp(rng.normal(0, 0.25, X.shape[1])), rng.normal(0, 1, X.shape[1])
        return X * gain + offset * p.X.std(axis=0)

    X = np.concatenate([calibrate(p.X[p.domain == source]) for source in (1, 2, 3, 4)])
    model = OnlineDaDiL(classifier="linear", random_state=0).fit(X, names[p.y], p.domain)
    model.feature_names_in_ = np.array([f"P_{i + 1}" for i in range(X.shape[1])])
    target, normal = calibrate(p.X_target), np.flatnonzero(p.y_target == 0)
    faults = rng.permutation(np.flatnonzero(p.y_target != 0))[:15]
    mixed = rng.permutation(np.concatenate([normal[30:85], faults]))
    rows = target[np.concatenate([normal[:30], mixed])]
    alarms = AlarmConfig.from_table({"on-delay": 5, "off-delay": 10, "probability": 0.5})
    app = create_app(model, batch_size=20, alarms=alarms)
    with background(app) as url, Client(url) as client:
        client.send("pump", rows)
        yield url


def unsettled(page):
    page.locator("#unsettled").wait_for()
    page.wait_for_timeout(1500)


def main():
    IMAGES.mkdir(exist_ok=True)
    replay = Replay.fit(demo.problem())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        with serve_replay(replay, speed=40.0) as (url, feeding):
            take(browser, url, "live", WIDE, "light", lambda page: wait_rows(page, 600), whole=False)
            take(browser, url, "live-wide-dark", WIDE, "dark", lambda page: wait_rows(page, 800))
            take(browser, url, "live-narrow-light", NARROW, "light", lambda page: wait_rows(page, 900))
            assert feeding.running() or feeding.result() is None
        with serve_plant(PlantController(load_plant_model(), 10.0)) as (url, feeding):
            take(browser, url, "live-plant", TALL, "light", with_fault, whole=False)
            take(browser, url, "live-why", WIDE, "light", explained, whole=False)
            assert feeding.running() or feeding.result() is None
        with serve_unsettled() as url:
            take(browser, url, "live-unsettled", WIDE, "light", unsettled, whole=False)
        browser.close()


if __name__ == "__main__":
    main()
