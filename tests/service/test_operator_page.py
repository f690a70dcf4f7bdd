"""What operators need of the live page, in a real browser."""

import re
from pathlib import Path

import httpx
import numpy as np
import pytest

import baryflow.service
from baryflow import OnlineDaDiL
from baryflow.alarms import AlarmConfig
from baryflow.service import background, create_app
from tests.service.browser import NARROW, WIDE, open_browser, open_page
from tests.service.conftest import post

STATIC = Path(baryflow.service.__file__).parent / "static"
NAMES = np.array(
    [
        "normal",
        "reactor cooling water inlet temperature: step of ten degrees",
        "recycle, underflow and steam valves stick",
    ]
)
ALARMS = {"on-delay": 2, "off-delay": 2, "probability": 0.5, "chatter": 20}
PRIORITIES = {"classes": {NAMES[1]: {"priority": "high"}}}


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


def fitted(n_sources=3):
    """Return a model of classes with long names, and rows of a target of each class."""
    rng = np.random.default_rng(0)
    means = 5.0 * np.eye(3, 4)
    y = np.tile(np.repeat(np.arange(3), 40), n_sources)
    domain = np.repeat(np.arange(n_sources), 120)
    X = means[y] + 0.3 * rng.normal(size=(n_sources, 4))[domain] + 0.5 * rng.normal(size=(len(y), 4))
    names = np.array([f"the plant in the north of the country, line {i}" for i in range(n_sources)])
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(X, NAMES[y], sample_domain=names[domain])
    model.feature_names_in_ = np.array(["flow (m³/h)", "heat (°C)", "speed (1/s)", "noise (dB)"])
    return model, [mean + 0.2 + 0.5 * rng.normal(size=(80, 4)) for mean in means]


@pytest.fixture(scope="module")
def case():
    return fitted()


@pytest.fixture
def service(case):
    app = create_app(case[0], batch_size=16, alarms=AlarmConfig.from_table(ALARMS | PRIORITIES))
    with background(app) as url, httpx.Client(base_url=url) as client:
        yield client


def rows_of(case, *parts):
    """Return rows of classes one after the other: pairs of class and number of rows."""
    used = [0, 0, 0]
    found = []
    for code, n in parts:
        found.append(case[1][code][used[code] : used[code] + n])
        used[code] += n
    return np.concatenate(found)


def wait_rows(page, n):
    page.wait(f"() => document.body.dataset.rows === '{n}'")


def test_equal_diagnoses_in_a_row_are_one_band(browser, service, case):
    post(service, "pump", rows_of(case, (0, 24), (1, 16), (0, 8)))
    with open_page(browser, str(service.base_url)) as page:
        wait_rows(page, 48)
        assert page.page.locator("#lanes .lane").count() == 2
        assert page.page.locator("#lanes .band").count() == 3
        assert NAMES[1] in page.text("#lanes")
        assert page.page.locator("#lanes .alarm").count() == 1
        caption = page.text("#timeline-caption")
        assert re.match("Now normal, for 8 rows since .*Before that .*, for 16 rows", caption)
        page.page.locator("#timeline summary").click()
        assert page.page.locator("#timeline-table tbody tr").count() == 3
        # The list of predictions does not repeat itself either.
        assert page.page.locator("#recent li").count() == 3
        assert "7 more rows" in page.text("#recent")
        assert page.page.locator("#recent .row:visible").count() == 3
        page.page.locator("#recent .all").first.click()
        assert page.page.locator("#recent .row:visible").count() == 10
        assert page.text("#now-label") == "normal"
        assert "for 8 rows" in page.text("#now-label-more")
        assert page.errors == []


