"""A TCP proxy that can break connections, or stop forwarding: a lost network."""

from __future__ import annotations

import asyncio

from node import free_port


class Proxy:
    def __init__(self, target: int) -> None:
        self._target = target
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thawed = asyncio.Event()
        self._thawed.set()

    async def start(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if not self._thawed.is_set():
            await self._thawed.wait()  # Accepted, and never answered.
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(back)
        for one, other in ((reader, back), (there, writer)):
            task = asyncio.ensure_future(self._forward(one, other, (writer, back)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, both: tuple[asyncio.StreamWriter, ...]
    ) -> None:
        try:
            while data := await reader.read(65_536):
                await self._thawed.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            await self._thawed.wait()
            for one in both:
                one.transport.abort()
                self._writers.discard(one)

    def _break(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def freeze(self) -> None:
        """Nothing arrives any more, connections stay, new ones are accepted and never answered."""
        self._thawed.clear()

    async def cut(self) -> None:
        """Breaks connections and refuses new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._break()

    async def heal(self) -> None:
        """Restores everything; frozen connections break, as after a long loss of packets."""
        self._break()
        self._thawed.set()
        if self._server is None:
            await self.start()

    async def stop(self) -> None:
        await self.cut()
        self._thawed.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0)
