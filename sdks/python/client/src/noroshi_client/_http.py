"""Requests of the device's API: one retry after a rejected token, and of reads if the service asks for it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, cast

import httpx

from ._clock import Clock, sleep, within
from ._core.backoff import retry_after
from ._tokens import Tokens
from ._version import USER_AGENT
from .errors import NoroshiError, ProblemError

_TIMEOUT_MS = 30_000
# U6: from the call to the last repetition of a read.
_REPEAT_MS = 30_000
_REPEATS_MAX = 2
_REPEATED = frozenset((429, 503))


class Http:
    def __init__(
        self,
        url: str,
        app: str | None,
        tokens: Tokens,
        clock: Clock,
        client: httpx.AsyncClient | None,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self._url = url
        self._app = app
        self._tokens = tokens
        self._clock = clock
        self._given = client
        self._ssl = ssl_context
        self._own: httpx.AsyncClient | None = None

    @property
    def client(self) -> httpx.AsyncClient:
        if self._given is not None:
            return self._given
        if self._own is None:
            # Deadlines are timers of the client's clock.
            self._own = httpx.AsyncClient(timeout=None, headers={"user-agent": USER_AGENT}, verify=self._ssl or True)  # noqa: S113
        return self._own

    async def aclose(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()

    def address(self, path: str, query: Mapping[str, str | None] | None = None) -> httpx.URL:
        given = {name: value for name, value in {**(query or {}), "app": self._app}.items() if value}
        return httpx.URL(self._url + path, params=given) if given else httpx.URL(self._url + path)

    def retry_after_ms(self, response: httpx.Response) -> int | None:
        return retry_after(response.headers.get("retry-after"), self._clock.wall())

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """The answer with status 200 to 299 or 304; every other one is a `ProblemError`."""
        response, _ = await self.exchange(method, path, query=query, body=body, headers=headers)
        return response

    async def exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[httpx.Response, str]:
        """As `request`, with the token that the service accepted."""
        end = self._clock.now() + _REPEAT_MS
        repeats = 0
        is_retry = False
        while True:
            token = await self._tokens.take()
            sent = {"authorization": f"Bearer {token}", **(headers or {})}
            response = await self._send(method, path, self.address(path, query), sent, body)
            if response.is_success or response.status_code == 304:
                return response, token
            if response.status_code == 401 and not is_retry:
                self._tokens.book.reject(token)  # T6
                is_retry = True
                continue
            wait = self.retry_after_ms(response)
            is_repeated = method == "GET" and response.status_code in _REPEATED and repeats < _REPEATS_MAX
            if not is_repeated or wait is None or self._clock.now() + wait > end:
                raise self._problem(response)
            repeats += 1
            await sleep(self._clock, wait)  # U6

    async def json(
        self, method: str, path: str, *, query: Mapping[str, str | None] | None = None, body: object = None
    ) -> Any:
        return self.parse(await self.request(method, path, query=query, body=body))

    def parse(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError as error:
            raise NoroshiError("network", f"{response.request.url.path}: the answer is not JSON") from error

    async def _send(
        self, method: str, path: str, url: httpx.URL, headers: Mapping[str, str], body: object
    ) -> httpx.Response:
        sending = self.client.request(method, url, headers=headers, json=body)
        try:
            return await within(self._clock, _TIMEOUT_MS, sending)
        except TimeoutError as error:
            raise NoroshiError("timeout", f"{method} {path}: no answer after {_TIMEOUT_MS // 1_000} s") from error
        except httpx.HTTPError as error:
            raise NoroshiError("network", f"{method} {path}: {error or type(error).__name__}") from error

    def _problem(self, response: httpx.Response) -> ProblemError:
        try:
            body: object = response.json()
        except ValueError:
            body = None  # a proxy's page
        problem = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
        wait = self.retry_after_ms(response)
        return ProblemError(
            response.status_code,
            problem,
            request_id=response.headers.get("x-request-id"),
            retry_after=None if wait is None else wait / 1_000,
        )
