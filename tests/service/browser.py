"""Chromium for tests of the live page."""

import contextlib
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

AXE = Path(__file__).parent / "axe" / "axe.min.js"
WIDE, NARROW = {"width": 1440, "height": 1000}, {"width": 390, "height": 844}


@contextlib.contextmanager
def open_browser():
    """Yield a browser. Without one, skip the test, or fail it in CI."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        reason = "chromium is not installed: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]  # root in a container has neither
        browser = playwright.chromium.launch(executable_path=found, args=options)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, the messages on its console, and its requests to other hosts."""

    def __init__(self, page, url):
        self.page, self.messages, self.elsewhere = page, [], []
        page.on("console", lambda message: self.messages.append((message.type, message.text)))
        page.on("pageerror", lambda error: self.messages.append(("error", str(error))))
        home = urlsplit(url).netloc
        page.on(
            "request",
            lambda request: urlsplit(request.url).netloc == home or self.elsewhere.append(request.url),
        )
        page.goto(url)

    @property
    def errors(self):
        return [text for kind, text in self.messages if kind in ("error", "warning")]

    def wait(self, script, seconds=300):
        """Wait until a condition holds on the page."""
        self.page.wait_for_function(script, timeout=1000 * seconds)

    def text(self, selector):
        return self.page.locator(selector).inner_text()

    def violations_in_both_schemes(self):
        """Return the violations in the light and in the dark colour scheme."""
        found = []
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            found += self.violations()
        return found

    def violations(self):
        """Return the serious and critical violations that axe finds."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate(
            "async () => (await axe.run({resultTypes: ['violations']})).violations"
        )
        return [
            (one["id"], one["impact"], [node["html"][:120] for node in one["nodes"][:3]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]


@contextlib.contextmanager
def open_page(browser, url, size=WIDE, scheme="light"):
    """Yield a page with a browser profile of its own."""
    context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    try:
        yield Watched(context.new_page(), url)
    finally:
        context.close()