def test_alarms_are_acknowledged_shelved_and_unshelved(browser, service, case):
    post(service, "pump", rows_of(case, (0, 16)))
    with open_page(browser, str(service.base_url)) as page:
        wait_rows(page, 16)
        assert page.text("#alarms-note") == "No alarm is active."
        post(service, "pump", rows_of(case, (1, 16)))
        item = page.page.locator("#alarm-list li.unacknowledged")
        item.wait_for()
        text = item.inner_text()
        assert "HIGH" in text
        assert NAMES[1] in text
        assert "active, not acknowledged" in text
        assert re.search(r"Moved most: (flow|heat|speed|noise) \(.*\) is -?[\d.]+ instead of", text)
        assert "Most like" in text
        item.get_by_text("Evidence").click()
        assert "nearest labelled cases" in item.inner_text()
        page.wait("() => document.title.startsWith('(1) ')")
        assert "1 alarm active, 1 not acknowledged (high)" in page.text("#targets")
        # With the keyboard; the focus stays at the alarm.
        item.get_by_role("button", name="Acknowledge").press("Enter")
        item = page.page.locator("#alarm-list li.acknowledged")
        item.wait_for()
        assert page.page.evaluate("() => document.activeElement.textContent") == "Shelve …"
        page.page.keyboard.press("Enter")
        page.page.wait_for_selector("#shelve[open]")
        assert page.violations() == []
        page.page.fill("#shelve-for", "soon")
        page.page.fill("#shelve-by", "ada")
        page.page.get_by_role("button", name="Shelve", exact=True).click()
        page.wait("() => document.querySelector('#shelve-wrong').textContent.includes('soon')")
        page.page.fill("#shelve-for", "2 h")
        page.page.keyboard.press("Enter")
        page.page.wait_for_selector("#alarm-list li.shelved")
        assert "shelved for 2\u00a0h more" in page.text("#alarm-list")
        assert "last command by ada" in page.text("#alarm-list")
        page.page.get_by_role("button", name="Unshelve").click()
        page.page.locator("#alarm-list li.unacknowledged").wait_for()
        # Over, and raised once more soon: the same alarm with another occurrence.
        post(service, "pump", rows_of(case, (0, 4), (1, 4)))
        page.wait("() => document.querySelector('#alarm-list').textContent.includes('2 occurrences')")
        post(service, "pump", rows_of(case, (0, 40)))
        page.page.locator("#alarm-list li.returned").wait_for()
        page.page.locator("#alarms").get_by_role("button", name="Acknowledge").click()
        page.wait("() => document.querySelector('#alarms-over-title').textContent === '1 earlier alarm'")
        assert "cleared" in page.text("#events")
        assert len(page.errors) == 1  # the browser's own, of the request that was refused


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_all_alarms_are_acknowledged_at_once_and_one_is_suppressed(browser, service, case, size, scheme):
    post(service, "pump", rows_of(case, (0, 16), (1, 16), (2, 16)))
    with open_page(browser, str(service.base_url), size, scheme) as page:
        wait_rows(page, 48)
        every = page.page.get_by_role("button", name="Acknowledge all")
        every.wait_for()
        assert page.page.locator("#alarm-list li.unacknowledged, #alarm-list li.returned").count() == 2
        every.press("Enter")
        item = page.page.locator("#alarm-list li.acknowledged")
        item.wait_for()
        assert every.is_hidden()
        assert page.page.locator("#alarm-list li.unacknowledged").count() == 0
        assert page.page.evaluate("() => document.activeElement !== document.body")
        item.get_by_role("button", name="Suppress").click()
        item = page.page.locator("#alarm-list li.suppressed")
        item.wait_for()
        assert "suppressed: out of use" in item.inner_text()
        assert page.violations() == []
        assert page.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        post(service, "pump", rows_of(case, (2, 16)))
        wait_rows(page, 64)
        assert "No alarm is active" in page.text("#alarms-note")
        item.get_by_role("button", name="Unsuppress").click()
        page.page.locator("#alarm-list li.unacknowledged").wait_for()
        assert page.errors == []


def test_a_read_only_token_shows_alarms_without_buttons(browser, case):
    tokens = {"token": "abcd" * 5, "read_token": "efgh" * 5}
    app = create_app(case[0], **tokens, batch_size=16, alarms=AlarmConfig.from_table(ALARMS))
    headers = {"Authorization": f"Bearer {tokens['token']}"}
    with (
        background(app) as url,
        httpx.Client(base_url=url, headers=headers) as client,
        open_page(browser, url) as page,
    ):
        post(client, "pump", rows_of(case, (0, 16), (1, 16)))
        page.page.fill("#token", tokens["read_token"])
        page.page.keyboard.press("Enter")
        page.page.locator("#alarm-list li").wait_for()
        assert page.page.locator("#alarms button:visible").count() == 0
        assert page.page.locator("#alarms summary:visible").count() == 1


def test_the_age_of_the_last_row_is_shown_apart_from_the_connection(browser, case):
    with StoppablePage(browser, case) as (page, stop):
        assert page.text("#status") == "connected"
        page.wait("() => document.querySelector('#data').textContent.startsWith('last row')")
        page.page.evaluate("() => { const now = Date.now; Date.now = () => now() + 250_000; }")
        page.wait("() => document.querySelector('#data').textContent === 'no rows for 4\u00a0min'")
        assert page.text("#status") == "connected"
        stop()
        page.wait("() => document.querySelector('#status').dataset.state === 'lost'")
        page.wait("() => document.querySelector('#data').textContent.includes('as far as known')")


