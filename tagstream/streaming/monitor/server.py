"""The HTTP server of a running job: status page, JSON, health and metrics. It is read-only.

All of them are made from a snapshot.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from tagstream.streaming.batch.report import KINDS
from tagstream.streaming.monitor import health
from tagstream.streaming.monitor.metrics import PHASES, RunCollector, most_waiting
from tagstream.streaming.monitor.snapshot import Snapshot
from tagstream.streaming.monitor.templates import policy, render
from tagstream.table.errors import ConfigError

_ROOM = "tagstream.streaming.monitor"
_SCRIPT = "renew.js"
POLICY = policy(_ROOM, _SCRIPT)
_TONE = {
    health.OK: "good", health.STARTING: "good", health.ENDED: "good", health.BEHIND: "warn",
    health.LEAVING_OUT: "warn",
    health.STUCK: "bad", health.RESTARTING: "bad", health.BAD_RECORDS: "bad",
}  # fmt: skip
_PHASE_TEXT = {
    "check": "check timeline and lease", "prepare": "write profile, begin instant", "tasks": "read, tag and write",
    "commit": "publish and complete", "services": "compact, clean, archive",
}  # fmt: skip
_KIND_TEXT = {
    "inserts": "inserts", "updates": "updates", "deletes": "deletes", "moves": "moves to another partition",
    "late": "late", "superseded": "superseded in their batch", "unknown_deletes": "deletes of unknown keys",
    "skipped": "without a row (skipped)",
    "quarantined": "quarantined",
}  # fmt: skip
GROUPS_SHOWN, COMMITS_SHOWN, PARTITIONS_SHOWN = 12, 12, 12


def status_page(s: Snapshot) -> bytes:
    """The status page in UTF-8."""
    records = max(1, s.counts.get("records", 0))
    last = s.recent[-1] if s.recent else None
    largest = sorted(s.groups, key=lambda g: (-g.keys, g.label))
    waiting = most_waiting(s, PARTITIONS_SHOWN)
    most_records = max((part.records for part in waiting), default=0)
    most = max((g.keys for g in s.groups), default=0)
    return render(
        _ROOM,
        "status.html.j2",
        {
            "s": s,
            "tone": "warn" if s.services_failing and _TONE[s.health.state] == "good" else _TONE[s.health.state],
            "title": health.TITLES[s.health.state],
            "last": last,
            "kinds": [
                (kind, _KIND_TEXT[kind], s.counts.get(kind, 0), s.counts.get(kind, 0) / records) for kind in KINDS
            ],
            "phases": [
                (f"s{n}", phase, _PHASE_TEXT[phase], s.phases.get(phase, 0.0)) for n, phase in enumerate(PHASES)
            ],
            "phase_columns": [[b.phases.get(phase, 0.0) for phase in PHASES] for b in s.recent],
            "rates": [(n, b.records / b.seconds if b.seconds else 0.0) for n, b in enumerate(s.recent)],
            "groups": [(g, g.keys / most if most else 0.0) for g in largest[:GROUPS_SHOWN]],
            "groups_more": len(largest) > GROUPS_SHOWN,
            "waiting": [(part, part.records / most_records if most_records else 0.0) for part in waiting],
            "partitions": s.files.largest[:PARTITIONS_SHOWN] if s.files else (),
            "show_bad": health.show_bad(s.about.checkpoint),
            "commits": s.commits[:COMMITS_SHOWN],
        },
        script=_SCRIPT,
    )


_KEPT_S = 1.0  # the page is made at most once in so many seconds, for all readers
_SILENT_S = 15.0  # a connection without a request is closed after so many seconds
_HEADERS = (
    ("Server", "tagstream"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_STATUS = {200: "200 OK", 404: "404 Not Found", 405: "405 Method Not Allowed", 503: "503 Service Unavailable"}
Answer = tuple[int, str, bytes]


class Pages:
    """The pages by path. ``monotonic`` returns seconds; it limits how long a page is reused."""

    def __init__(self, snapshot: Callable[[], Snapshot], monotonic: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._made: tuple[float, bytes] | None = None
        self._registry = CollectorRegistry()
        self._registry.register(RunCollector(snapshot))

    def get(self, path: str) -> Answer:
        """HTTP status, content type and content of a path."""
        match path:
            case "/":
                return 200, "text/html; charset=utf-8", self._page()
            case "/status.json":
                text = json.dumps(self._snapshot().document(), allow_nan=False)
                return 200, "application/json", text.encode()
            case "/healthz":
                code, text = health.answer(self._snapshot().health)
                return code, "text/plain; charset=utf-8", text.encode("utf-8", "replace")
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        return 404, "text/plain; charset=utf-8", b"not found; the paths are /, /status.json, /healthz and /metrics\n"

    def _page(self) -> bytes:
        with self._lock:
            now = self._monotonic()
            if self._made is None or now - self._made[0] >= _KEPT_S:
                self._made = (now, status_page(self._snapshot()))
            return self._made[1]

    def __call__(
        self, environ: dict[str, Any], start: Callable[[str, list[tuple[str, str]]], object]
    ) -> Iterable[bytes]:
        """The WSGI application. It accepts GET and HEAD only."""
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            code, kind, content = 405, "text/plain; charset=utf-8", b"GET and HEAD only\n"
        else:
            code, kind, content = self.get(environ.get("PATH_INFO", ""))
        headers = [("Content-Type", kind), ("Content-Length", str(len(content))), *_HEADERS]
        headers.append(("Content-Security-Policy", f"{POLICY}; frame-ancestors 'none'"))
        if code == 405:
            headers.append(("Allow", "GET, HEAD"))
        start(_STATUS[code], headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else content]


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
        """Requests are not logged."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True  # a client that reads slowly must not keep the job from ending
    block_on_close = False

    def __init__(self, address: tuple[str, int]) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in another thread."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The request was answered."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close all connections: a browser keeps connections open for later requests."""
        super().server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class StatusServer:
    """Serves ``pages`` on ``port`` (0: a free one) of ``host`` until :meth:`close`. ConfigError where it cannot listen
    there.
    """

    def __init__(self, port: int, host: str, pages: Pages) -> None:
        try:
            self._server = _Server((host, port))
        except OSError as e:
            raise ConfigError(
                f"--status-port {port}: cannot listen on this port of --status-host {host} ({e.strerror}); set another one"
            ) from None
        self._server.set_app(pages)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="status-server", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
