"""The client: messages, topics, the inbox, and what the device reports about itself."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Literal, TypedDict, cast, overload

import httpx

from ._clock import Clock, SystemClock, Timer
from ._core.connection import (
    Close,
    Connection,
    Deliver,
    Effect,
    End,
    FlushSoon,
    NeedToken,
    Open,
    RenewToken,
    Report,
    Send,
)
from ._core.frames import Frame
from ._core.tokens import TokenBook
from ._events import Emitter, Handler, Left, Messages, Unhandled, ask, logger
from ._http import Http
from ._reports import Reports, ReportStorage
from ._tokens import GetToken, Tokens
from ._transport import Link, SseLink, WebSocketLink
from .errors import NoroshiError
from .inbox import Inbox, Unread
from .models import Acknowledge, Counts, Denied, ItemsChange, Message, Recovered, State, TransportName
from .preferences import Preferences
from .types import Me

_CLOSE_TIMEOUT_S = 5
# U5: how long variants count without another request.
_VARIANTS_MS = 60_000

Remove = Callable[[], None]
"""Removes a handler."""


class Variant(TypedDict):
    """The device's variant of an experiment."""

    variant: str
    data: Any


class Topic:
    """A subscription for as long as the client is connected. `async for` gives its messages."""

    def __init__(self, name: str, emitter: Emitter, leave: Callable[[], None]) -> None:
        self.name = name
        self._emitter = emitter
        self._leave = leave

    def messages(self) -> Messages:
        """The messages of the topic; see `Messages`."""
        return Messages(self._emitter)

    def __aiter__(self) -> AsyncIterator[Message]:
        return aiter(self.messages())

    @overload
    def on(self, event: Literal["message"], handler: Callable[[Message], object]) -> Remove: ...
    @overload
    def on(self, event: Literal["recovered"], handler: Callable[[Recovered], object]) -> Remove: ...
    @overload
    def on(self, event: Literal["denied"], handler: Callable[[Denied], object]) -> Remove: ...
    def on(self, event: str, handler: Handler) -> Remove:
        """Adds a handler, a function or a coroutine function; returns a function that removes it."""
        return self._emitter.add(event, handler)

    def unsubscribe(self) -> None:
        self._leave()


