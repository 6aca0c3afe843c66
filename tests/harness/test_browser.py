"""What the browser's checks find on a page that is wrong in every way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import PHONE, Browser

WRONG = """<!doctype html><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>:root { color-scheme: light dark } body { color: #000; background: #fff }
p { color: #999; background: #fff } .wide { overflow: auto }
@media (prefers-color-scheme: dark) { p { color: #000 } }</style>
<b data-name="lag" data-value="7">7</b><p>hard to read</p>
<div style="width: 900px">stands out</div><div class="wide"><div style="width: 900px">may</div></div>
<img src="http://127.0.0.1:9/x.png"><script>console.error("oh")</script>"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "wrong.html").write_text(WRONG, "utf-8")
    return (tmp_path / "wrong.html").as_uri()


def test_all_that_is_wrong_is_found(browser: Browser, url: str) -> None:
    page = browser.page(url, PHONE)
    assert page.values() == {"lag": "7"}
    assert page.low_contrast() == ["P.: hard to read"]
    (wide,) = page.overflow()
    assert "stands out" in wide
    problems = " ".join(page.problems())
    assert "oh" in problems and "Content Security Policy" in problems


def test_colour_scheme_and_scripts_are_as_asked(browser: Browser, url: str) -> None:
    assert browser.page(url, dark=True).low_contrast() == []
    assert "oh" not in " ".join(browser.page(url, scripts=False).problems())


def test_what_a_page_asks_for_is_listed(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<!doctype html><link rel="icon" href="data:,"><img src="x.png">')
    url = (tmp_path / "page.html").as_uri()
    assert browser.page(url).requests() == [url, url.replace("page.html", "x.png")]


def test_a_picture_is_of_the_whole_page(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<!doctype html><body style="margin: 0"><div style="height: 3000px">')
    browser.page((tmp_path / "page.html").as_uri(), PHONE).screenshot(tmp_path / "page.png")
    data = (tmp_path / "page.png").read_bytes()
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (PHONE, 3000)
