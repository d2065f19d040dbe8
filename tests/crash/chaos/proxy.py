"""A wire between clients and a server that can be cut in the middle of a frame, or go silent."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from random import Random

_CHUNK_BYTES = 1 << 16


class Proxy:
    """Started by `with`; runs in a thread of its own. `address` stays the same while `target` may change, or be None:
    nobody answers then. Methods are safe from any thread.
    """

    def __init__(self, seed: int) -> None:
        self.target: tuple[str, int] | None = None
        self.cuts = 0
        self._random = Random(seed)
        self._wires: set[_Wire] = set()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_over = asyncio.Event()
        self._may_flow = asyncio.Event()
        self._may_flow.set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        self._is_ready.set()
        await self._is_over.wait()
        server.close()
        for wire in list(self._wires):
            wire.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.target is None:
                raise ConnectionRefusedError
            up_reader, up_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        wire = _Wire((writer, up_writer))
        self._wires.add(wire)
        try:
            await asyncio.gather(self._pump(wire, reader, up_writer), self._pump(wire, up_reader, writer))
        finally:
            self._wires.discard(wire)

    async def _pump(self, wire: _Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._may_flow.wait()
                if wire.left is not None:
                    data, wire.left = data[: wire.left], max(wire.left - len(data), 0)
                writer.write(data)
                await writer.drain()
                if wire.left == 0:
                    self.cuts += 1
                    break
        wire.abort()

    def cut(self, within_bytes: int) -> None:
        """Each connection breaks after some more bytes, fewer than these."""

        def do() -> None:
            for wire in self._wires:
                wire.left = self._random.randrange(within_bytes)

        self._loop.call_soon_threadsafe(do)

    def stop_flow(self) -> None:
        """Connections stay, nothing passes."""
        self._loop.call_soon_threadsafe(self._may_flow.clear)

    def resume_flow(self) -> None:
        """What was sent meanwhile passes."""
        self._loop.call_soon_threadsafe(self._may_flow.set)


class _Wire:
    """A connection of a client with that to the server. Owned by the loop."""

    def __init__(self, writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self.left: int | None = None
        """Bytes that it will pass before it breaks."""
        self._writers = writers

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
