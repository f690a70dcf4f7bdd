"""Debian's chromium for tests of the page: found, or its absence said."""

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
    """Yield a browser; without one the test is skipped, or fails where it must not be missing."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        words = "there is no chromium: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(words)
        pytest.skip(words)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]  # root in a container has neither
        browser = playwright.chromium.launch(executable_path=found, args=options)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, all that it says on its console, and all that it asks for elsewhere."""

    def __init__(self, page, url):
        self.page, self.said, self.elsewhere = page, [], []
        page.on("console", lambda message: self.said.append((message.type, message.text)))
        page.on("pageerror", lambda error: self.said.append(("error", str(error))))
        home = urlsplit(url).netloc
        page.on(
            "request",
            lambda request: urlsplit(request.url).netloc == home or self.elsewhere.append(request.url),
        )
        page.goto(url)

    @property
    def errors(self):
        return [text for kind, text in self.said if kind in ("error", "warning")]

    def wait(self, script, seconds=300):
        """Wait until a condition holds on the page."""
        self.page.wait_for_function(script, timeout=1000 * seconds)

    def text(self, selector):
        return self.page.locator(selector).inner_text()

    def violations(self):
        """Return what axe finds serious or critical."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("async () => (await axe.run()).violations")
        return [
            (one["id"], one["impact"], [node["html"][:120] for node in one["nodes"][:3]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]


@contextlib.contextmanager
def open_page(browser, url, size=WIDE, scheme="light"):
    """Yield a page in a profile of its own."""
    context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    try:
        yield Watched(context.new_page(), url)
    finally:
        context.close()
