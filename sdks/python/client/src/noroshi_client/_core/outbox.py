"""Reports that wait for the network: bounded, sent in batches, retried, split. O1 to O5."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from .backoff import backoff

_RETRIED = frozenset((401, 408, 429))
# The service rejects all entries for a bad one, or the body for its size.
_SPLIT = frozenset((400, 413, 422))


class Outbox:
    def __init__(self, *, batch: int, limit: int) -> None:
        self._batch = batch
        # O4: fewer while a bad entry is sought.
        self._size = batch
        self.limit = limit
        self.waiting: dict[str, None] = {}
        self.failures = 0
        self.is_busy = False
        self.is_closed = False

    def add(self, entries: Iterable[str]) -> int:
        """Returns how many entries were dropped."""
        dropped = 0
        for entry in entries:
            self.waiting[entry] = None
            if len(self.waiting) > self.limit:
                del self.waiting[next(iter(self.waiting))]
                dropped += 1
        return dropped

    def take(self) -> list[str] | None:
        """The entries of the next request, which `succeeded`, `failed` or `rejected` ends."""
        if self.is_busy or self.is_closed or not self.waiting:
            return None
        self.is_busy = True
        return list(islice(self.waiting, self._size))

    def succeeded(self, entries: list[str]) -> None:
        self.is_busy = False
        self.failures = 0
        self._remove(entries)

    def failed(self, retry_after_ms: int, random: float) -> int:
        """Milliseconds until the next attempt."""
        self.is_busy = False
        wait = max(retry_after_ms, backoff(self.failures, random))
        self.failures += 1
        return wait

    def rejected(self, entries: list[str], status: int | None) -> bool:
        """O4: the same request cannot succeed. True if its entries were dropped, false if fewer are sent next."""
        self.is_busy = False
        if status in _SPLIT and len(entries) > 1:
            self._size = len(entries) // 2
            return False
        self._size = self._batch
        self._remove(entries)
        return True

    def clear(self) -> None:
        self.waiting.clear()

    def _remove(self, entries: list[str]) -> None:
        for entry in entries:
            self.waiting.pop(entry, None)


def is_retried(status: int | None) -> bool:
    """O3, O4: `None` is a network error."""
    return status is None or status >= 500 or status in _RETRIED
