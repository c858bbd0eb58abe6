"""Handlers of events, and messages as an async iterator."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from .errors import NoroshiError
from .models import Message

logger = logging.getLogger("noroshi_client")


@dataclass(frozen=True, slots=True)
class Closed:
    """The client was closed, or the subscription has ended."""

    error: NoroshiError | None
    """What loops over messages raise."""


CLOSED = "closed"
"""The event that ends loops over messages; its value is a `Closed`."""

Handler = Callable[[Any], object]


class Unhandled(Exception):
    """A handler did not handle its message. Another one may have."""


class Left(Exception):
    """A loop ended before it asked for the message after this one (A8): it has failed to handle it."""


class Emitter:
    def __init__(self) -> None:
        self.closed: Closed | None = None
        self._handlers: dict[str, list[Handler]] = {}
        self._tasks: set[asyncio.Future[Any]] = set()

    def add(self, event: str, handler: Handler) -> Callable[[], None]:
        handlers = self._handlers.setdefault(event, [])
        handlers.append(handler)

        def remove() -> None:
            if handler in handlers:
                handlers.remove(handler)

        return remove

    def close(self, error: NoroshiError | None) -> None:
        """Ends loops over messages, until `closed` is `None`."""
        self.closed = Closed(error)
        self.emit(CLOSED, self.closed)

    def has(self, event: str) -> bool:
        return bool(self._handlers.get(event))

    def handlers(self, event: str) -> list[Handler]:
        return list(self._handlers.get(event, ()))

    def emit(self, event: str, value: object) -> None:
        """An exception of a handler is logged."""
        for handler in self.handlers(event):
            try:
                result = handler(value)
            except Exception:
                logger.exception("a handler of %s failed", event)
                continue
            if inspect.isawaitable(result):
                task = asyncio.ensure_future(result)
                self._tasks.add(task)
                task.add_done_callback(lambda task: self._done(event, task))

    def _done(self, event: str, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("a handler of %s failed", event, exc_info=error)


def ask(handlers: list[Handler], message: Message) -> tuple[list[BaseException], list[Awaitable[object]], int]:
    """Calls all handlers: their exceptions, what they wait for, and how many have handled the message."""
    errors: list[BaseException] = []
    waiting: list[Awaitable[object]] = []
    handled = 0
    for handler in handlers:
        try:
            result = handler(message)
        except Exception as error:
            errors.append(error)
            continue
        if inspect.isawaitable(result):
            waiting.append(result)
        else:
            handled += 1
    return errors, waiting, handled


class Messages:
    """Messages, one after the other. A stored message is acknowledged when the loop asks for the next one.

    Messages that arrive meanwhile wait in a bounded queue. The loop ends when the application closes the client or ends
    the subscription, and when `get_token` returned `None`. If the client is closed for another reason, such as
    `replaced`, it raises `NoroshiError`. Messages that the loop has not begun with by then arrive again.

    A loop that ends by `break` or by an exception leaves its last message without an acknowledgement, so it arrives
    again in the next session. In a block `async with`, the message is acknowledged if the block ends without an
    exception:

    ```python
    async with noroshi.messages() as messages:
        async for message in messages:
            print(message.data)
            break
    ```
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._waiting: deque[tuple[Message, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._remove: list[Callable[[], None]] = []
        # The message in the body of the loop.
        self._current: asyncio.Future[None] | None = None
        # The end of the block decides about the message.
        self._is_in_block = False
        self._is_over = False
        self._error: NoroshiError | None = None

    def _start(self) -> None:
        if self._emitter.closed is not None:
            self._close(self._emitter.closed)
        elif not self._remove and not self._is_over:
            self._remove = [self._emitter.add("message", self._take), self._emitter.add(CLOSED, self._close)]

    def _take(self, message: Message) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, done))
        self._wake.set()
        return done

    def _close(self, closed: Closed) -> None:
        self._is_over = True
        self._error = closed.error
        self._wake.set()

    def _stop(self, *, handled: bool) -> None:
        self._is_over = True
        for remove in self._remove:
            remove()
        for _, done in self._waiting:
            if done.done():
                continue
            if done is not self._current:
                done.set_exception(Unhandled())
            elif handled:
                done.set_result(None)
            else:
                done.set_exception(Left())
        self._waiting.clear()
        self._wake.set()

    def __aiter__(self) -> AsyncGenerator[Message, None]:
        self._start()
        return self._iterate()

    async def _iterate(self) -> AsyncGenerator[Message, None]:
        try:
            while not self._is_over:
                if not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                message, self._current = self._waiting[0]
                yield message
                done, self._current = self._current, None
                if self._waiting and self._waiting[0][1] is done:
                    self._waiting.popleft()
                    if not done.done():
                        done.set_result(None)
            if self._error is not None:
                raise self._error
        finally:
            if not self._is_in_block:
                self._stop(handled=False)

    async def __aenter__(self) -> Messages:
        self._is_in_block = True
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop(handled=kind is None)
