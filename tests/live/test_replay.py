"""The embedded stream on the live page, and the thread that feeds it."""

from concurrent.futures import wait

import httpx
import pytest

from baryflow.datasets import load_tep
from baryflow.exceptions import UnreachableError
from baryflow.live.panel import DemoPanel, serve_demo
from baryflow.live.replay import TARGET, Replay, serve_replay
from baryflow.service import create_app
from tests.service.browser import open_browser, open_page


@pytest.fixture(scope="module")
def replay():
    return Replay.fit(load_tep(runs=12, faults=[0, 1, 2, 6]))


def test_the_page_follows_the_stream_to_its_end(replay):
    with (
        serve_replay(replay, speed=400.0) as (url, thread),
        open_browser() as browser,
        open_page(browser, url) as page,
    ):
        thread.result(60)
        n = len(replay.rows)
        page.wait(f"() => document.querySelector('#demo-figures').textContent.includes('{n} of {n}')")
        page.wait(f"() => document.querySelector('#now-rows').textContent === '{n}'")
        page.wait("() => document.querySelector('#events').textContent.includes('end of the stream')")
        assert page.text("#demo-title") == "An operating mode without labels"
        assert not page.page.locator("#plant").is_visible()
        assert page.text("#now-nearest") in {f"mode {mode}" for mode in range(2, 7)}
        assert page.errors == []
        panel = httpx.get(f"{url.split('/?')[0]}/v1/demo").json()
        figures = {figure["name"]: figure["value"] for figure in panel["figures"]}
        assert float(figures["correct so far, adapting"].removesuffix(" %")) > 80.0


def test_leaving_the_block_stops_a_stream_that_is_still_running(replay):
    with serve_replay(replay, speed=1.0) as (url, thread):
        address = f"{url.split('/?')[0]}/v1/targets/{TARGET}"
        while httpx.get(address).status_code != 200:
            assert not wait([thread], 0.05).done
        assert thread.running()
    thread.result(0.0)  # ended, and without an error


def _fail(*_):
    raise UnreachableError("gone")


def test_an_error_in_the_feed_is_shown_and_raised(replay):
    panel = DemoPanel("pump", "", "")
    app = create_app(replay.model, extra_routes=[panel.route()])
    with serve_demo(app, panel, _fail) as (_, thread):
        with pytest.raises(UnreachableError, match="gone"):
            thread.result(60)
        assert "gone" in panel.read()["words"]
