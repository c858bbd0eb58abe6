"""A clock that moves only when a vector says so, and the random numbers of the vector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

START = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


class _Timer:
    def __init__(self, at: int, callback: Callable[[], None], timers: list[_Timer]) -> None:
        self.at = at
        self.callback = callback
        self._timers = timers

    def cancel(self) -> None:
        if self in self._timers:
            self._timers.remove(self)


class FakeClock:
    def __init__(self, random: list[float]) -> None:
        self._now = START
        self._timers: list[_Timer] = []
        self.unused = list(random)

    def now(self) -> int:
        return self._now

    wall = now

    def random(self) -> float:
        assert self.unused, "the vector has no more random numbers"
        return self.unused.pop(0)

    def call_later(self, ms: int, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(self._now + ms, callback, self._timers)
        self._timers.append(timer)
        return timer

    async def advance(self, ms: int) -> None:
        """Calls every timer that is due, in order."""
        end = self._now + ms
        while due := [timer for timer in self._timers if timer.at <= end]:
            first = min(due, key=lambda timer: timer.at)
            self._timers.remove(first)
            self._now = max(self._now, first.at)
            first.callback()
            await settle()
        self._now = end
