"""A schema registry of Confluent's interface, as far as readers ask it: over HTTP, with name and password where wanted."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from tests.support import cdc


@dataclass
class Registry:
    """``schemas`` by id, ``subjects`` with their ids. ``failing``: how many answers are errors; ``asked``: the paths."""

    schemas: Mapping[str, Any]
    subjects: Mapping[str, list[int]]
    user_info: str | None = None
    failing: int = 0
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, authorization: str | None) -> tuple[int, Any]:
        """(status, body) of a GET."""
        self.asked.append(path)
        if self.user_info is not None:
            wanted = "Basic " + base64.b64encode(self.user_info.encode()).decode()
            if authorization != wanted:
                return 401, {"message": "Unauthorized"}
        if self.failing > 0:
            self.failing -= 1
            return 503, {"message": "try again"}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"] and parts[2] in self.schemas:
            return 200, self.schemas[parts[2]]
        if parts[0] == "subjects" and parts[1] in self.subjects:
            versions = self.subjects[parts[1]]
            number = len(versions) if parts[3] == "latest" else int(parts[3])
            if number <= len(versions):
                return 200, self.schemas[str(versions[number - 1])]
        return 404, {"error_code": 40403}


@contextmanager
def running(registry: Registry) -> Iterator[Registry]:
    """Serve it; ``url`` is set."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers.get("Authorization"))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Not on the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def captured(subjects: Mapping[str, list[int]] | None = None) -> Iterator[Registry]:
    """A running registry with the schemas of the captured streams; ``subjects``: in place of theirs."""
    kept = json.loads(cdc.file("registry.json"))
    with running(Registry(kept["schemas"], kept["subjects"] if subjects is None else subjects)) as found:
        yield found
