"""The live page, in a real browser."""

import hashlib
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pytest

import baryflow.service
from baryflow import OnlineDaDiL
from baryflow.service import background, create_app
from tests.service.browser import AXE, NARROW, WIDE, open_browser, open_page
from tests.service.conftest import post

STATIC = Path(baryflow.service.__file__).parent / "static"
#: Names chosen by users are shown unchanged, and never interpreted as HTML.
CLASSES = np.array(
    [
        "fine",
        "<img src=x onerror=alert(1)>",
        'loose "bolt" & <b>more</b> in the cooling water pump of the condenser',
    ]
)
SOURCES = ("<script>alert(2)</script>", "south", "west")
#: Third-party files, byte for byte as published.
VENDORED = {
    STATIC
    / "uplot/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    STATIC / "uplot/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    STATIC / "uplot/LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    AXE: "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878",
    AXE.parent / "LICENSE": "af175b9d96ee93c21a036152e1b905b0b95304d4ae8c2c921c7609100ba8df7e",
}


@pytest.mark.parametrize("path", VENDORED, ids=lambda path: path.name)
def test_third_party_files_are_unchanged(path):
    assert hashlib.sha256(path.read_bytes()).hexdigest() == VENDORED[path]


def test_the_page_refers_to_no_other_host():
    for path in STATIC.glob("*.*"):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path
        assert "https://" not in text, path
        assert "innerHTML" not in text, path


def _rows(rng, means, n, shift):
    labels = rng.integers(len(means), size=n)
    return means[labels] + shift + 0.3 * rng.normal(size=(n, 4)), labels


@pytest.fixture(scope="module")
def plants():
    """Return a model of three plants, streams of two targets similar to the second, and labels."""
    rng = np.random.default_rng(0)
    means = 3.0 * rng.normal(size=(3, 3, 4))
    parts = [_rows(rng, one, 150, shift) for one, shift in zip(means, (0.0, 4.0, -3.0), strict=True)]
    X, y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(X, CLASSES[y], sample_domain=np.repeat(SOURCES, 150))
    model.feature_names_in_ = np.array(["flow (m³/h)", "heat <i>", "speed", "noise"], dtype=object)
    rows, labels = _rows(rng, means[1], 400, 7.0)
    # From row 65 on, every other row is of the second class, but unlike in the sources.
    other = rows.copy()
    other[64::2] = means[1][1] + [7.0, 13.0, 1.0, 13.0] + 0.3 * rng.normal(size=(168, 4))
    return model, rows, other, CLASSES[labels]


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


@pytest.fixture
def service(plants):
    with background(create_app(plants[0], batch_size=16)) as url, httpx.Client(base_url=url) as client:
        yield client


def test_the_page_shows_targets_as_rows_arrive(browser, service, plants):
    url = str(service.base_url)
    with open_page(browser, url) as page:
        page.wait("() => document.querySelector('#status').dataset.state === 'live'")
        assert "No targets yet" in page.text("#targets-note")
        post(service, "pump-7", plants[1][:64])
        page.wait("() => document.body.dataset.rows === '64'")
        post(service, "pump-7", plants[1][64:128])
        page.wait("() => document.body.dataset.rows === '128'")
        page.wait("() => document.querySelector('#now-rows').textContent === '128'")
        assert page.text("#now-nearest") == "south"
        assert "most like south" in page.text("#targets")
        assert "After 128 rows, most like south" in page.text("#resemblance-caption")
        assert page.page.locator("#plane .target").count() > 3
        assert page.page.locator("#plane .source").count() == 9
        assert page.page.locator("#plane .row").count() == 50
        assert page.page.locator(".chart canvas").count() == 5
        assert "flow (m³/h)" in page.text("#columns")
        assert CLASSES[1] in page.text("#recent")  # as text: nothing was loaded or executed
        # An explanation, with the keyboard only.
        page.page.locator("#recent button").first.focus()
        page.page.keyboard.press("Enter")
        page.page.wait_for_selector("#why[open] table")
        why = page.text("#why-body")
        assert "Nearest components" in why
        assert "of south" in why
        assert "heat <i>" in why
        page.page.keyboard.press("Escape")
        page.page.wait_for_selector("#why:not([open])", state="attached")
        # A selected class is highlighted.
        page.page.locator("#chips button").nth(0).press("Enter")
        assert page.page.locator("#plane .target.dim").count() > 0
        assert f"{min(CLASSES)}: " in page.text("#mixture-caption")
        # A second target is listed and can be selected.
        post(service, "pump-8", plants[1][:16])
        page.page.get_by_role("button", name="pump-8").click()
        page.wait("() => document.body.dataset.rows === '16'")
        assert page.text("#title-target") == "pump-8"
        # When it is deleted, another one is selected.
        service.delete("/v1/targets/pump-8")
        page.wait("() => document.querySelector('#title-target').textContent === 'pump-7'")
        # Many targets can be searched.
        for number in range(13):
            post(service, f"fan-{number}", plants[1][:1])
        page.page.fill("#find", "N-11")
        page.wait("() => document.querySelectorAll('#targets button').length === 1")
        assert "fan-11" in page.text("#targets")
        assert page.errors == []
        assert page.elsewhere == []


