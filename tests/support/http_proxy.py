"""A proxy before an S3 server: counts requests by kind, makes each later, and goes wrong at the ones it is told.

It runs in a thread of the test. A rule is asked about each request and says what becomes of it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.loopback_proxy import LoopbackProxy

# Kinds of requests that change something.
CHANGES = ("PUT", "PUT_IF", "COPY", "DELETE", "DELETE_MANY", "PART_PUT", "PART_POST")
# What a rule may say.
PASS, LOSE, REFUSE, RESET, EXPIRE, HOLD = "pass", "lose", "refuse", "reset", "expire", "hold"
_TOKEN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)
_ANSWERS = {  # of the proxy's own: the server never sees the request
    REFUSE: b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    EXPIRE: b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    + b"Content-Length: %d\r\n\r\n" % len(_TOKEN)
    + _TOKEN,
}


@dataclass(frozen=True)
class Request:
    """One request: its ``kind`` as S3 prices it, the path with its query, its ``number`` of all and ``nth`` of its kind."""

    kind: str
    target: str
    number: int
    nth: int


@dataclass(frozen=True)
class Logged:
    """A request that came ``at`` (epoch seconds); ``ours``: from the Python client, and not from Hadoop's."""

    at: float
    kind: str
    target: str
    ours: bool


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Rule = Callable[[Request], str]


class HttpProxy(LoopbackProxy):
    """Listens on ``port`` while the block runs.

    ``counts`` are all requests by kind; ``targets`` (kind, path) of the Python client's, ``others`` of Hadoop's; ``log``
    all of them with their moments.

    LOSE: the server takes the request, and its answer is cut off. REFUSE: 503, the server never sees it. RESET: the
    connection breaks before it does. EXPIRE: what S3 answers to a token that has run out. HOLD: the request stays on its way
    until :meth:`let_go`, and the server gets it then, even if nobody waits for the answer any more.
    """

    def __init__(self, to: int, delay_ms: float = 0) -> None:
        super().__init__(to)
        self.delay_s = delay_ms / 1000
        self.rule: Rule = lambda _: PASS
        self.counts: Counter[str] = Counter()
        self.targets: list[tuple[str, str]] = []
        self.others: list[tuple[str, str]] = []
        self.log: list[Logged] = []
        self.holds = threading.Event()  # a request is held now
        self._free = asyncio.Event()

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        """Count from the beginning, and let everything pass."""
        self.rule = lambda _: PASS
        self.counts.clear()
        self.targets.clear()
        self.others.clear()
        self.log.clear()

    def let_go(self) -> None:
        """What is held goes on to the server."""

        def go() -> None:
            self._free.set()
            self._free = asyncio.Event()

        self.holds.clear()
        self._loop.call_soon_threadsafe(go)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back: Connection | None = None
        try:
            while head := await _head(reader):
                request = self._counted(head)
                what = self.rule(request)
                if b"100-continue" in head.lower():  # it is taken from whoever waits to be asked for it
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await _body(head, reader, answer=False)
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if what == RESET:
                    return
                if what in _ANSWERS:
                    whole = _ANSWERS[what]
                    writer.write(whole.removesuffix(_TOKEN) if request.kind == "HEAD" else whole)
                    await writer.drain()
                    return
                if what == HOLD:
                    free = self._free
                    self.holds.set()
                    await free.wait()
                back, answer = await self._forwarded(back, head + body)
                data = b"" if request.kind == "HEAD" else await _body(answer, back[0], answer=True)
                if what == LOSE:
                    return
                writer.write(answer + data)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            for each in (writer, back[1] if back is not None else None):
                if each is not None:
                    each.transport.abort()

    async def _forwarded(self, back: Connection | None, data: bytes) -> tuple[Connection, bytes]:
        """The head of the server's answer; over a new connection where the server has closed the old one meanwhile."""
        for _ in range(3):
            if back is None:
                back = await self._server()
            try:
                back[1].write(data)
                await back[1].drain()
                answer = await _head(back[0])
                while answer.startswith(b"HTTP/1.1 100"):
                    answer = await _head(back[0])
            except OSError:
                answer = b""
            if answer:
                return back, answer
            back[1].transport.abort()
            back = None
        raise ConnectionError("the server closes every connection")

    def _counted(self, head: bytes) -> Request:
        verb, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        kind = kind_of(verb, target, head)
        self.counts[kind] += 1
        ours = b"aws-sdk" not in head and b"Hadoop" not in head
        (self.targets if ours else self.others).append((kind, target))
        self.log.append(Logged(time.time(), kind, target, ours))
        return Request(kind, target, self.counts.total(), self.counts[kind])


def kind_of(verb: str, target: str, head: bytes) -> str:
    """Requests told apart as S3 prices them."""
    lines, query = head.lower(), target.partition("?")[2]
    if verb == "GET" and "list-type" in query:
        return "LIST"
    if verb == "PUT" and b"\r\nx-amz-copy-source" in lines:
        return "COPY"
    if verb == "PUT" and (b"\r\nif-none-match" in lines or b"\r\nif-match" in lines):
        return "PUT_IF"
    if "uploads" in query or "uploadid" in query.lower():
        return f"PART_{verb}"
    return "DELETE_MANY" if verb == "POST" and "delete" in query else verb


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


async def _body(head: bytes, reader: asyncio.StreamReader, *, answer: bool) -> bytes:
    lines = head.lower().split(b"\r\n")
    fields = dict(line.split(b":", 1) for line in lines[1:] if b":" in line)
    if answer and lines[0].split(b" ")[1] in (b"204", b"304"):
        return b""
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        out = bytearray()
        while True:
            size = await reader.readuntil(b"\r\n")
            piece = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
            out += size + piece
            if len(piece) == 2:
                return bytes(out)
    return await reader.readexactly(int(fields.get(b"content-length", b"0")))
