"""Carries frames: over a WebSocket, or by server-sent events and requests."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from typing import Protocol

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from ._clock import Clock
from ._core.backoff import retry_after
from ._core.connection import End
from ._core.frames import Frame, encode
from ._core.sse import EventParser
from ._version import USER_AGENT

# A frame larger than this is not from the service.
_FRAME_BYTES_MAX = 16 << 20
# The client collects what it sends: so many frames wait only for a connection that is dead.
_FRAMES_MAX = 1_000
_CLOSE_TIMEOUT_S = 2
_ABORT_S = 3
_PROBLEM_BYTES_MAX = 64 << 10


class Listener(Protocol):
    """What a transport reports. After `ended` nothing follows."""

    def opened(self) -> None: ...
    def heard(self) -> None: ...
    def frame(self, data: str | bytes) -> None: ...
    def ended(self, end: End) -> None: ...


class Link(Protocol):
    task: asyncio.Task[None]

    def send(self, frame: Frame) -> None: ...

    def close(self) -> None:
        """Nothing is reported afterwards. The task ends when the connection is closed."""
        ...


class WebSocketLink:
    def __init__(self, address: str, listener: Listener, clock: Clock, ssl_context: ssl.SSLContext | None) -> None:
        self._address = address
        self._listener = listener
        self._clock = clock
        self._ssl = ssl_context
        self._is_closed = False
        self._socket: ClientConnection | None = None
        self._aborting: asyncio.TimerHandle | None = None
        # `None`: close.
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self.task = asyncio.ensure_future(self._run())

    def send(self, frame: Frame) -> None:
        if self._frames.qsize() < _FRAMES_MAX:
            self._frames.put_nowait(frame)
        else:
            self._end(End())

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._socket is None:
            self.task.cancel()
            return
        self._frames.put_nowait(None)
        # On a stalled network what was sent before never leaves.
        self._aborting = asyncio.get_running_loop().call_later(_ABORT_S, self._socket.transport.abort)

    def _end(self, end: End) -> None:
        if not self._is_closed:
            self.close()
            self._listener.ended(end)

    async def _run(self) -> None:
        try:
            socket = await connect(
                self._address,
                subprotocols=[Subprotocol("noroshi.v1")],
                user_agent_header=USER_AGENT,
                ssl=(self._ssl or True) if self._address.startswith("wss:") else None,
                max_size=_FRAME_BYTES_MAX,
                close_timeout=_CLOSE_TIMEOUT_S,
                # The contract has its own timeouts and heartbeat.
                open_timeout=None,
                ping_interval=None,
            )
        except InvalidStatus as error:
            header = error.response.headers.get("Retry-After")
            self._end(End(retry_after_ms=retry_after(header, self._clock.wall())))
            return
        except (OSError, EOFError, WebSocketException):
            self._end(End())
            return
        if self._is_closed:
            socket.transport.abort()
            return
        self._socket = socket
        writing = asyncio.ensure_future(self._write(socket))
        self._listener.opened()
        try:
            async for data in socket:
                if not self._is_closed:
                    self._listener.heard()
                    self._listener.frame(data)
        except ConnectionClosed:
            pass
        finally:
            self._end(End(code=socket.close_code))
            socket.transport.abort()
            if self._aborting is not None:
                self._aborting.cancel()
            writing.cancel()

    async def _write(self, socket: ClientConnection) -> None:
        try:
            while (frame := await self._frames.get()) is not None:
                await socket.send(encode(frame))
            await socket.close(1000)
        except ConnectionClosed:
            pass


class SseLink:
    def __init__(
        self,
        client: httpx.AsyncClient,
        address: httpx.URL,
        token: str,
        last_id: str | None,
        listener: Listener,
        clock: Clock,
        report: Callable[[Frame], None],
    ) -> None:
        self._client = client
        self._address = address
        self._listener = listener
        self._clock = clock
        self._report = report
        self._headers = {"accept": "text/event-stream", "authorization": f"Bearer {token}", "cache-control": "no-store"}
        if last_id is not None:
            self._headers["last-event-id"] = last_id
        self._is_closed = False
        self.task = asyncio.ensure_future(self._run())

    def send(self, frame: Frame) -> None:
        self._report(frame)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.task.cancel()

    async def _run(self) -> None:
        try:
            end = await self._read()
        except (httpx.HTTPError, ValueError):
            end = End()
        if not self._is_closed:
            self._is_closed = True
            self._listener.ended(end)

    async def _read(self) -> End:
        async with self._client.stream("GET", self._address, headers=self._headers) as response:
            if response.status_code != 200:
                return End(
                    status=response.status_code,
                    problem=await _problem(response),
                    retry_after_ms=retry_after(response.headers.get("retry-after"), self._clock.wall()),
                )
            self._listener.opened()
            parser = EventParser()
            async for chunk in response.aiter_bytes():
                if self._is_closed:
                    break
                self._listener.heard()
                for data in parser.feed(chunk):
                    if not self._is_closed:
                        self._listener.frame(data)
        return End()


async def _problem(response: httpx.Response) -> str | None:
    """The code of a problem document."""
    text = b""
    async for chunk in response.aiter_bytes():
        text += chunk
        if len(text) > _PROBLEM_BYTES_MAX:
            return None
    try:
        code: object = json.loads(text)["code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, str) else None
