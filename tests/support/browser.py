"""Debian's Chromium without a window, driven through a pipe in its own protocol (CDP): no driver, no port."""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.process import session_members, wait_for
from tests.support.tools import tool

ANSWER_S = 60.0
PHONE, DESKTOP = 390, 1280
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
    "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe", "--password-store=basic",
)  # fmt: skip


class Browser:
    """A browser with a profile of its own in `folder`. As a context manager it leaves no process behind."""

    def __init__(self, folder: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        flags = " ".join(_FLAGS)
        home = folder / "profile"
        home.mkdir(parents=True)
        # The browser reads commands from descriptor 3 and answers on 4.
        shell = f'exec "$0" {flags} --user-data-dir="$1" about:blank 3<&{theirs_in} 4>&{theirs_out}'
        self.log = folder / "browser.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", shell, tool("chromium"), str(home)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs_in, theirs_out),
                start_new_session=True,
                env={**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)},
            )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """One command and its answer; what happens meanwhile is kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            found = self._next(deadline)
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                return dict(found["result"])
            self.events.append(found)

    def wait_for(self, session: str, method: str) -> None:
        """Wait for an event of a page, one that was seen before too."""
        deadline = time.monotonic() + ANSWER_S
        while not any(e.get("method") == method and e.get("sessionId") == session for e in self.events):
            self.events.append(self._next(deadline))

    def page(self, url: str, width: int = DESKTOP, *, dark: bool = False, scripts: bool = True) -> Page:
        """Open a page and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = str(self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        self.call(
            "Emulation.setDeviceMetricsOverride", session, width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        if not scripts:
            self.call("Emulation.setScriptExecutionDisabled", session, value=True)
        self.events = [e for e in self.events if e.get("sessionId") != session]
        self.call("Page.navigate", session, url=url)
        self.wait_for(session, "Page.loadEventFired")
        return Page(self, session)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._in], [], [], max(0.0, left))
            assert ready, f"the browser does not answer: {self.log.read_text('utf-8', 'replace')[-2000:]}"
            piece = os.read(self._in, 1 << 16)
            assert piece, f"the browser has ended: {self.log.read_text('utf-8', 'replace')[-2000:]}"
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(text))

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._out)
        os.close(self._in)
        while members := session_members(self._process.pid):
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
        self._process.wait()


class Page:
    """A loaded page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def evaluate(self, text: str) -> Any:
        """The value of an expression in the page."""
        found = self._browser.call(
            "Runtime.evaluate", self._session, expression=text, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def values(self) -> dict[str, str]:
        """What the page says, by the names it gives."""
        pairs = "[...document.querySelectorAll('[data-name]')].map(e => [e.dataset.name, e.dataset.value])"
        return dict(self.evaluate(f"Object.fromEntries({pairs})"))

    def wait_until(self, condition: str, what: str, seconds: float = ANSWER_S) -> None:
        """Wait until an expression is true."""
        wait_for(lambda: bool(self.evaluate(condition)), seconds, what)

    def problems(self) -> list[str]:
        """What the console says that is an error or a warning: a policy that was broken, a file that was not there."""
        found = []
        for event in self._events():
            params = event.get("params", {})
            if event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(str(params["entry"]["text"]))
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]["text"]))
            if event["method"] == "Runtime.consoleAPICalled":
                found.append(str(params["args"]))
        return found

    def requests(self) -> list[str]:
        """Addresses that were asked for, those of data in the page left out."""
        asked = [e["params"]["request"]["url"] for e in self._events() if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def overflow(self) -> list[str]:
        """Elements that stand out of the page to the right, but for what lies in a box that scrolls."""
        return list(
            self.evaluate(
                "[...document.body.querySelectorAll('*')].filter(e => !e.closest('.wide') && "
                "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 120))"
            )
        )

    def low_contrast(self, least: float = 4.5) -> list[str]:
        """Texts with less contrast to what is behind them than the web's rules (WCAG AA) ask for."""
        return list(self.evaluate(_CONTRAST.replace("LEAST", str(least))))

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self._browser.call("Page.getLayoutMetrics", self._session)["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self._browser.call("Page.captureScreenshot", self._session, clip=clip, captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _events(self) -> list[dict[str, Any]]:
        self.evaluate("1")  # takes in what has come meanwhile
        return [e for e in self._browser.events if e.get("sessionId") == self._session]


_CONTRAST = """(() => {
  const rgb = t => (t.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return rgb(getComputedStyle(document.documentElement).backgroundColor); };
  const found = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName)) continue;
    if (!e.getClientRects().length) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const text = walk.currentNode.data.trim().slice(0, 40);
    if ((a + .05) / (b + .05) < LEAST) found.add(`${e.tagName}.${e.className}: ${text}`);
  }
  return [...found];
})()"""
