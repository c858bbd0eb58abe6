"""The client for programs without asyncio. It runs the asynchronous client in a thread of its own.

```python
from noroshi_client.blocking import Noroshi

with Noroshi(url, get_token) as noroshi:
    for message in noroshi.messages():
        print(message.data)
```

`get_token` and handlers run in that thread: they may not call methods of the client that wait, and the connection waits
for them. A loop over `messages` runs in the thread that calls it.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable
from types import TracebackType
from typing import Any, Literal, TypeVar

from . import client
from ._events import Messages as AsyncMessages
from ._reports import ReportStorage
from ._tokens import GetToken
from .errors import NoroshiError
from .inbox import Inbox as AsyncInbox
from .inbox import ItemState
from .models import Acknowledge, Counts, Message, State, TransportName
from .types import Item, Items, ItemsChanged, Me, Preferences

T = TypeVar("T")


class _Thread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="noroshi", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a handler may not call a method that waits")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # KeyboardInterrupt
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Also in a handler."""
        if threading.current_thread() is self._thread:
            return function()

        async def work() -> T:
            return function()

        return self.wait(work())

    def stop(self) -> None:
        async def cancel() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._loop.shutdown_asyncgens()

        self.wait(cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Messages:
    """Messages, one after the other; see `noroshi_client.Messages`. `with` replaces `async with`."""

    def __init__(self, thread: _Thread, messages: AsyncMessages) -> None:
        self._thread = thread
        self._messages = messages

    def __iter__(self) -> Generator[Message, None, None]:
        iterator = self._thread.call(self._messages.__aiter__)

        async def step() -> Message | None:
            return await anext(iterator, None)

        try:
            while (message := self._thread.wait(step())) is not None:
                yield message
        finally:
            self._thread.wait(iterator.aclose())

    def __enter__(self) -> Messages:
        self._thread.wait(self._messages.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.wait(self._messages.__aexit__(kind, error, trace))


class Topic:
    """A subscription for as long as the client is connected."""

    def __init__(self, thread: _Thread, topic: client.Topic) -> None:
        self._thread = thread
        self._topic = topic
        self.name = topic.name

    def messages(self) -> Messages:
        return Messages(self._thread, self._thread.call(self._topic.messages))

    def unsubscribe(self) -> None:
        self._thread.call(self._topic.unsubscribe)


class Inbox:
    """The notification centre of the user; see `noroshi_AsyncInbox`."""

    def __init__(self, thread: _Thread, inbox: AsyncInbox) -> None:
        self._thread = thread
        self._inbox = inbox

    @property
    def counts(self) -> Counts | None:
        return self._inbox.counts

    def refresh(self) -> Counts:
        return self._thread.wait(self._inbox.refresh())

    def list(
        self,
        *,
        state: ItemState | None = None,
        category: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Items:
        return self._thread.wait(self._inbox.list(state=state, category=category, limit=limit, after=after))

    def items(
        self, *, state: ItemState | None = None, category: str | None = None, limit: int | None = None
    ) -> Generator[Item, None, None]:
        after: str | None = None
        while True:
            page = self.list(state=state, category=category, limit=limit, after=after)
            yield from page["items"]
            after = page["next"]
            if not after:
                return

    def mark_read(
        self, ids: str | Iterable[str] = (), *, up_to: str | None = None, category: str | None = None
    ) -> ItemsChanged:
        return self._thread.wait(self._inbox.mark_read(ids, up_to=up_to, category=category))

    def mark_unread(
        self, ids: str | Iterable[str] = (), *, up_to: str | None = None, category: str | None = None
    ) -> ItemsChanged:
        return self._thread.wait(self._inbox.mark_unread(ids, up_to=up_to, category=category))

    def archive(
        self, ids: str | Iterable[str] = (), *, up_to: str | None = None, category: str | None = None
    ) -> ItemsChanged:
        return self._thread.wait(self._inbox.archive(ids, up_to=up_to, category=category))

    def unarchive(
        self, ids: str | Iterable[str] = (), *, up_to: str | None = None, category: str | None = None
    ) -> ItemsChanged:
        return self._thread.wait(self._inbox.unarchive(ids, up_to=up_to, category=category))


class Noroshi:
    """A device of Noroshi, without asyncio. The arguments are those of `noroshi_client.Noroshi`.

    Use it as a context manager. After `close` it cannot connect again.
    """

    inbox: Inbox

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
    ) -> None:
        self._client = client.Noroshi(
            url,
            get_token,
            app=app,
            acknowledge=acknowledge,
            ping_interval=ping_interval,
            transports=transports,
            storage=storage,
            ssl_context=ssl_context,
        )
        self._thread = _Thread()
        self._is_closed = False
        self.inbox = Inbox(self._thread, self._client.inbox)

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._client.state

    def connect(self) -> None:
        """Connects in the background, and stays connected until `close`."""
        if self._is_closed:
            raise NoroshiError("closed", "the client is closed")
        self._thread.call(self._client.connect)

    def connected(self) -> None:
        """Waits until the client is connected. Raises `NoroshiError` if it is closed instead."""
        self._thread.wait(self._client.connected())

    def close(self) -> None:
        """Sends pending acknowledgements and reports, and ends the connection."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thread.wait(self._client.close())
        self._thread.stop()

    def __enter__(self) -> Noroshi:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def on(
        self,
        event: Literal["message", "state", "recovered", "denied", "items", "unread", "error"],
        handler: Callable[[Any], object],
    ) -> client.Remove:
        """Adds a handler, which runs in the client's thread; returns a function that removes it."""
        add: Callable[[str, Callable[[Any], object]], client.Remove] = self._client.on  # type: ignore[assignment]
        remove = self._thread.call(lambda: add(event, handler))
        return lambda: self._thread.call(remove)

    def messages(self) -> Messages:
        """All messages, also those of topics."""
        return Messages(self._thread, self._thread.call(self._client.messages))

    def topic(self, name: str, *, recover: bool | None = None) -> Topic:
        """Subscribes; see `noroshi_client.Noroshi.topic`."""
        return Topic(self._thread, self._thread.call(lambda: self._client.topic(name, recover=recover)))

    def ack(self, *ids: str) -> None:
        """Acknowledges messages (`acknowledge="manual"`)."""
        self._thread.call(lambda: self._client.ack(*ids))

    def opened(self, *ids: str) -> None:
        """Reports that the user opened messages. Waits for the network if there is none."""
        self._thread.call(lambda: self._client.opened(*ids))

    def app_changed(self, *, hidden: bool | None = None, online: bool = False) -> None:
        """The app moved to the background or returned, or the network returned."""
        self._thread.call(lambda: self._client.app_changed(hidden=hidden, online=online))

    @property
    def presence(self) -> Literal["auto", "active", "idle"]:
        return self._client.presence

    @presence.setter
    def presence(self, presence: Literal["auto", "active", "idle"]) -> None:
        def change() -> None:
            self._client.presence = presence

        self._thread.call(change)

    def me(self) -> Me:
        """The device's state."""
        return self._thread.wait(self._client.me())

    def variant(self, experiment: str, *, expose: bool = True) -> client.Variant | None:
        """The device's variant of an experiment."""
        return self._thread.wait(self._client.variant(experiment, expose=expose))

    def get_preferences(self) -> Preferences:
        return self._thread.wait(self._client.preferences.get())

    def set_preferences(self, preferences: Preferences) -> Preferences:
        """Replaces them; returns them as stored."""
        return self._thread.wait(self._client.preferences.set(preferences))