class Noroshi:
    """A device of Noroshi.

    Use it as an asynchronous context manager, which connects and closes, in one event loop. `get_token` returns a token
    of the device, and may be a coroutine function; it is called for the first connection, before a token expires and
    after a rejection.

    - `app`: the name of the app, if its JWTs do not name it.
    - `acknowledge`: when a stored message is acknowledged. `handled`: after the handlers returned, or the coroutines
      that they returned have ended; a message without a handler is not acknowledged. `received`: at once. `manual`: by
      `ack`.
    - `ping_interval`: seconds of silence after which the client checks the connection; never more than the service's.
    - `transports`: in this order. The second one is for networks that block the first.
    - `storage`: keeps reports of opened messages until the service has them, such as `FileStorage`.
    - `ssl_context`: for `https:` addresses with certificates of your own authority.
    - `http_client`: replaces the client of requests and event streams. Its timeout has to be `None`.
    - `clock`: replaces time and random numbers, in tests.
    """

    inbox: Inbox
    """The notification centre of the user."""
    preferences: Preferences
    """The preferences of this device."""
    user_preferences: Preferences
    """The preferences of the device's user."""

    def __init__(
        self,
        url: str,
        get_token: GetToken,
        *,
        app: str | None = None,
        acknowledge: Acknowledge = "handled",
        ping_interval: float = 60,
        transports: tuple[TransportName, ...] = ("websocket", "sse"),
        storage: ReportStorage | None = None,
        ssl_context: ssl.SSLContext | None = None,
        http_client: httpx.AsyncClient | None = None,
        clock: Clock | None = None,
    ) -> None:
        base = httpx.URL(url)
        if base.scheme not in ("http", "https") or not base.host:
            raise ValueError(f"url has to begin with http:// or https://, not {url!r}")
        if not 1 <= len(transports) <= 2 or not set(transports) <= {"websocket", "sse"}:
            raise ValueError("transports are websocket, sse, or both")
        self._clock: Clock = clock or SystemClock()
        self._emitter = Emitter()
        self._topics: dict[str, tuple[Topic, Emitter]] = {}
        self._book = TokenBook()
        self._tokens = Tokens(get_token, self._book, self._clock)
        self._ssl = ssl_context
        self._http = Http(str(base).rstrip("/"), app, self._tokens, self._clock, http_client, ssl_context)
        self._core = Connection(
            self._book,
            self._clock.random,
            transports=transports,
            acknowledge=acknowledge,
            ping_interval_ms=round(ping_interval * 1_000),
        )
        self._opened = self._reports("/v1/me/opened", "ids", 1_000, 1_000, storage)
        self._exposures = self._reports("/v1/me/exposures", "experiments", 100, 100)
        self._stream_acks = self._reports("/v1/me/inbox/ack", "ids", 1_000, 10_000)
        self._stream_presence = self._reports("/v1/me/presence", "state", 1, 1, is_state=True)
        self._link: Link | None = None
        self._timer: Timer | None = None
        self._is_running = False
        self._tasks: set[asyncio.Task[Any]] = set()
        # What handlers of the delivered message wait for.
        self._delivery: tuple[asyncio.Task[None], Sequence[asyncio.Future[Any]]] | None = None
        self._links: set[asyncio.Task[None]] = set()
        # Of `unread`, which the application does not wait for.
        self._refreshing: set[asyncio.Task[None]] = set()
        self._exposed: set[tuple[str | None, ...]] = set()
        self._me: Me | None = None
        # When the service was asked for it, and with which token.
        self._asked_at = 0
        self._asked_with: str | None = None
        self._etag: str | None = None
        self._changed: asyncio.Event = asyncio.Event()
        self._unread = Unread(lambda counts: self._emitter.emit("unread", counts))
        self.inbox = Inbox(self._http, self._unread)
        self.preferences = Preferences(self._http, "/v1/me/preferences")
        self.user_preferences = Preferences(self._http, "/v1/me/user/preferences")

    # The connection.

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._core.state

    def connect(self) -> None:
        """Connects in the background, and stays connected until `close`."""
        asyncio.get_running_loop()
        for reports in self._outboxes:
            reports.open()
        for emitter in self._emitters:
            emitter.closed = None
        self._core.connect(self._clock.now())
        self._run()

    async def connected(self) -> None:
        """Waits until the client is connected. Raises `NoroshiError` if it is closed instead."""
        while self.state.state != "connected":
            if self.state.state == "closed":
                raise NoroshiError(self.state.reason or "closed", f"the client is closed: {self.state.reason}")
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """Sends pending acknowledgements and reports, and ends the connection. Waits at most five seconds."""
        if self._delivery is not None and all(one.done() for one in self._delivery[1]):
            # The application has finished with the message: its acknowledgement is due.
            await asyncio.wait([self._delivery[0]])
        self._core.close(self._clock.now())
        self._run()
        for reports in self._outboxes:
            reports.close()
        attempt = self._core.attempt
        sending = [reports.task for reports in self._outboxes if reports.task is not None]
        if pending := [*self._links, *sending]:
            await asyncio.wait(pending, timeout=_CLOSE_TIMEOUT_S)
        if attempt != self._core.attempt or self.state.state not in ("idle", "closed"):
            return  # The application connected again meanwhile.
        self._tokens.cancel()
        for task in (*self._links, *sending):
            task.cancel()
        await self._http.aclose()

    async def __aenter__(self) -> Noroshi:
        self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Events.

    @overload
    def on(self, event: Literal["message"], handler: Callable[[Message], object]) -> Remove: ...
    @overload
    def on(self, event: Literal["state"], handler: Callable[[State], object]) -> Remove: ...
    @overload
    def on(self, event: Literal["recovered"], handler: Callable[[Recovered], object]) -> Remove: ...
    @overload
    def on(self, event: Literal["denied"], handler: Callable[[Denied], object]) -> Remove: ...
    @overload
    def on(self, event: Literal["items"], handler: Callable[[ItemsChange], object]) -> Remove: ...
    @overload
    def on(self, event: Literal["unread"], handler: Callable[[Counts], object]) -> Remove: ...
    @overload
    def on(self, event: Literal["error"], handler: Callable[[NoroshiError], object]) -> Remove: ...
    def on(self, event: str, handler: Handler) -> Remove:
        """Adds a handler, a function or a coroutine function; returns a function that removes it.

        Handlers of `message` decide about the acknowledgement: an exception leaves the message without one. Exceptions
        of other handlers are logged. Errors without a handler of `error` are logged too.
        """
        remove = self._emitter.add(event, handler)
        if event == "unread":
            self._refresh()
        return remove

    def messages(self) -> Messages:
        """All messages, also those of topics; see `Messages`."""
        return Messages(self._emitter)

    def ack(self, *ids: str) -> None:
        """Acknowledges messages (`acknowledge="manual"`)."""
        _check(*ids)
        self._core.ack(self._clock.now(), ids)
        self._run()

    # Topics.

    def topic(self, name: str, *, recover: bool | None = None) -> Topic:
        """Subscribes. The same name returns the same object until `unsubscribe`.

        With `recover` the service sends what was missed after a reconnection, and the event `recovered` follows.
        """
        _check(name)
        known = self._topics.get(name)
        if known is not None and recover is None:
            return known[0]
        if known is None:
            emitter = Emitter()
            emitter.closed = self._emitter.closed
            known = self._topics[name] = Topic(name, emitter, lambda: self._leave(name, emitter)), emitter
        self._core.subscribe(self._clock.now(), name, recover=bool(recover))
        self._run()
        return known[0]

    def _leave(self, name: str, emitter: Emitter) -> None:
        known = self._topics.get(name)
        if known is None or known[1] is not emitter:
            return
        del self._topics[name]
        emitter.close(None)
        self._core.unsubscribe(self._clock.now(), name)
        self._run()

    def _emitter_of(self, topic: str | None) -> Emitter:
        known = None if topic is None else self._topics.get(topic)
        return Emitter() if known is None else known[1]

    # What the device reports about itself.

    @property
    def presence(self) -> Literal["auto", "active", "idle"]:
        """`auto` follows `app_changed`."""
        return self._core.presence

    @presence.setter
    def presence(self, presence: Literal["auto", "active", "idle"]) -> None:
        self._core.set_presence(self._clock.now(), presence)
        self._run()

    def app_changed(self, *, hidden: bool | None = None, online: bool = False) -> None:
        """The app moved to the background (`hidden=True`) or returned, or the network returned (`online=True`)."""
        self._core.app_changed(self._clock.now(), hidden=hidden, online=online)
        self._run()
        if online:
            for reports in self._outboxes:
                reports.wake()

    def opened(self, *ids: str) -> None:
        """Reports that the user opened messages. Waits for the network if there is none."""
        _check(*ids)
        self._opened.add(ids)

    async def me(self) -> Me:
        """The device's state. Unchanged answers cost no body."""
        headers = {} if self._etag is None else {"if-none-match": self._etag}
        asked_at = self._clock.now()
        response, token = await self._http.exchange("GET", "/v1/me", headers=headers)
        if response.status_code != 304 or self._me is None:
            self._me = cast("Me", self._http.parse(response))
            self._etag = response.headers.get("etag")
        self._asked_at = asked_at
        self._asked_with = token
        return self._me

    async def variant(self, experiment: str, *, expose: bool = True) -> Variant | None:
        """The device's variant of an experiment, or `None` if it does not participate. It is at most a minute old.

        With `expose` the client reports, once per variant and user, that the user has seen it.
        """
        me = self._fresh_me() or await self.me()
        if self._asked_with != self._book.current:
            me = await self.me()  # The token changed meanwhile.
        found = cast("dict[str, Variant]", me.get("experiments") or {}).get(experiment)
        if found is None:
            return None
        key = (me["device"], me.get("user"), experiment, found["variant"])  # U4
        if expose and key not in self._exposed:
            self._exposed.add(key)
            self._exposures.add([experiment])
        return {"variant": found["variant"], "data": found.get("data")}

    def _fresh_me(self) -> Me | None:
        """U5: the experiment may have ended since, and another token may be that of another user."""
        is_fresh = self._clock.now() - self._asked_at < _VARIANTS_MS and self._asked_with == self._book.current
        return self._me if is_fresh else None

    # The driver of the core.

    @property
    def _outboxes(self) -> tuple[Reports, ...]:
        return self._opened, self._exposures, self._stream_acks, self._stream_presence

    def _reports(
        self,
        path: str,
        field: str,
        batch: int,
        limit: int,
        storage: ReportStorage | None = None,
        *,
        is_state: bool = False,
    ) -> Reports:
        return Reports(
            self._http,
            self._clock,
            self._failed,
            path=path,
            field=field,
            batch=batch,
            limit=limit,
            storage=storage,
            is_state=is_state,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _run(self) -> None:
        """Carries out the effects of the core, also those that handlers cause meanwhile."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._core.effects:
                self._carry_out(self._core.effects.popleft())
        finally:
            self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._core.deadline
        if deadline is not None:
            self._timer = self._clock.call_later(max(0, deadline - self._clock.now()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._core.tick(self._clock.now())
        self._run()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case NeedToken(attempt):
                if attempt != self._core.attempt:
                    return  # A handler of the state called `close`.
                if self._book.current is not None:
                    self._core.token(self._clock.now(), attempt, self._book.current)
                else:
                    self._spawn(self._get_token(attempt))
            case RenewToken(attempt, current):
                self._spawn(self._renew_token(attempt, current))
            case Open():
                self._open(effect)
            case Send(frame):
                if self._link is not None:
                    self._link.send(frame)
            case Close():
                if self._link is not None:
                    self._link.close()
                    self._link = None
                    self._stream_presence.clear()  # P2: the next connection begins as active.
            case FlushSoon(attempt):
                asyncio.get_running_loop().call_soon(self._flush, attempt)
            case Deliver(message):
                self._deliver(message)
            case Report(event):
                self._report(event)

    def _flush(self, attempt: int) -> None:
        self._core.flush(self._clock.now(), attempt)
        self._run()

    async def _get_token(self, attempt: int) -> None:
        try:
            token = await self._tokens.take()
        except NoroshiError as error:
            self._core.no_token(self._clock.now(), attempt, error)
        else:
            self._core.token(self._clock.now(), attempt, token)
        self._run()

    async def _renew_token(self, attempt: int, current: bool) -> None:
        try:
            token = await (self._tokens.take() if current else self._tokens.renew())
        except NoroshiError as error:
            self._core.not_renewed(self._clock.now(), attempt, error)
        else:
            self._core.renewed(self._clock.now(), attempt, token)
        self._run()

    def _open(self, effect: Open) -> None:
        listener = _Listener(self._core, self._clock, effect.attempt, self._run)
        if effect.transport == "websocket":
            address = "ws" + str(self._http.address("/v1/connect")).removeprefix("http")
            self._link = WebSocketLink(address, listener, self._clock, self._ssl)
        else:
            url = self._http.address("/v1/events", {"topics": ",".join(effect.topics)})
            self._link = SseLink(
                self._http.client, url, effect.token, effect.last_id, listener, self._clock, self._send_by_request
            )
        self._links.add(self._link.task)
        self._link.task.add_done_callback(self._links.discard)

    def _send_by_request(self, frame: Frame) -> None:
        """X7"""
        if frame["t"] == "ack":
            self._stream_acks.add(frame["ids"])
        elif frame["t"] == "presence":
            self._stream_presence.add([frame["state"]])

    async def _attempt(self, work: Awaitable[object]) -> None:
        try:
            await work
        except NoroshiError as error:
            self._failed(error)

    def _deliver(self, message: Message) -> None:
        handlers = [*self._emitter_of(message.topic).handlers("message"), *self._emitter.handlers("message")]
        errors, waiting, handled = ask(handlers, message)
        if waiting:
            futures = [asyncio.ensure_future(one) for one in waiting]
            self._delivery = self._spawn(self._wait(futures, errors, handled)), futures
        else:
            self._settle(errors, handled)

    async def _wait(self, futures: Sequence[asyncio.Future[Any]], errors: list[BaseException], handled: int) -> None:
        results = await asyncio.gather(*futures, return_exceptions=True)
        self._delivery = None
        failed = [one for one in results if isinstance(one, BaseException)]
        errors += [one for one in failed if not isinstance(one, Left | Unhandled)]
        # The caller of a loop knows its error.
        is_left = any(isinstance(one, Left) for one in failed)
        self._settle(errors, 0 if is_left else handled + len(results) - len(failed))
        self._run()

    def _settle(self, errors: list[BaseException], handled: int) -> None:
        if errors:
            error = NoroshiError("listener_failed", f"a handler failed: {errors[0]!r}")
            error.__cause__ = errors[0]
            self._failed(error)
        self._core.settle(self._clock.now(), handled=handled > 0 and not errors)

    def _report(self, event: State | Recovered | Denied | ItemsChange | NoroshiError) -> None:
        match event:
            case State():
                self._changed.set()
                if event.state == "connected":
                    for reports in self._outboxes:
                        reports.wake()
                    self._refresh()
                self._emitter.emit("state", event)
                if event.state == "closed":
                    for refreshing in self._refreshing:
                        refreshing.cancel()
                    self._end_loops(event.reason)
            case Recovered():
                self._emitter_of(event.topic).emit("recovered", event)
                self._emitter.emit("recovered", event)
            case Denied():
                emitter = self._emitter_of(event.topic)
                self._topics.pop(event.topic, None)
                emitter.emit("denied", event)
                emitter.close(NoroshiError(event.code, event.reason, topic=event.topic, reason=event.reason))
                self._emitter.emit("denied", event)
            case ItemsChange():
                self._unread.update(event.counts)
                self._emitter.emit("items", event)
            case NoroshiError():
                self._failed(event)

    @property
    def _emitters(self) -> tuple[Emitter, ...]:
        return self._emitter, *(emitter for _, emitter in self._topics.values())

    def _end_loops(self, reason: str | None) -> None:
        for emitter in self._emitters:
            is_wanted = reason in ("closed", "signed_out")  # A8
            error = None if is_wanted else NoroshiError(reason or "closed", f"the client is closed: {reason}")
            emitter.close(error)

    def _failed(self, error: NoroshiError) -> None:
        if self._emitter.has("error"):
            self._emitter.emit("error", error)
        else:
            logger.warning("%s: %s", error.code, error, exc_info=error.__cause__)

    def _refresh(self) -> None:
        """U1: reports may have been lost meanwhile."""
        if self.state.state == "connected" and self._emitter.has("unread"):
            task = self._spawn(self._attempt(self.inbox.refresh()))
            self._refreshing.add(task)
            task.add_done_callback(self._refreshing.discard)


def _check(*texts: str) -> None:
    """Raises `UnicodeEncodeError`, a `ValueError`, for half of a surrogate pair: no frame can contain it."""
    for text in texts:
        text.encode()


class _Listener:
    """Events of one connection, for the core."""

    def __init__(self, core: Connection, clock: Clock, attempt: int, run: Callable[[], None]) -> None:
        self._core = core
        self._clock = clock
        self._attempt = attempt
        self._run = run

    def opened(self) -> None:
        self._core.opened(self._clock.now(), self._attempt)
        self._run()

    def heard(self) -> None:
        self._core.heard(self._clock.now(), self._attempt)
        self._run()

    def frame(self, data: str | bytes) -> None:
        self._core.frame(self._clock.now(), self._attempt, data)
        self._run()

    def ended(self, end: End) -> None:
        self._core.ended(self._clock.now(), self._attempt, end)
        self._run()
