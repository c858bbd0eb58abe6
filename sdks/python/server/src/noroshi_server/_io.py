"""What differs between the clients with and without asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

async_pause = asyncio.sleep
pause = time.sleep


async def async_each(lines: AsyncIterable[T] | Iterable[T]) -> AsyncIterator[T]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line


def each(lines: Iterable[T]) -> Iterator[T]:
    return iter(lines)