def test_the_page_reconnects_after_a_restart(browser, plants, tmp_path):
    model, rows = plants[:2]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def serve():
        return background(create_app(model, state_dir=tmp_path, batch_size=16), port=port)

    with ExitStack() as page_open:
        with serve() as url, httpx.Client(base_url=url) as client:
            post(client, "pump", rows[:32])
            page = page_open.enter_context(open_page(browser, url))
            page.wait("() => document.body.dataset.rows === '32'")
        page.wait("() => document.querySelector('#status').dataset.state === 'lost'")
        with serve() as url, httpx.Client(base_url=url) as client:
            page.wait("() => document.querySelector('#status').dataset.state === 'live'")
            post(client, "pump", rows[32:64])
            page.wait("() => document.body.dataset.rows === '64'")
            assert page.text("#title-target") == "pump"


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_the_page_is_accessible_at_every_size_and_colour_scheme(browser, service, plants, size):
    post(service, "pump", plants[1][:96])
    with open_page(browser, str(service.base_url), size) as page:
        page.wait("() => document.body.dataset.rows === '96'")
        page.page.get_by_role("button", name="Ask me").click()
        page.page.wait_for_selector("#questions li")
        assert page.violations_in_both_schemes() == []
        assert page.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        page.page.locator("#recent [data-act=correct]").first.click()
        page.page.fill("#label-name", "o")
        assert page.violations_in_both_schemes() == []
        widths = page.page.locator("#label, #label-classes").evaluate_all(
            "(all) => all.map((one) => [one.scrollWidth, one.clientWidth])"
        )
        assert all(needed <= there for needed, there in widths)
        page.page.keyboard.press("Escape")
        page.page.locator("#recent button").first.click()
        page.page.wait_for_selector("#why[open] table")
        assert page.violations_in_both_schemes() == []
        # Nothing is cut off, and no text is squeezed to one letter per line.
        widths = page.page.locator("#why, #why .scroll").evaluate_all(
            "(all) => all.map((one) => [one.scrollWidth, one.clientWidth])"
        )
        assert all(needed <= there for needed, there in widths)
        shapes = page.page.locator("#why th, #why-close").evaluate_all(
            "(all) => all.map((one) => [one.clientWidth, one.clientHeight])"
        )
        assert len(shapes) > 10
        assert all(width > height for width, height in shapes)


def _open_bands(page):
    """Show all rows of all bands of equal predictions."""
    while (closed := page.page.locator("#recent .all[aria-expanded=false]")).count():
        closed.first.click()


def _band_of(page, position):
    return page.page.locator("#recent li", has=page.page.locator(f"[data-position='{position}']"))


def _given(page, position):
    """Return what the page says of the label of a row."""
    return page.text(f"#recent [data-position='{position}'] .given")


