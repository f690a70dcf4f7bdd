"""The embedded stream on the live page."""

import threading

import httpx
import pytest

from baryflow.datasets import load_tep
from baryflow.exceptions import UnreachableError
from baryflow.live.feeder import Feeder
from baryflow.live.replay import Replay
from baryflow.live.runner import Feeding, show_replay
from baryflow.live.story import Story
from tests.service.browser import open_browser, open_page


@pytest.fixture(scope="module")
def replay():
    return Replay.of(load_tep(runs=12, faults=[0, 1, 2, 6]))


def test_a_stream_flows_into_the_page(replay):
    with (
        show_replay(replay, speed=400.0) as (url, feeding),
        open_browser() as browser,
        open_page(browser, url) as page,
    ):
        assert feeding.wait(60)
        n = len(replay.rows)
        page.wait(f"() => document.querySelector('#demo-figures').textContent.includes('{n} of {n}')")
        page.wait(f"() => document.querySelector('#now-rows').textContent === '{n}'")
        page.wait("() => document.querySelector('#events').textContent.includes('the stream has ended')")
        assert page.text("#demo-title") == "An operating mode that nobody has labelled"
        assert not page.page.locator("#plant").is_visible()
        assert page.text("#now-nearest") in {f"mode {mode}" for mode in range(2, 7)}
        assert page.errors == []
        figures = {
            one["name"]: one["value"]
            for one in httpx.get(f"{url.split('/?')[0]}/v1/demo").json()["figures"]
        }
        right = float(figures["right so far, adapting"].removesuffix(" %")) / 100
        assert right > 0.8


def test_a_feeder_says_what_a_service_does_not_take(replay):
    with show_replay(replay, speed=1.0) as (url, feeding):
        feeder = Feeder(url.split("/?")[0], "other", feeding._stop)
        with pytest.raises(UnreachableError, match="422"):
            feeder.post(replay.rows[:, :3])
        assert feeder.n_rows == 0


def _fail():
    raise UnreachableError("gone")


def test_what_goes_wrong_while_it_feeds_is_heard():
    story = Story("pump", "", "")
    with Feeding(_fail, threading.Event(), story) as feeding:
        with pytest.raises(UnreachableError, match="gone"):
            feeding.wait(60)
        assert story.read()["words"] == "The demo has stopped: gone"
