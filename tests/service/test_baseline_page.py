"""What is not known of a target, and how an operator settles it, in a real browser."""

import httpx
import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.alarms import AlarmConfig
from baryflow.datasets import make_domains
from baryflow.service import background, create_app
from tests.service.browser import NARROW, WIDE, open_browser, open_page
from tests.service.conftest import post

NAMES = np.array(["normal", "worn", "leak", "dry"])


class Fleet:
    """Machines with an offset and a gain of every column; the last is a target, 85 % normal."""

    def __init__(self, seed):
        p, rng = make_domains(n_classes=4, shift=1.0, random_state=seed), np.random.default_rng(seed)

        def calibrate(X):
            gain, offset = np.exp(rng.normal(0, 0.25, X.shape[1])), rng.normal(0, 1, X.shape[1])
            return X * gain + offset * p.X.std(axis=0)

        X = np.concatenate([calibrate(p.X[p.domain == source]) for source in (1, 2, 3, 4)])
        self.model = OnlineDaDiL(classifier="linear", keep_sources=False, random_state=0)
        self.model.fit(X, NAMES[p.y], p.domain)
        self.model.feature_names_in_ = np.array([f"P_{i + 1}" for i in range(X.shape[1])])
        self.X, self.y = calibrate(p.X_target), NAMES[p.y_target]
        normal, faults = np.flatnonzero(self.y == "normal"), np.flatnonzero(self.y != "normal")
        mixed = rng.permutation(
            np.concatenate([normal[30:85], faults[rng.permutation(len(faults))[:15]]])
        )
        self.stream = np.concatenate([normal[:30], mixed])

    def lasting(self, fault, n):
        """Return rows of one fault, drawn with replacement and some noise."""
        rng = np.random.default_rng(0)
        some = rng.choice(np.flatnonzero(self.y == fault), n)
        return self.X[some] + 0.01 * self.X.std(axis=0) * rng.normal(size=(n, self.X.shape[1]))


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def fleet():
    return Fleet(58)


@pytest.fixture
def service(fleet):
    alarms = AlarmConfig.from_table({"on-delay": 5, "off-delay": 10, "probability": 0.5})
    app = create_app(fleet.model, batch_size=20, alarms=alarms)
    with background(app) as url, httpx.Client(base_url=url, timeout=300) as client:
        post(client, "pump", fleet.X[fleet.stream])
        yield client


def share_right(client, fleet):
    recent = client.get("/v1/targets/pump/view").json()["recent"]
    true = fleet.y[fleet.stream]
    return np.mean([true[row["position"] - 1] == row["now"] for row in recent])


def drag(page, first, last, n):
    """Select rows on the timeline with the pointer."""
    while (box := page.page.locator("#lanes .track").first.bounding_box()) is None:
        pass  # the lanes were just drawn again
    x = [box["x"] + box["width"] * (row - 0.5) / n for row in (first, last)]
    page.page.mouse.move(x[0], box["y"] + 8)
    page.page.mouse.down()
    page.page.mouse.move(x[1], box["y"] + 8, steps=5)
    page.page.mouse.up()


SIZES = [WIDE, NARROW]


def check_looks(page):
    """Nothing is wider than the window, and axe finds nothing."""
    assert page.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert page.violations_in_both_schemes() == []


