"""What the proxies before a server have in common: they listen on a free port of loopback, in a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

_LIMIT = 1 << 20  # bytes of a request's head


class LoopbackProxy:
    """Listens on ``port`` while the block runs, and hands on to port ``to``; a subclass says what becomes of a client."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server behind."""
        return await asyncio.open_connection("127.0.0.1", self.to, limit=_LIMIT)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._client, "127.0.0.1", 0, limit=_LIMIT))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
