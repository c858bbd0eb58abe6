"""The newest ids."""

from __future__ import annotations


class Recent:
    """Remembers the newest `minimum` ids at least, and twice as many at most.

    There are two generations, because to find the oldest key of a dictionary takes longer after each deletion.
    """

    def __init__(self, minimum: int) -> None:
        self._minimum = minimum
        self._new: set[str] = set()
        self._old: set[str] = set()

    def __contains__(self, one: str) -> bool:
        return one in self._new or one in self._old

    def add(self, one: str) -> None:
        if len(self._new) >= self._minimum:
            self._old = self._new
            self._new = set()
        self._new.add(one)
