"""Time and random numbers. Tests replace them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds of a clock that never goes back."""
        ...

    def wall(self) -> int:
        """Milliseconds since 1970."""
        ...

    def random(self) -> float:
        """0 <= random() < 1"""
        ...

    def call_later(self, ms: int, callback: Callable[[], None]) -> Timer: ...


class SystemClock:
    def now(self) -> int:
        return int(time.monotonic() * 1_000)

    def wall(self) -> int:
        return int(time.time() * 1_000)

    def random(self) -> float:
        return random.random()

    def call_later(self, ms: int, callback: Callable[[], None]) -> Timer:
        # `now` is truncated: a timer that is a millisecond late is due when it is called.
        return asyncio.get_running_loop().call_later((ms + 1) / 1_000, callback)


async def sleep(clock: Clock, ms: int) -> None:
    elapsed = asyncio.Event()
    timer = clock.call_later(ms, elapsed.set)
    try:
        await elapsed.wait()
    finally:
        timer.cancel()


async def within(clock: Clock, ms: int, work: Coroutine[Any, Any, T]) -> T:
    """Cancels `work` and raises `TimeoutError` after `ms`."""
    task = asyncio.ensure_future(work)
    is_late = False

    def expire() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    timer = clock.call_later(ms, expire)
    try:
        return await task
    except asyncio.CancelledError:
        if is_late:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()