class StoppablePage:
    """A page of a service with 32 rows, which can be stopped while the page is open."""

    def __init__(self, browser, case):
        self.serving = background(create_app(case[0], batch_size=16))
        self.case, self.browser, self.stopped = case, browser, False

    def __enter__(self):
        url = self.serving.__enter__()
        with httpx.Client(base_url=url) as client:
            post(client, "pump", rows_of(self.case, (0, 16), (1, 16)))
        self.page = open_page(self.browser, url)
        page = self.page.__enter__()
        wait_rows(page, 32)
        return page, self.stop

    def stop(self):
        if not self.stopped:
            self.stopped = True
            self.serving.__exit__(None, None, None)

    def __exit__(self, *error):
        self.page.__exit__(*error)
        self.stop()


def test_novelty_is_said_in_rows_and_proportions_with_what_explains_them(browser, case):
    with (
        background(create_app(case[0], batch_size=16)) as url,
        httpx.Client(base_url=url) as client,
        open_page(browser, url) as page,
    ):
        post(client, "pump", rows_of(case, (0, 16), (1, 16), (2, 16)))
        wait_rows(page, 48)
        novel = page.text("#now-novelty-more")
        assert "like known rows" in novel or "unlike everything known" in novel
        assert "likely): as expected." in page.text("#proportions-caption")
        assert page.page.locator("#proportions .bar").count() == 3
        post(client, "pump", np.full((3, 4), 90.0) + np.arange(3)[:, None])
        page.wait("() => / of 50$/.test(document.querySelector('#now-novelty').textContent)")
        assert int(page.text("#now-novelty").split()[0]) >= 3
        assert "of the last 50 rows are unlike everything known" in page.text("#now-novelty-more")
        assert not page.page.locator("#alarms").is_visible()  # they are off
        page.page.locator("#recent .row").first.click()
        page.page.wait_for_selector("#why[open] table")
        assert "unlike everything known: fewer than 1 in 100 known rows" in page.text("#why-body")


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_names_are_never_cut_and_no_panel_is_empty(browser, service, case, size):
    post(service, "pump", rows_of(case, (0, 5)))
    with open_page(browser, str(service.base_url), size) as page:
        wait_rows(page, 0)
        texts = page.page.locator(".panel:visible, .cards > div:visible").all_inner_texts()
        assert len(texts) > 4
        assert all(len(text.split("\n")) > 1 for text in texts)
        assert "first batch" in page.text("#charts-none")
        post(service, "pump", rows_of(case, (1, 20), (2, 20)))
        wait_rows(page, 32)
        cut = page.page.evaluate(
            "() => [...document.querySelectorAll('main *, nav *')].filter((one) => !one.children.length"
            " && one.checkVisibility() && getComputedStyle(one).textOverflow === 'ellipsis'"
            " && one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
        )
        assert cut == []
        assert page.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        assert NAMES[2] in page.text("#now-label")
        assert page.violations() == []


def test_many_sources_are_readable(browser):
    case = fitted(n_sources=12)
    with (
        background(create_app(case[0], batch_size=16)) as url,
        httpx.Client(base_url=url) as client,
        open_page(browser, url) as page,
    ):
        post(client, "pump", rows_of(case, (0, 24), (1, 24)))
        wait_rows(page, 48)
        names = page.page.locator("#resemblance .u-series .u-label").all_inner_texts()
        assert len(names) == 8
        assert names[-1] == "the other 5 sources together"
        assert all(name.startswith("the plant in the north of the country, line") for name in names[:-1])
        page.page.locator("#resemblance-table").locator("xpath=..").locator("summary").click()
        assert page.page.locator("#resemblance-table thead th").count() == 13
        assert page.errors == []


def test_classes_and_sources_have_colours_of_their_own():
    text = (STATIC / "live.css").read_text(encoding="utf-8")
    for theme in text.split("@media (prefers-color-scheme: dark)")[:2]:
        classes, sources = (re.findall(rf"--{kind}\d: (#\w+)", theme) for kind in "cs")
        assert (len(set(classes)), len(set(sources))) == (8, 10)
        assert not set(classes) & set(sources)