@pytest.mark.parametrize("size", SIZES)
def test_hours_that_were_normal_settle_what_the_banner_lists(browser, service, fleet, size):
    before = share_right(service, fleet)
    with open_page(browser, str(service.base_url), size) as page:
        page.page.locator("#unsettled").wait_for()
        assert "explanations of this target fit" in page.text("#unsettled-note")
        assert page.page.locator("#competing li").count() > 1
        assert "likely: normal" in page.text("#competing")
        assert "compared with the sources, P_" in page.text("#competing")
        check_looks(page)
        page.page.locator("#settle-baseline").click()
        drag(page, 1, 30, 100)
        first, last = (int(page.page.input_value(f"#baseline-{end}")) for end in ("first", "last"))
        assert (first, last) == (1, 30)
        assert page.page.locator("#lanes .chosen").first.is_visible()
        assert page.page.input_value("#baseline-class") == "normal"
        reliability = service.get("/v1/targets/pump").json()["reliability"]
        page.page.get_by_role("button", name="Use as baseline").click()
        page.wait(
            "() => document.querySelector('#baseline-note').textContent.includes('30 rows of normal')"
        )
        page.wait("() => document.querySelector('#now-label').textContent === 'normal'")
        assert "now as normal" in page.text("#timeline-caption")
        after = share_right(service, fleet)
        assert (before < 0.7, after > 0.85) == (True, True)
        assert service.get("/v1/targets/pump").json()["reliability"] > reliability
        # A fault that stays on for a thousand rows keeps its alarm.
        for rows in np.split(fleet.lasting("leak", 1000), 10):
            post(service, "pump", rows)
        page.wait("() => document.body.dataset.rows === '1100'")
        alarm = page.page.locator("#alarm-list li[data-alarm=leak]")
        assert "active, not acknowledged" in alarm.inner_text()
        changes = service.get("/v1/targets/pump/view").json()["changes"]
        assert [one["change"] for one in changes if one["alarm"] == "leak"][-1] == "raised"
        check_looks(page)
        assert page.errors == []


def test_an_alarm_of_rows_that_a_baseline_explains_is_reclassified_and_waits(browser):
    fleet = Fleet(2)  # of the first rows some were taken for a leak, in a row
    alarms = AlarmConfig.from_table({"on-delay": 3, "off-delay": 40, "probability": 0.5})
    app = create_app(fleet.model, batch_size=20, alarms=alarms)
    with background(app) as url, httpx.Client(base_url=url, timeout=300) as client:
        post(client, "pump", fleet.X[fleet.stream])
        with open_page(browser, url) as page:
            item = page.page.locator("#alarm-list li[data-alarm=leak]")
            item.wait_for()
            assert "active, not acknowledged" in item.inner_text()
            positions = list(range(1, 31))
            client.post("/v1/targets/pump/baseline", json={"label": "normal", "positions": positions})
            post(client, "pump", fleet.lasting("normal", 40))
            page.page.locator("#alarm-list li.reclassified[data-alarm=leak]").wait_for()
            assert "now diagnosed differently; not acknowledged" in item.inner_text()
            assert "reclassified" in page.text("#events")
            check_looks(page)
            item.get_by_role("button", name="Acknowledge").click()
            item.wait_for(state="detached")
            assert page.errors == []


def test_the_banner_asks_for_labels_of_three_rows(browser, service):
    with open_page(browser, str(service.base_url)) as page:
        page.page.locator("#settle-labels").click()
        page.page.locator("#questions li").nth(2).wait_for()
        assert page.page.locator("#questions li").count() == 3


@pytest.mark.parametrize("size", SIZES)
def test_a_batch_unlike_all_sources_is_said_and_lowers_the_reliability(browser, service, fleet, size):
    positions = list(range(1, 31))
    service.post("/v1/targets/pump/baseline", json={"label": "normal", "positions": positions})
    assert service.get("/v1/targets/pump").json()["reliability"] > 0.7
    with open_page(browser, str(service.base_url), size) as page:
        page.wait("() => document.body.dataset.rows === '100'")
        assert "unlike all sources" not in page.text("main")
        noise = np.random.default_rng(0).normal(size=(20, fleet.X.shape[1]))
        post(service, "pump", fleet.X.mean(axis=0) + 4.0 * fleet.X.std(axis=0) * noise)
        page.wait("() => document.body.dataset.rows === '120'")
        assert "100\u00a0% of the last batch is unlike all sources" in page.text("#unsettled-note")
        assert "reliability is 0\u00a0%" in page.text("#unsettled-note")
        assert page.text("#now-reliability") == "0\u00a0%"
        assert service.get("/v1/targets/pump").json()["reliability"] < 0.1
        check_looks(page)
        assert page.errors == []
