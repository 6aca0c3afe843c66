"""A proxy before a server that makes it far: every byte comes later, half of the delay each way. Runs in a thread."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

_PIECE = 1 << 18
_WAITING = 64  # pieces that are on their way at most


class TcpProxy:
    """Listens on ``port`` while the block runs, and hands on to port ``to``."""

    def __init__(self, to: int, delay_ms: float) -> None:
        self.to = to
        self.port = 0
        self._half_s = delay_ms / 2000
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._client, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self.to)
        try:
            await asyncio.gather(self._pipe(reader, back_writer), self._pipe(back_reader, writer))
        except (OSError, asyncio.CancelledError):
            return
        finally:
            writer.transport.abort()
            back_writer.transport.abort()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_WAITING)

        async def take() -> None:
            piece = b"-"
            while piece:
                piece = await reader.read(_PIECE)
                await pieces.put((self._loop.time() + self._half_s, piece))

        async def give() -> None:
            while True:
                at, piece = await pieces.get()
                await asyncio.sleep(max(0.0, at - self._loop.time()))
                if not piece:
                    writer.write_eof()
                    return
                writer.write(piece)
                await writer.drain()

        await asyncio.gather(take(), give())

    def __enter__(self) -> TcpProxy:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
