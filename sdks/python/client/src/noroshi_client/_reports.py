"""Sends reports when the network allows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, cast

from ._clock import Clock, Timer
from ._core.outbox import Outbox, is_retried
from ._http import Http
from .errors import NoroshiError, ProblemError


class ReportStorage(Protocol):
    """Keeps reports of opened messages until the service has them (O6)."""

    def load(self) -> str | None:
        """What `save` was called with last."""
        ...

    def save(self, text: str) -> None: ...


class FileStorage:
    """Keeps reports in a file, for one client."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def load(self) -> str | None:
        try:
            return self._path.read_text("utf-8")
        except FileNotFoundError:
            return None

    def save(self, text: str) -> None:
        new = self._path.with_name(self._path.name + ".new")
        new.write_text(text, "utf-8")
        new.replace(self._path)


class Reports:
    def __init__(
        self,
        http: Http,
        clock: Clock,
        failed: Callable[[NoroshiError], None],
        *,
        path: str,
        field: str,
        batch: int,
        limit: int,
        storage: ReportStorage | None = None,
        is_state: bool = False,
    ) -> None:
        """With `is_state` an entry replaces the earlier ones, and the body has it alone."""
        self._http = http
        self._clock = clock
        self._failed = failed
        self._path = path
        self._field = field
        self._storage = storage
        self._is_state = is_state
        self._outbox = Outbox(batch=batch, limit=limit)
        self._timer: Timer | None = None
        self._will_send = False
        self._task: asyncio.Task[None] | None = None
        self._outbox.add(self._kept())

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The request in progress."""
        return self._task

    def add(self, entries: Iterable[str]) -> None:
        dropped = self._outbox.add(entries)
        for _ in range(0 if self._is_state else dropped):
            self._failed(NoroshiError("queue_full", f"more than {self._outbox.limit} reports wait for {self._path}"))
        self._keep()
        if self._timer is None and not self._outbox.is_busy and not self._will_send:
            self._will_send = True
            asyncio.get_running_loop().call_soon(self._send)

    def wake(self) -> None:
        """The network has returned."""
        if self._timer is not None:
            self._send()

    def clear(self) -> None:
        """Drops what waits. A request in progress is the last one."""
        self._outbox.clear()

    def open(self) -> None:
        """After `close`."""
        self._outbox.is_closed = False
        self._send()

    def close(self) -> None:
        """Sends what has not been tried, and nothing later."""
        if self._timer is None:
            self._send()
        else:
            self._timer.cancel()
            self._timer = None
        self._outbox.is_closed = True

    def _send(self) -> None:
        self._will_send = False
        entries = self._outbox.take()
        if entries is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._task = asyncio.ensure_future(self._request(entries))

    async def _request(self, entries: list[str]) -> None:
        try:
            method, value = ("PUT", entries[0]) if self._is_state else ("POST", entries)
            await self._http.request(method, self._path, body={self._field: value})
        except NoroshiError as error:
            status = error.status if isinstance(error, ProblemError) else None
            if is_retried(status):
                wait = (error.retry_after or 0) if isinstance(error, ProblemError) else 0
                self._again(round(wait * 1_000))
                return
            if self._outbox.rejected(entries, status):
                self._failed(error)
        except BaseException:
            self._outbox.is_busy = False
            raise
        else:
            self._outbox.succeeded(entries)
        self._keep()
        self._send()

    def _again(self, retry_after_ms: int) -> None:
        if self._outbox.is_closed:
            self._outbox.is_busy = False
            return
        wait = self._outbox.failed(retry_after_ms, self._clock.random())
        self._timer = self._clock.call_later(wait, self._send)

    def _kept(self) -> list[str]:
        try:
            text = self._storage.load() if self._storage else None
            kept: object = json.loads(text) if text else None
        except (OSError, ValueError):
            return []  # not ours, or cut off
        return [one for one in cast("list[object]", kept) if isinstance(one, str)] if isinstance(kept, list) else []

    def _keep(self) -> None:
        if self._storage is None:
            return
        try:
            self._storage.save(json.dumps(list(self._outbox.waiting)))
        except OSError as error:
            self._failed(NoroshiError("queue_full", f"the storage refused reports: {error}"))