def test_a_corrected_prediction_takes_effect(browser, service, plants):
    post(service, "pump", plants[2][:128])
    with open_page(browser, str(service.base_url)) as page:
        page.wait("() => document.body.dataset.rows === '128'")
        _open_bands(page)
        wrong = page.page.locator("#recent [data-position='127']")
        assert CLASSES[2] in _band_of(page, 127).inner_text()
        # Confirm one, with one click.
        page.page.get_by_role("button", name="for row 126").click()
        page.wait("() => document.querySelector('#recent .given')")
        assert _given(page, 126) == "confirmed"
        # Another operator labels rows that are not like the one to be corrected.
        others = [{"position": n, "label": plants[3][n - 1]} for n in (124, 122)]
        service.post("/v1/targets/pump/labels", json={"labels": others})
        page.wait("() => document.querySelector('#now-labels').textContent === '3'")
        # Correct one, with the keyboard only, and two more like it.
        wrong.get_by_role("button", name="Correct row 127").press("Enter")
        page.page.wait_for_selector("#label[open]")
        page.page.keyboard.press("Tab")
        assert page.page.evaluate("() => document.activeElement.title") == CLASSES[0]
        page.page.locator(f"#label-classes [title='{CLASSES[1]}']").press("Enter")
        page.wait("() => document.querySelector('#now-labels').textContent === '4'")
        page.wait("() => document.activeElement.dataset.act === 'correct'")
        for number, position in ((5, 125), (6, 123)):
            page.page.get_by_role("button", name=f"Correct row {position}").click()
            page.page.locator(f"#label-classes [title='{CLASSES[1]}']").click()
            page.wait(f"() => document.querySelector('#now-labels').textContent === '{number}'")
        # The predictions for these rows and for those like them have changed.
        page.wait(
            "() => [...document.querySelectorAll('#recent .given')]"
            ".filter((one) => one.textContent.includes('now predicted')).length > 12"
        )
        assert f"labelled {CLASSES[1]}, now predicted {CLASSES[1]}" in _given(page, 127)
        assert f"now predicted {CLASSES[1]}" in _given(page, 111)
        # Later rows like it are predicted as corrected.
        post(service, "pump", plants[2][128:160])
        page.wait("() => document.body.dataset.rows === '160'")
        page.page.mouse.move(0, 0)
        page.page.evaluate("() => document.activeElement.blur()")
        page.wait("() => document.querySelector('#recent [data-position=\"160\"]')")
        _open_bands(page)
        assert CLASSES[1] in _band_of(page, 159).inner_text()
        # The tile and the newest row of the list agree, also after a label.
        other = next(name for name in CLASSES if name != page.text("#now-label"))
        service.post("/v1/targets/pump/labels", json={"labels": [{"position": 160, "label": other}]})
        page.wait("() => document.querySelector('#now-labels').textContent === '7'")
        assert f"labelled {other}" in _given(page, 160)
        assert page.text("#now-label") == other
        assert page.errors == []


def test_novel_rows_become_a_class_by_their_name(browser, plants):
    with (
        background(create_app(plants[0], batch_size=32)) as url,
        httpx.Client(base_url=url) as service,
        open_page(browser, url) as page,
    ):
        post(service, "pump", plants[1][:64])
        post(service, "pump", 40.0 + 0.1 * plants[1][64:96])
        page.wait("() => document.body.dataset.rows === '96'")
        assert "32 of the last 50 rows are unlike everything known" in page.text("#novel-note")
        page.page.get_by_role("button", name="Name the last 20 rows").click()
        assert page.page.get_by_role("checkbox").count() == 20
        page.page.get_by_role("checkbox", name="row 96").uncheck()
        page.page.fill("#label-name", "worn <b>bearing</b>")
        page.page.get_by_role("button", name="New class “worn <b>bearing</b>”").click()
        page.wait("() => document.querySelector('#new-classes').textContent === 'worn <b>bearing</b>'")
        page.wait("() => document.querySelector('#now-labels').textContent === '19'")
        assert page.text("#now-labels-more") == "1 new class"
        # The row that was not checked is now predicted as the new class, and no row is novel any more.
        _open_bands(page)
        assert "now predicted worn <b>bearing</b>" in _given(page, 96)
        assert not page.page.locator("#novel").is_visible()
        # In the other rows the name can be chosen, whatever its case.
        page.page.get_by_role("button", name="Correct row 95").click()
        page.page.fill("#label-name", "Worn <b>bearing</b>")
        assert page.text("#label-new") == "Label as worn <b>bearing</b>"
        page.page.keyboard.press("Escape")
        post(service, "pump", 40.0 + 0.1 * plants[1][96:128])
        page.wait("() => document.querySelector('#now-label').textContent === 'worn <b>bearing</b>'")
        assert page.errors == []


