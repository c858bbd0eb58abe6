"""The client with asyncio. `scripts/generate.py` derives the synchronous one from this module."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, cast

import httpx

from . import types
from ._calls import (
    ANSWER_BYTES_MAX,
    PROBLEM_BYTES_MAX,
    Attempts,
    Call,
    Chunk,
    Chunks,
    LineResult,
    Lines,
    Page,
    Query,
    Retry,
    base_url,
    batch_call,
    common_headers,
    decode,
    new_key,
    page_of,
    path,
    problem_of,
)
from ._io import async_each, async_pause
from .errors import BatchError, DeadlineError, InvalidAnswerError, NetworkError, NoroshiError, NotFoundError

T = TypeVar("T")
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class AsyncSender:
    """Sends requests, and repeats them."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        headers: dict[str, str],
        retry: Retry,
        traceparent: Callable[[], str | None] | None,
    ) -> None:
        self.http = http
        self.url = url
        self._headers = headers
        self.retry = retry
        self._traceparent = traceparent

    def with_retry(self, retry: Retry) -> AsyncSender:
        return AsyncSender(self.http, self.url, self._headers, retry, self._traceparent)

    def trace(self, traceparent: str | None) -> str | None:
        return self._traceparent() if traceparent is None and self._traceparent is not None else traceparent

    async def json(self, request: Call[T]) -> T:
        """The JSON of the answer, if its status is 200 to 299."""
        return cast("T", decode(await self._body(request, Attempts(request, self.retry, time.monotonic()))))

    async def send(self, request: Call[Any]) -> None:
        """Only sends it."""
        attempts = Attempts(request, self.retry, time.monotonic())
        try:
            await self._body(request, attempts)
        except NotFoundError:
            if not attempts.may_have_deleted:
                raise

    async def _body(self, request: Call[Any], attempts: Attempts) -> bytes:
        while True:
            try:
                body = b""
                async with aclosing(self._attempt(request, attempts)) as parts:
                    async for data in parts:
                        body += data
                        if len(body) > ANSWER_BYTES_MAX:
                            raise InvalidAnswerError("the answer is too large")
                return body
            except _RepeatError as repeat:
                await async_pause(repeat.wait)

    async def batch(
        self,
        to: str,
        lines: AsyncIterable[Any] | Iterable[Any],
        chunks: Chunks,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> AsyncIterator[LineResult[Any]]:
        async for line in async_each(lines):
            chunk = chunks.add(line)
            if chunk is not None:
                async for result in self._chunk(to, chunk, idempotency_key, traceparent):
                    yield result
        chunk = chunks.rest()
        if chunk is not None:
            async for result in self._chunk(to, chunk, idempotency_key, traceparent):
                yield result

    async def _chunk(
        self, to: str, chunk: Chunk, idempotency_key: str | None, traceparent: str | None
    ) -> AsyncIterator[LineResult[Any]]:
        request = batch_call(to, chunk, idempotency_key, traceparent)
        index = chunk.first
        try:
            async with aclosing(self._lines(request, chunk)) as results:
                async for result in results:
                    index = result.index + 1
                    yield result
        except NoroshiError as error:
            raise BatchError(index, idempotency_key, error) from error

    async def _lines(self, request: Call[Any], chunk: Chunk) -> AsyncGenerator[LineResult[Any], None]:
        """The results of the lines of a batch, as they arrive."""
        attempts = Attempts(request, self.retry, time.monotonic())
        lines = Lines(chunk)
        while True:
            lines.restart()
            try:
                async with aclosing(self._attempt(request, attempts)) as parts:
                    async for data in parts:
                        for result in lines.feed(data):
                            yield result
                for result in lines.end():
                    yield result
                return
            except _RepeatError as repeat:
                wait = repeat.wait
            except NetworkError as error:
                wait = attempts.broke(error, was_sent=True, now=time.monotonic(), random=random.random())
            await async_pause(wait)

    async def _attempt(self, request: Call[Any], attempts: Attempts) -> AsyncGenerator[bytes, None]:
        """One attempt: the parts of its body. Raises `_RepeatError` if another one may follow."""
        seconds = attempts.begin(time.monotonic())
        headers = {**self._headers, **request.headers}
        sending = self.http.stream(
            request.method, self.url + request.path, content=request.body, headers=headers, timeout=seconds
        )
        try:
            async with sending as response:
                if response.is_success:
                    async for data in response.aiter_bytes():
                        attempts.check(time.monotonic())
                        yield data
                    return
                body = b""
                async for data in response.aiter_bytes():
                    attempts.check(time.monotonic())
                    body += data
                    if len(body) > PROBLEM_BYTES_MAX:
                        break
                problem = problem_of(response.status_code, response.headers, body, time.time())
        except httpx.TimeoutException as error:
            cause: NetworkError = DeadlineError(f"{request.method} {request.path}: no answer after {seconds:.1f} s")
            cause.__cause__ = error
            was_sent = not isinstance(error, _UNSENT)
        except httpx.TransportError as error:
            cause = NetworkError(f"{request.method} {request.path}: {error or type(error).__name__}")
            cause.__cause__ = error
            was_sent = not isinstance(error, _UNSENT)
        except DeadlineError as error:
            cause = error
            was_sent = True
        else:
            raise _RepeatError(attempts.answered(problem, time.monotonic(), random.random()))
        raise _RepeatError(attempts.broke(cause, was_sent=was_sent, now=time.monotonic(), random=random.random()))


class _RepeatError(Exception):
    def __init__(self, wait: float) -> None:
        super().__init__(wait)
        self.wait = wait


class AsyncPager(Generic[T]):
    """A list: `async for` reads its entries, page by page."""

    def __init__(self, sender: AsyncSender, to: str, name: str, query: Query) -> None:
        self._sender = sender
        self._to = to
        self._name = name
        self._query = query

    async def page(self, after: str | None = None) -> Page[T]:
        """One page. `after` is `next` of the page before."""
        query = self._query if after is None else {**self._query, "after": after}
        request: Call[Any] = Call("GET", self._to, query=query)
        return page_of(await self._sender.json(request), self._name)

    async def pages(self) -> AsyncIterator[Page[T]]:
        """All pages."""
        after: str | None = None
        while True:
            page = await self.page(after)
            yield page
            after = page.next
            if after is None:
                return

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for entry in page.entries:
                yield entry


class AsyncResource:
    """A part of the API."""

    def __init__(self, sender: AsyncSender) -> None:
        self._sender = sender


class AsyncNotifications(AsyncResource):
    """Notifications that were published."""

    def list(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        target: Literal["users", "devices", "topic", "condition", "everyone", "campaign"] | None = None,
        user: str | None = None,
        device: str | None = None,
        topic: str | None = None,
        campaign: str | None = None,
        category: str | None = None,
        urgency: Literal["very-low", "low", "normal", "high"] | None = None,
        limit: int | None = None,
    ) -> AsyncPager[types.ListedNotification]:
        """The notifications of the app, newest first. `limit` is the size of a page."""
        query: Query = {
            "since": since,
            "until": until,
            "target": target,
            "user": user,
            "device": device,
            "topic": topic,
            "campaign": campaign,
            "category": category,
            "urgency": urgency,
            "limit": limit,
        }
        return AsyncPager(self._sender, path("notifications"), "notifications", query)

    async def get(self, id: str) -> types.NotificationState:
        """State and counts of a notification."""
        return await self._sender.json(Call("GET", path("notifications/{}", id)))

    async def cancel(self, id: str) -> types.Cancelled:
        """Cancels copies that were not delivered yet."""
        return await self._sender.json(Call("DELETE", path("notifications/{}", id)))

    async def trace(self, id: str, device: str) -> types.Trace:
        """Why a device received a notification, or did not."""
        return await self._sender.json(Call("GET", path("notifications/{}/devices/{}", id, device)))


class AsyncTopics(AsyncResource):
    """Topics and their retained messages."""

    def list(self, *, limit: int | None = None) -> AsyncPager[types.Topic]:
        return AsyncPager(self._sender, path("topics"), "topics", {"limit": limit})

    async def get(self, topic: str) -> types.Topic:
        """Subscribers and position of a topic."""
        return await self._sender.json(Call("GET", path("topics/{}", topic)))

    async def retained(self, topic: str) -> types.Message:
        """The retained message."""
        return await self._sender.json(Call("GET", path("topics/{}/retained", topic)))

    async def delete_retained(self, topic: str) -> None:
        await self._sender.send(Call("DELETE", path("topics/{}/retained", topic)))


class AsyncDevices(AsyncResource):
    """Devices: installed apps. Most calls need the scope `devices`."""

    async def register(self, device: types.DeviceRegistration) -> types.Registered:
        """Registers a device, or updates it. The answer has its token.

        Name the device in `device`: without a name a repetition would register another one, so the client repeats the
        request only if the service has certainly not processed it.
        """
        return await self._sender.json(
            Call("POST", path("devices"), device, is_repeatable=device.get("device") is not None)
        )

    def register_batch(
        self,
        devices: AsyncIterable[types.DeviceRegistration] | Iterable[types.DeviceRegistration],
        *,
        lines_per_request: int = 1_000,
    ) -> AsyncIterator[LineResult[types.DeviceLineDevice]]:
        """Registers any number of devices: a result for each, in order. Takes devices as it sends them."""
        return self._sender.batch(path("devices/batch"), devices, Chunks(lines_per_request, "device"))

    def list(
        self,
        *,
        user: str | None = None,
        platform: types.Platform | None = None,
        token: Literal["none", "any", "usable", "suspended"] | None = None,
        service: str | None = None,
        kind: str | None = None,
        seen: Literal["never"] | None = None,
        seen_after: str | None = None,
        seen_before: str | None = None,
        limit: int | None = None,
    ) -> AsyncPager[types.Device]:
        query: Query = {
            "user": user,
            "platform": platform,
            "token": token,
            "service": service,
            "kind": kind,
            "seen": seen,
            "seen_after": seen_after,
            "seen_before": seen_before,
            "limit": limit,
        }
        return AsyncPager(self._sender, path("devices"), "devices", query)

    async def get(self, device: str) -> types.Device:
        return await self._sender.json(Call("GET", path("devices/{}", device)))

    async def delete(self, device: str) -> None:
        """Deletes the device and revokes its tokens and JWTs."""
        await self._sender.send(Call("DELETE", path("devices/{}", device)))

    async def revoke(self, device: str) -> types.Revoked:
        """Revokes the device's tokens and JWTs, and ends its connection."""
        return await self._sender.json(Call("POST", path("devices/{}/revoke", device)))

    async def push_tokens(self, device: str) -> types.DevicePushTokens:
        return await self._sender.json(Call("GET", path("devices/{}/push-tokens", device)))

    async def set_push_token(
        self, device: str, kind: str, token: types.NewPushToken, *, name: str | None = None
    ) -> None:
        """Sets the push token of a kind, such as `alert`, and optionally of a name."""
        await self._sender.send(Call("PUT", _push_token(device, kind, name), token))

    async def remove_push_token(self, device: str, kind: str, *, name: str | None = None) -> None:
        await self._sender.send(Call("DELETE", _push_token(device, kind, name)))

    async def preferences(self, device: str) -> types.Preferences:
        return await self._sender.json(Call("GET", path("devices/{}/preferences", device)))

    async def set_preferences(self, device: str, preferences: types.Preferences) -> types.Preferences:
        """Replaces them."""
        return await self._sender.json(Call("PUT", path("devices/{}/preferences", device), preferences))

    async def clear_preferences(self, device: str) -> None:
        await self._sender.send(Call("DELETE", path("devices/{}/preferences", device)))

    async def endpoints(self, device: str) -> types.Endpoints:
        """The Web Push endpoints of a device."""
        return await self._sender.json(Call("GET", path("devices/{}/endpoints", device)))

    async def delete_endpoint(self, device: str, id: str) -> None:
        await self._sender.send(Call("DELETE", path("devices/{}/endpoints/{}", device, id)))

    async def topic_permission(
        self, device: str, topic: str, *, action: Literal["subscribe", "publish"] | None = None
    ) -> types.TopicPermission:
        """Whether a device may use a topic, and why."""
        to = path("devices/{}/topics/{}/permission", device, topic)
        return await self._sender.json(Call("GET", to, query={"action": action}))


def _push_token(device: str, kind: str, name: str | None) -> str:
    if name is None:
        return path("devices/{}/push-tokens/{}", device, kind)
    return path("devices/{}/push-tokens/{}/{}", device, kind, name)


class AsyncUsers(AsyncResource):
    """Users, their items and their preferences."""

    async def revoke(self, user: str) -> types.UserRevoked:
        """Revokes the user's JWTs and the tokens of the user's devices, and ends their connections."""
        return await self._sender.json(Call("POST", path("users/{}/revoke", user)))

    def items(
        self,
        user: str,
        *,
        state: Literal["unread", "read", "archived", "all"] | None = None,
        category: str | None = None,
        limit: int | None = None,
    ) -> AsyncPager[types.Item]:
        """Items of the user's notification centre, newest first."""
        query: Query = {"state": state, "category": category, "limit": limit}
        return AsyncPager(self._sender, path("users/{}/items", user), "items", query)

    async def delete_items(self, user: str) -> types.ItemsDeleted:
        """Deletes all items of the user."""
        return await self._sender.json(Call("DELETE", path("users/{}/items", user)))

    async def item_counts(self, user: str) -> types.ItemCounts:
        """Unread items, in all and by category."""
        return await self._sender.json(Call("GET", path("users/{}/items/counts", user)))

    async def preferences(self, user: str) -> types.Preferences:
        return await self._sender.json(Call("GET", path("users/{}/preferences", user)))

    async def set_preferences(self, user: str, preferences: types.Preferences) -> types.Preferences:
        """Replaces them."""
        return await self._sender.json(Call("PUT", path("users/{}/preferences", user), preferences))

    async def clear_preferences(self, user: str) -> None:
        await self._sender.send(Call("DELETE", path("users/{}/preferences", user)))


class AsyncCampaigns(AsyncResource):
    """Campaigns: one message to many devices, at a time and a rate."""

    async def create(
        self,
        campaign: types.NewCampaign,
        *,
        draft: bool | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> types.Campaign:
        """Creates a campaign.

        It starts at once or at `start_at`, unless `start` is `False` or its audience is uploaded. With `draft` the
        service keeps it although parts are missing or invalid, which `problems` of the answer names.
        """
        return await self._sender.json(
            Call(
                "POST",
                path("campaigns"),
                campaign,
                query={"draft": draft},
                idempotency_key=idempotency_key or new_key(),
                traceparent=self._sender.trace(traceparent),
            )
        )

    async def count(self, campaign: types.NewCampaign) -> types.CampaignCount:
        """Only counts the audience."""
        return await self._sender.json(Call("POST", path("campaigns"), campaign, query={"dry_run": True}))

    def list(
        self,
        *,
        state: str | None = None,
        name: str | None = None,
        created_by: str | None = None,
        created_since: str | None = None,
        created_until: str | None = None,
        start_since: str | None = None,
        start_until: str | None = None,
        limit: int | None = None,
    ) -> AsyncPager[types.Campaign]:
        """`state` is one state, or several with commas between them."""
        query: Query = {
            "state": state,
            "name": name,
            "created_by": created_by,
            "created_since": created_since,
            "created_until": created_until,
            "start_since": start_since,
            "start_until": start_until,
            "limit": limit,
        }
        return AsyncPager(self._sender, path("campaigns"), "campaigns", query)

    async def get(self, id: str) -> types.Campaign:
        """A campaign and its progress."""
        return await self._sender.json(Call("GET", path("campaigns/{}", id)))

    async def change(self, id: str, change: types.CampaignChange) -> types.Campaign:
        """Changes a campaign that has not started."""
        # A repetition with a revision would find another one.
        is_repeatable = "revision" not in change
        return await self._sender.json(Call("PATCH", path("campaigns/{}", id), change, is_repeatable=is_repeatable))

    async def delete(self, id: str) -> None:
        """Deletes a campaign that has ended."""
        await self._sender.send(Call("DELETE", path("campaigns/{}", id)))

    async def estimate(self, id: str) -> types.CampaignEstimate:
        """Estimates the audience."""
        return await self._sender.json(Call("POST", path("campaigns/{}/estimate", id)))

    def upload_recipients(
        self,
        id: str,
        recipients: AsyncIterable[types.Recipient] | Iterable[types.Recipient],
        *,
        lines_per_request: int = 1_000,
    ) -> AsyncIterator[LineResult[types.Recipient]]:
        """Uploads any number of recipients: a result for each, in order. Repeating a line changes nothing."""
        return self._sender.batch(path("campaigns/{}/recipients", id), recipients, Chunks(lines_per_request, None))

    async def recipient(self, id: str, user: str) -> types.CampaignRecipient:
        """An uploaded recipient."""
        return await self._sender.json(Call("GET", path("campaigns/{}/recipients/{}", id, user)))

    async def start(self, id: str, *, revision: int | None = None) -> types.Campaign:
        """Starts a draft now or at its `start_at`; with `revision` only this revision."""
        to = path("campaigns/{}/start", id)
        return await self._sender.json(Call("POST", to, query={"revision": revision}, is_repeatable=False))

    async def pause(self, id: str) -> types.Campaign:
        return await self._sender.json(Call("POST", path("campaigns/{}/pause", id), is_repeatable=False))

    async def resume(self, id: str) -> types.Campaign:
        return await self._sender.json(Call("POST", path("campaigns/{}/resume", id), is_repeatable=False))

    async def abort(self, id: str) -> types.Campaign:
        return await self._sender.json(Call("POST", path("campaigns/{}/abort", id), is_repeatable=False))


class AsyncActivities(AsyncResource):
    """Live Activities."""

    async def start(self, activity: types.NewActivity, *, idempotency_key: str | None = None) -> types.Activity:
        return await self._sender.json(
            Call("POST", path("activities"), activity, idempotency_key=idempotency_key or new_key())
        )

    def list(self, *, limit: int | None = None) -> AsyncPager[types.Activity]:
        return AsyncPager(self._sender, path("activities"), "activities", {"limit": limit})

    async def get(self, id: str) -> types.Activity:
        """A Live Activity and its progress."""
        return await self._sender.json(Call("GET", path("activities/{}", id)))

    async def update(self, id: str, update: types.ActivityUpdate) -> types.Activity:
        return await self._sender.json(Call("PATCH", path("activities/{}", id), update))

    async def end(self, id: str, end: types.ActivityEnd | None = None) -> types.Activity:
        """Ends it on all devices, with its last state or that of `end`."""
        return await self._sender.json(Call("DELETE", path("activities/{}", id), end))

    async def device(self, id: str, device: str) -> types.ActivityDevice:
        """Why a device has the newest state, or not."""
        return await self._sender.json(Call("GET", path("activities/{}/devices/{}", id, device)))


class AsyncChannels(AsyncResource):
    """Broadcast channels of APNs."""

    def list(self, *, limit: int | None = None) -> AsyncPager[types.Channel]:
        return AsyncPager(self._sender, path("push/channels"), "channels", {"limit": limit})

    async def create(self, channel: types.NewChannel) -> types.Channel:
        return await self._sender.json(Call("POST", path("push/channels"), channel))

    async def get(self, name: str) -> types.Channel:
        return await self._sender.json(Call("GET", path("push/channels/{}", name)))

    async def change(self, name: str, change: types.ChannelChange) -> types.Channel:
        """Binds it to a topic."""
        return await self._sender.json(Call("PATCH", path("push/channels/{}", name), change))

    async def delete(self, name: str, *, forget: bool | None = None) -> None:
        """With `forget` it stays at Apple."""
        await self._sender.send(Call("DELETE", path("push/channels/{}", name), query={"forget": forget}))

    async def broadcast(
        self, name: str, broadcast: types.NewBroadcast, *, idempotency_key: str | None = None
    ) -> types.BroadcastState:
        """Sends to a channel."""
        to = path("push/channels/{}/broadcasts", name)
        return await self._sender.json(Call("POST", to, broadcast, idempotency_key=idempotency_key or new_key()))

    async def get_broadcast(self, id: str) -> types.BroadcastState:
        return await self._sender.json(Call("GET", path("push/broadcasts/{}", id)))

    async def apple_channels(
        self, *, environment: Literal["production", "sandbox"] | None = None
    ) -> types.AppleChannels:
        """The channels at Apple."""
        return await self._sender.json(Call("GET", path("push/apns-channels"), query={"environment": environment}))

    async def delete_apple_channel(
        self, id: str, *, environment: Literal["production", "sandbox"] | None = None
    ) -> None:
        to = path("push/apns-channels/{}", id)
        await self._sender.send(Call("DELETE", to, query={"environment": environment}))


class AsyncApp(AsyncResource):
    """Settings, keys, credentials and experiments of an app. Most calls need the scope `admin`."""

    def __init__(self, sender: AsyncSender, name: str) -> None:
        super().__init__(sender)
        self.name = name

    def _path(self, rest: str = "", *names: str) -> str:
        return path("apps/{}" + rest, self.name, *names)

    async def get(self) -> types.App:
        """The app's JWT settings."""
        return await self._sender.json(Call("GET", self._path()))

    async def change(self, change: types.AppChange) -> types.App:
        return await self._sender.json(Call("PATCH", self._path(), change))

    async def keys(self) -> types.Keys:
        return await self._sender.json(Call("GET", self._path("/keys")))

    async def create_key(self, key: types.NewKey) -> types.Key:
        """Creates an API key, which only this answer contains. Not repeated after a lost answer."""
        return await self._sender.json(Call("POST", self._path("/keys"), key, is_repeatable=False))

    async def revoke_key(self, id: str) -> None:
        await self._sender.send(Call("DELETE", self._path("/keys/{}", id)))

    async def quotas(self) -> types.Quotas:
        """Limits, usage and rejections."""
        return await self._sender.json(Call("GET", self._path("/quotas")))

    async def topic_rules(self) -> types.TopicRules:
        return await self._sender.json(Call("GET", self._path("/topic-rules")))

    async def set_topic_rules(self, rules: types.TopicRules) -> types.TopicRules:
        """Replaces them."""
        return await self._sender.json(Call("PUT", self._path("/topic-rules"), rules))

    async def delete_topic_rules(self) -> None:
        await self._sender.send(Call("DELETE", self._path("/topic-rules")))

    async def push_credentials(self) -> types.PushCredentials:
        return await self._sender.json(Call("GET", self._path("/push")))

    async def add_push_credential(
        self, credential: types.NewPushCredential, *, replace: bool | None = None
    ) -> types.PushCredential:
        """With `replace` it replaces the existing credential."""
        to = self._path("/push")
        return await self._sender.json(
            Call("POST", to, credential, query={"replace": replace}, is_repeatable=replace is True)
        )

    async def remove_push_credential(self, id: str) -> None:
        await self._sender.send(Call("DELETE", self._path("/push/{}", id)))

    async def test_push_credential(self, id: str, test: types.PushTest) -> types.PushTested:
        """Pushes to one device now."""
        return await self._sender.json(Call("POST", self._path("/push/{}/test", id), test, is_repeatable=False))

    async def rotate_push_credential(self, id: str, rotation: types.PushRotation) -> types.PushCredential:
        """Replaces the secret, if the push service accepts a push with it."""
        return await self._sender.json(Call("POST", self._path("/push/{}/rotate", id), rotation, is_repeatable=False))

    async def restore_push_tokens(self, id: str, restore: types.RestoreTokens) -> types.RestoredTokens:
        """Uses suspended tokens again."""
        return await self._sender.json(Call("POST", self._path("/push/{}/restore", id), restore))

    def experiments(self, *, archived: bool | None = None, limit: int | None = None) -> AsyncPager[types.Experiment]:
        query: Query = {"archived": archived, "limit": limit}
        return AsyncPager(self._sender, self._path("/experiments"), "experiments", query)

    async def experiment(self, name: str) -> types.Experiment:
        return await self._sender.json(Call("GET", self._path("/experiments/{}", name)))

    async def put_experiment(self, name: str, experiment: types.NewExperiment) -> types.Experiment:
        """Creates or replaces an experiment."""
        return await self._sender.json(Call("PUT", self._path("/experiments/{}", name), experiment))

    async def change_experiment(self, name: str, change: types.ExperimentChange) -> types.Experiment:
        """Stops or restarts an experiment."""
        return await self._sender.json(Call("PATCH", self._path("/experiments/{}", name), change))

    async def archive_experiment(self, name: str) -> None:
        """Ends an experiment."""
        await self._sender.send(Call("DELETE", self._path("/experiments/{}", name)))

    async def experiment_variant(self, name: str, device: str) -> types.ExperimentAssigned:
        """The variant of a device."""
        return await self._sender.json(Call("GET", self._path("/experiments/{}/devices/{}", name, device)))

    def notices(self, *, archived: bool | None = None, limit: int | None = None) -> AsyncPager[types.Notice]:
        """Maintenance notices."""
        query: Query = {"archived": archived, "limit": limit}
        return AsyncPager(self._sender, self._path("/notices"), "notices", query)

    async def notice(self, name: str) -> types.Notice:
        return await self._sender.json(Call("GET", self._path("/notices/{}", name)))

    async def put_notice(self, name: str, notice: types.NewNotice) -> types.Notice:
        """Creates or replaces a maintenance notice."""
        return await self._sender.json(Call("PUT", self._path("/notices/{}", name), notice))

    async def end_notice(self, name: str) -> None:
        await self._sender.send(Call("DELETE", self._path("/notices/{}", name)))

    async def series(
        self,
        *,
        names: str | None = None,
        from_: str | None = None,
        until: str | None = None,
        step: Literal["10s", "1m", "1h"] | None = None,
        node: str | None = None,
    ) -> types.Series:
        """Figures over time. `names` has commas between them."""
        query: Query = {"names": names, "from_": from_, "until": until, "step": step, "node": node}
        return await self._sender.json(Call("GET", self._path("/series"), query=query))


class AsyncNoroshi:
    """The API of Noroshi for a backend, with asyncio.

    - `key`: an API key.
    - `retry`: when a request is repeated.
    - `traceparent`: returns the W3C trace context of the current work, for calls that do not name one.
    - `http_client`: replaces the HTTP client. Close it yourself.

    Use it as an asynchronous context manager, or call `aclose`.
    """

    notifications: AsyncNotifications
    topics: AsyncTopics
    devices: AsyncDevices
    users: AsyncUsers
    campaigns: AsyncCampaigns
    activities: AsyncActivities
    channels: AsyncChannels

    def __init__(
        self,
        url: str,
        key: str,
        *,
        retry: Retry | None = None,
        traceparent: Callable[[], str | None] | None = None,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        self._owns_http = http_client is None
        http = httpx.AsyncClient() if http_client is None else http_client
        self._use(AsyncSender(http, base_url(url), common_headers(key), retry or Retry(), traceparent))

    def _use(self, sender: AsyncSender) -> None:
        self._sender = sender
        self.notifications = AsyncNotifications(sender)
        self.topics = AsyncTopics(sender)
        self.devices = AsyncDevices(sender)
        self.users = AsyncUsers(sender)
        self.campaigns = AsyncCampaigns(sender)
        self.activities = AsyncActivities(sender)
        self.channels = AsyncChannels(sender)

    def with_retry(self, retry: Retry) -> AsyncNoroshi:
        """The same client, with its connections, that repeats requests in another way."""
        other = object.__new__(AsyncNoroshi)
        other._owns_http = False
        other._use(self._sender.with_retry(retry))
        return other

    async def aclose(self) -> None:
        """Closes connections."""
        if self._owns_http:
            await self._sender.http.aclose()

    async def __aenter__(self) -> AsyncNoroshi:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def publish(
        self, notification: types.Notification, *, idempotency_key: str | None = None, traceparent: str | None = None
    ) -> types.Receipt:
        """Notifies users, devices, a topic, a condition, or everyone. Needs the scope `publish`.

        All attempts have the same idempotency key, so the notification is delivered once. Name a key of your own if
        your program may publish the same notification again, for example after a restart.
        """
        return await self._sender.json(
            Call(
                "POST",
                path("notifications"),
                notification,
                idempotency_key=idempotency_key or new_key(),
                traceparent=self._sender.trace(traceparent),
            )
        )

    def publish_batch(
        self,
        notifications: AsyncIterable[types.Notification] | Iterable[types.Notification],
        *,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        lines_per_request: int = 1_000,
    ) -> AsyncIterator[LineResult[types.Receipt]]:
        """Publishes any number of notifications: a result for each, in order, with its own error.

        Takes notifications as it sends them, in requests of at most `lines_per_request` lines and 4 MiB. Each line has
        an idempotency key, made of `idempotency_key` and its number: the same notifications with the same key and the
        same `lines_per_request` are delivered once. Raises `BatchError` if a request fails.
        """
        return self._sender.batch(
            path("notifications/batch"),
            notifications,
            Chunks(lines_per_request, None),
            idempotency_key or new_key(),
            self._sender.trace(traceparent),
        )

    async def presence(self, users: Iterable[str]) -> types.PresenceAnswer:
        """Which of up to 1,000 users are online."""
        return await self._sender.json(Call("POST", path("presence"), {"users": list(users)}))

    def invalidations(self, *, after: str | None = None, limit: int | None = None) -> AsyncPager[types.Invalidation]:
        """Push tokens that were removed or suspended, oldest first. `after` is the last `seq` that you have."""
        query: Query = {"after": after, "limit": limit}
        return AsyncPager(self._sender, path("push/invalidations"), "invalidations", query)

    def app(self, name: str) -> AsyncApp:
        """An app, for its settings, keys, credentials and experiments."""
        return AsyncApp(self._sender, name)
