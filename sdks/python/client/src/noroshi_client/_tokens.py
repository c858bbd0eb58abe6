"""Gets tokens from the application: one request at a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from ._clock import Clock, within
from ._core.tokens import TokenBook
from .errors import NoroshiError, SignedOut
from .models import TokenRequest

GetToken = Callable[[TokenRequest], "str | None | Awaitable[str | None]"]
"""Returns a token of the device: a device token, or a JWT of the app. `None` means that nobody is signed in."""

_TIMEOUT_MS = 30_000


class Tokens:
    def __init__(self, get_token: GetToken, book: TokenBook, clock: Clock) -> None:
        self.book = book
        self._get_token = get_token
        self._clock = clock
        self._pending: asyncio.Task[str] | None = None

    async def take(self) -> str:
        """The current token, or a new one."""
        return self.book.current if self.book.current is not None else await self._request()

    async def renew(self) -> str:
        """A new token; the current one stays in use until it arrives."""
        self.book.expire()
        return await self._request()

    def cancel(self) -> None:
        if self._pending is not None:
            self._pending.cancel()

    async def _request(self) -> str:
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._fetch())
            self._pending.add_done_callback(self._ended)
        pending = self._pending
        try:
            # A caller that gives up does not end the request of the others.
            return await asyncio.shield(pending)
        except asyncio.CancelledError:
            if pending.cancelled():
                raise NoroshiError("closed", "the client was closed") from None
            raise

    def _ended(self, task: asyncio.Task[str]) -> None:
        self._pending = None
        if not task.cancelled():
            task.exception()  # Its callers may be gone.

    async def _fetch(self) -> str:
        try:
            token = await within(self._clock, _TIMEOUT_MS, self._ask(self.book.request()))
            if token is None:
                raise SignedOut
            return self.book.accept(token, self._clock.now(), self._clock.wall(), self._clock.random)
        except SignedOut:
            raise
        except TimeoutError as error:
            raise NoroshiError("token_failed", f"no token after {_TIMEOUT_MS // 1_000} s") from error
        except Exception as error:
            raise NoroshiError("token_failed", f"get_token failed: {error}") from error

    async def _ask(self, request: TokenRequest) -> str | None:
        token = self._get_token(request)
        return await token if inspect.isawaitable(token) else token
