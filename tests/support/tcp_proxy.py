"""A proxy before a server that makes it far: every byte comes later, half of the delay each way. Runs in a thread."""

from __future__ import annotations

import asyncio

from tests.support.loopback_proxy import LoopbackProxy

_PIECE = 1 << 18
_WAITING = 64  # pieces that are on their way at most


class TcpProxy(LoopbackProxy):
    """Listens on ``port`` while the block runs, and hands on to port ``to``, ``delay_ms`` later there and back."""

    def __init__(self, to: int, delay_ms: float) -> None:
        super().__init__(to)
        self._half_s = delay_ms / 2000

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await self._server()
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
