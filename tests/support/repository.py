"""A repository of Maven's layout on loopback: a folder, served over HTTP, with a login where one is wanted."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tagstream.streaming.source.jars import Jar


@dataclass
class Repository:
    """``login``: "user:password"; ``asked``: the paths."""

    folder: Path
    login: str = ""
    asked: list[str] = field(default_factory=list)
    host: str = ""

    @property
    def url(self) -> str:
        """Without a login."""
        return f"http://{self.host}/maven2"

    def put(self, path: str, content: bytes) -> None:
        """A file of the repository."""
        place = self.folder / "maven2" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def link(self, jars: Iterable[Jar], files: Iterable[Path]) -> None:
        """The listed jars, from files of the same names."""
        there = {file.name: file for file in files}
        for jar in jars:
            place = self.folder / "maven2" / jar.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(there[jar.name])


@contextmanager
def running(repository: Repository) -> Iterator[Repository]:
    """Serve it; ``host`` is set."""

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            repository.asked.append(self.path)
            wanted = "Basic " + base64.b64encode(repository.login.encode()).decode()
            if repository.login and self.headers.get("Authorization") != wanted:
                self.send_error(401)
            else:
                super().do_GET()

        def log_message(self, *_: Any) -> None:
            """Not on the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(repository.folder)))
    repository.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield repository
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
