"""The server of a run: what it answers, to whom, and that nobody can hold the job up."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest

from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.server import Pages, StatusServer
from tagstream.table.errors import ConfigError
from tests.streaming.monitor.case import Clock, report, run_status
from tests.streaming.monitor.test_metrics import full_status


@pytest.fixture
def served() -> Iterator[tuple[RunStatus, StatusServer, Clock]]:
    clock = Clock()
    status = full_status(clock)
    server = StatusServer(0, "127.0.0.1", Pages(status.snapshot, lambda: clock.now_ms / 1000))
    yield status, server, clock
    server.close()


def ask(server: StatusServer, path: str, method: str = "GET") -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_every_path(served: tuple[RunStatus, StatusServer, Clock]) -> None:
    _, server, _ = served
    page, text = ask(server, "/")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"events" in text
    answer, doc = ask(server, "/status.json")
    assert (answer.headers["Content-Type"], json.loads(doc)["lag"]) == ("application/json", 17)
    answer, text = ask(server, "/healthz")
    assert (answer.status, text) == (200, b"ok: batch 1, committing; compaction fails and is tried again\n")
    answer, text = ask(server, "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert b'tagstream_lag_records{stream="orders-topic",table="events"} 17.0' in text
    assert ask(server, "/../../etc/passwd")[0].status == 404


def test_an_orchestrator_is_told_by_the_status(served: tuple[RunStatus, StatusServer, Clock]) -> None:
    status, server, clock = served
    clock.after(901)
    answer, text = ask(server, "/healthz")
    assert answer.status == 503
    assert text.startswith(b"stuck: in batch 1 for 15 min 1 s")
    status.batch(report(1))
    assert ask(server, "/healthz")[0].status == 200


def test_nothing_can_be_sent_to_it(served: tuple[RunStatus, StatusServer, Clock]) -> None:
    _, server, _ = served
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        answer, _ = ask(server, "/", method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    head, content = ask(server, "/", "HEAD")
    assert (head.status, content) == (200, b"")


def test_headers_keep_everything_else_out(served: tuple[RunStatus, StatusServer, Clock]) -> None:
    _, server, _ = served
    for path in ("/", "/status.json", "/metrics", "/healthz", "/nothing"):
        headers = ask(server, path)[0].headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "python" not in (headers["Server"] or "").lower()


def test_many_viewers_cost_one_page_a_second(served: tuple[RunStatus, StatusServer, Clock]) -> None:
    status, server, clock = served
    first = ask(server, "/")[1]
    status.lag(99_999)
    assert ask(server, "/")[1] == first
    clock.after(1)
    assert b"99,999" in ask(server, "/")[1]


def test_a_client_that_says_nothing_holds_nobody_up(served: tuple[RunStatus, StatusServer, Clock]) -> None:
    _, server, _ = served
    with socket.create_connection(("127.0.0.1", server.port), 5) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\nHost")
        assert ask(server, "/healthz")[0].status == 200


def test_a_connection_that_is_kept_open_is_hung_up_at_the_end() -> None:
    server = StatusServer(0, "127.0.0.1", Pages(run_status(Clock()).snapshot, lambda: 0.0))
    with socket.create_connection(("127.0.0.1", server.port), 5) as idle:
        idle.settimeout(10)
        assert ask(server, "/healthz")[0].status == 200  # so that the idle one was accepted before
        server.close()
        assert idle.recv(1) == b""


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--status-port {port}: cannot listen on this port"):
            StatusServer(port, "127.0.0.1", Pages(run_status(Clock()).snapshot, lambda: 0.0))


def test_only_the_address_that_was_asked_for_is_served(served: tuple[RunStatus, StatusServer, Clock]) -> None:
    with pytest.raises(OSError):  # another address of this machine
        socket.create_connection(("127.0.0.2", served[1].port), 5)
    everywhere = StatusServer(0, "0.0.0.0", Pages(run_status(Clock()).snapshot, lambda: 0.0))
    try:
        with socket.create_connection(("127.0.0.2", everywhere.port), 5):
            pass
    finally:
        everywhere.close()
    with pytest.raises(ConfigError, match="of --status-host 203.0.113.7"):
        StatusServer(0, "203.0.113.7", Pages(run_status(Clock()).snapshot, lambda: 0.0))
