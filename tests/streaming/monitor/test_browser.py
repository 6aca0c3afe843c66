"""The status page in a real browser: what it shows, at every width and in both colour schemes, and what it does not do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.server import Pages, StatusServer
from tests.streaming.monitor.case import Clock, report
from tests.streaming.monitor.scenes import SCENES
from tests.streaming.monitor.test_metrics import full_status
from tests.streaming.monitor.test_page import hostile_status
from tests.support.browser import DESKTOP, PHONE, Browser

PICTURES = os.environ.get("TAGSTREAM_PICTURES")  # a folder: pictures of the pages go there, for people


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def serve(status: RunStatus, clock: Clock) -> StatusServer:
    return StatusServer(0, "127.0.0.1", Pages(status.snapshot, lambda: clock.now_ms / 1000))


@pytest.fixture
def running() -> Iterator[tuple[RunStatus, Clock, str]]:
    clock = Clock()
    status = full_status(clock)
    for batch in range(1, 40):
        clock.after(3)
        status.lag(batch * 997 % 4_000)
        status.batch(report(batch, records=900 + batch * 13, seconds=1 + batch % 5 / 3, late=7, unknown_deletes=3))
    server = serve(status, clock)
    yield status, clock, f"http://127.0.0.1:{server.port}/"
    server.close()


@pytest.fixture
def hostile() -> Iterator[str]:
    server = serve(hostile_status(), Clock())
    yield f"http://127.0.0.1:{server.port}/"
    server.close()


def document(url: str) -> dict[str, object]:
    with urlopen(f"{url}status.json", timeout=10) as answer:
        return dict(json.load(answer))


def test_it_shows_what_the_json_says(browser: Browser, running: tuple[RunStatus, Clock, str]) -> None:
    _, _, url = running
    shown, doc = browser.page(url).values(), document(url)
    assert shown["lag"] == str(doc["lag"])
    assert shown["health"] == doc["health"]["state"]  # type: ignore[index]
    assert {kind: shown[kind] for kind in doc["counts"] if kind in shown} == {  # type: ignore[attr-defined]
        kind: str(count)
        for kind, count in doc["counts"].items()
        if kind in shown  # type: ignore[attr-defined]
    }
    assert shown["index_keys"] == str(doc["derived"]["index_keys"])  # type: ignore[index]


def test_it_asks_for_nothing_else_and_the_console_is_silent(
    browser: Browser, running: tuple[RunStatus, Clock, str], hostile: str
) -> None:
    for url in (running[2], hostile):
        page = browser.page(url)
        assert page.problems() == []
        assert page.requests() == [url]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_nothing_stands_out_and_all_can_be_read(
    browser: Browser, running: tuple[RunStatus, Clock, str], hostile: str, width: int, dark: bool
) -> None:
    for url in (running[2], hostile):
        page = browser.page(url, width, dark=dark)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.overflow() == []
        assert page.low_contrast() == []


@pytest.mark.extended("a page in a real browser, for seconds")
def test_it_renews_itself(browser: Browser, running: tuple[RunStatus, Clock, str]) -> None:
    status, clock, url = running
    page = browser.page(url)
    status.lag(123_456)
    clock.after(2)
    page.wait_until("document.querySelector('[data-name=lag]')?.dataset.value === '123456'", "the new lag")
    assert page.problems() == []
    assert set(page.requests()) == {url}


@pytest.mark.extended("more states of a live page")
def test_without_scripts_it_loads_itself_anew(browser: Browser, running: tuple[RunStatus, Clock, str]) -> None:
    status, clock, url = running
    page = browser.page(url, scripts=False)
    status.lag(123_456)
    clock.after(2)
    page.wait_until("document.querySelector('[data-name=lag]')?.dataset.value === '123456'", "the new lag")


@pytest.mark.extended("more states of a live page")
def test_a_job_that_is_gone_is_told(browser: Browser) -> None:
    clock = Clock()
    server = serve(full_status(clock), clock)
    page = browser.page(f"http://127.0.0.1:{server.port}/")
    server.close()
    page.wait_until("!document.getElementById('away').hidden", "the line that says so")
    assert "has not answered since" in page.evaluate("document.getElementById('away').textContent")


def test_hostile_names_run_nothing(browser: Browser, hostile: str) -> None:
    page = browser.page(hostile)
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("typeof evil") == "undefined"
    assert "<script>alert" in page.evaluate("document.body.innerText")


@pytest.mark.extended("a page in a real browser, for seconds", first=("failing-service",))
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("scene", SCENES)
def test_the_states_in_which_people_look(browser: Browser, scene: str, width: int, tmp_path: Path) -> None:
    """Nothing stands out of the page, no number breaks; with TAGSTREAM_PICTURES a picture of each goes there."""
    clock = Clock()
    server = serve(SCENES[scene](clock), clock)
    try:
        page = browser.page(f"http://127.0.0.1:{server.port}/", width)
        picture = Path(PICTURES or tmp_path, f"status-{scene}-{width}.png")
        page.screenshot(picture)
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert (page.overflow(), page.low_contrast(), page.problems()) == ([], [], [])
        assert page.evaluate(_BROKEN) == [], "numbers in two lines, or wider than their card"
        rows = page.evaluate(
            "[...document.querySelectorAll('.rows tbody')].map(b => [...b.rows].filter(r => r.offsetHeight).length)"
        )
        assert all(count <= (5 if width == PHONE else 24) for count in rows)
        heads = page.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
        assert heads.index("Warnings") == 0, "before everything that only tells how large things are"
    finally:
        server.close()


# A number that stands in two lines has two rectangles; one that is wider than its card is cut or stands out of it.
_BROKEN = """[...document.querySelectorAll('.card:not(.words) b, .bars b')].filter(b => {
  const range = document.createRange(); range.selectNodeContents(b);
  const rects = range.getClientRects(), card = (b.closest('.card') || b.closest('dd')).getBoundingClientRect();
  return rects.length > 1 || [...rects].some(r => r.right > card.right);
}).map(b => b.textContent)"""
