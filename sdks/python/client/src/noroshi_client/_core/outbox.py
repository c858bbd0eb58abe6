"""Reports that wait for the network: bounded, sent in batches, retried. O1 to O5."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from .backoff import backoff

_RETRIED = frozenset((401, 408, 429))


class Outbox:
    def __init__(self, *, batch: int, limit: int) -> None:
        self._batch = batch
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
        """The entries of the next request, which `succeeded`, `failed` or `dropped` ends."""
        if self.is_busy or self.is_closed or not self.waiting:
            return None
        self.is_busy = True
        return list(islice(self.waiting, self._batch))

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

    def dropped(self, entries: list[str]) -> None:
        """O4: another attempt cannot succeed."""
        self.is_busy = False
        self._remove(entries)

    def _remove(self, entries: list[str]) -> None:
        for entry in entries:
            self.waiting.pop(entry, None)


def is_retried(status: int | None) -> bool:
    """O3, O4: `None` is a network error."""
    return status is None or status >= 500 or status in _RETRIED