def test_the_page_asks_about_the_rows_most_worth_a_label(browser, service, plants):
    post(service, "pump", plants[1][:96])
    with open_page(browser, str(service.base_url)) as page:
        page.wait("() => document.body.dataset.rows === '96'")
        page.page.get_by_role("button", name="Ask me").click()
        page.page.wait_for_selector("#questions li")
        questions = page.page.locator("#questions li")
        assert questions.count() == 5
        assert page.page.evaluate("() => document.activeElement.className") == "chip"
        # Any of them can be explained, however old it is.
        questions.first.locator(".link").click()
        page.page.wait_for_selector("#why[open] table")
        page.page.get_by_role("button", name="Label this row").click()
        page.page.wait_for_selector("#label[open]")
        page.page.keyboard.press("Escape")
        questions.first.get_by_role("button", name=CLASSES[0], exact=True).click()
        page.wait("() => document.querySelectorAll('#questions .given').length === 1")
        questions.nth(1).get_by_role("button", name="Other label").click()
        page.page.fill("#label-name", "worn bearing")
        page.page.keyboard.press("Enter")
        page.wait("() => document.querySelectorAll('#questions .given').length === 2")
        page.wait("() => document.querySelector('#now-labels').textContent === '2'")
        asked = questions.locator(".link").all_inner_texts()[:2]
        page.page.get_by_role("button", name="Ask again").click()
        page.wait("() => !document.querySelector('#questions .given')")
        assert not set(asked) & set(questions.locator(".link").all_inner_texts())
        assert page.errors == []


def test_labels_from_the_page_certify_nothing(browser, service, plants):
    post(service, "pump", plants[1][:64])
    with open_page(browser, str(service.base_url)) as page:
        page.wait("() => document.body.dataset.rows === '64'")
        page.page.get_by_role("button", name="for row 64").click()
        page.wait("() => document.querySelector('#now-labels').textContent === '1'")
        assert "Nothing yet" in page.text("#proof-note")
        labels = [{"position": i, "label": "fine"} for i in range(40, 60)]
        service.post("/v1/targets/pump/labels", json={"labels": labels, "certify": True})
        page.wait("() => document.querySelector('#proof li')")
        assert "20 labels" in page.text("#proof")


def test_with_a_read_only_token_nothing_can_be_labelled(browser, plants):
    tokens = {"token": "abcd" * 5, "read_token": "efgh" * 5}
    with (
        background(create_app(plants[0], **tokens, batch_size=16)) as url,
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {tokens['token']}"}) as client,
        open_page(browser, url) as page,
    ):
        post(client, "pump", plants[1][:32])
        page.page.fill("#token", tokens["read_token"])
        page.page.keyboard.press("Enter")
        page.wait("() => document.body.dataset.rows === '32'")
        _open_bands(page)
        assert page.page.locator("#recent .row:visible").count() == 32
        assert page.page.locator(".changes:visible").count() == 0
        page.page.locator("#recent button").first.click()
        page.page.wait_for_selector("#why[open] table")
        assert page.page.locator(".changes:visible").count() == 0


def test_the_page_asks_for_the_token(browser, plants):
    token = "abcd" * 5
    headers = {"Authorization": f"Bearer {token}"}
    with (
        background(create_app(plants[0], token=token, batch_size=16)) as url,
        httpx.Client(base_url=url, headers=headers) as client,
        open_page(browser, url) as page,
    ):
        post(client, "pump", plants[1][:32])
        page.page.wait_for_selector("#ask[open]")
        page.page.fill("#token", "wrong")
        page.page.keyboard.press("Enter")
        page.wait("() => document.querySelector('#ask-wrong').textContent.includes('not accepted')")
        page.page.fill("#token", token)
        page.page.keyboard.press("Enter")
        page.wait("() => document.body.dataset.rows === '32'")
        assert token not in page.page.url
