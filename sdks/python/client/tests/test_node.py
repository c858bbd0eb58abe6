"""The device client against a real node: kill -9, drain, replaced, revoked, expired tokens, a stalled network."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from device import Device, jwt, until
from node import KEY, Node
from noroshi_client import FileStorage, Message, Noroshi, ProblemError
from proxy import Proxy

Scenario = Callable[..., Coroutine[Any, Any, None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(test: Scenario) -> Scenario:
    """Runs beside the others: scenarios wait for timers most of the time. Each has devices of its own."""
    SCENARIOS[test.__name__] = test
    return test


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, node: Node) -> dict[str, BaseException | None]:
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = [spec.params.get("name") for spec in specs if spec]
    names = [name for name in SCENARIOS if name in wanted]

    async def run_all() -> list[None | BaseException]:
        works = [asyncio.wait_for(SCENARIOS[name](node), 90) for name in names]
        return await asyncio.gather(*works, return_exceptions=True)

    return dict(zip(names, asyncio.run(run_all()), strict=True))


@asynccontextmanager
async def own_node() -> AsyncIterator[Node]:
    node = await asyncio.to_thread(Node)
    try:
        yield node
    finally:
        await asyncio.to_thread(node.stop)


class Api:
    def __init__(self, node: Node) -> None:
        self._http = httpx.AsyncClient(base_url=node.url, headers={"authorization": f"Bearer {KEY}"}, timeout=20)

    async def call(self, method: str, path: str, body: object = None) -> Any:
        answer = await self._http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def send(self, device: Device, data: Any, **fields: Any) -> str:
        return await self.publish({"users": [device.user]}, data, **fields)

    async def publish(self, to: object, data: Any, **fields: Any) -> str:
        answer = await self.call("POST", "/v1/notifications", {"to": to, "data": data, **fields})
        return str(answer["id"])

    async def inbox(self, device: str) -> int:
        answer = await self._http.get("/v1/me/inbox", headers={"authorization": f"Bearer {jwt(device)}"})
        return int(answer.json()["total"])

    async def has(self, device: str, count: int) -> None:
        async def is_count() -> bool:
            return await self.inbox(device) == count

        await until(f"the inbox has {count} messages", is_count)

    async def is_empty(self, device: str) -> None:
        await self.has(device, 0)

    async def aclose(self) -> None:
        await self._http.aclose()


@asynccontextmanager
async def api_of(node: Node) -> AsyncIterator[Api]:
    api = Api(node)
    try:
        yield api
    finally:
        await api.aclose()


@scenario
async def messages_to_the_user_and_to_a_topic(node: Node) -> None:
    async with api_of(node) as api, Device(node.url, "live") as one:
        seen: list[Any] = []
        one.client.topic("live/news").on("message", lambda message: seen.append(message.data))
        await one.connected()
        await api.send(one, 1)
        await one.shows(1)

        async def subscribed() -> bool:
            await api.publish({"topic": "live/news"}, "probe")
            return bool(seen)

        await until("the subscription", subscribed)
        await api.publish({"topic": "live/news"}, "goal")
        await until("the topic", lambda: "goal" in seen)
        await api.is_empty("live")
        assert one.errors == []
    assert [state.state for state in one.states] == ["connecting", "connected", "closed"]


async def after_kill_9(transports: tuple[str, ...]) -> None:
    async with own_node() as own, api_of(own) as api, Device(own.url, "killed", transports=transports) as one:
        topic: list[Any] = []
        one.client.topic("log", recover=True).on("message", lambda message: topic.append(message.data))
        await one.connected(transports[0])

        async def publish(n: int) -> None:
            await api.send(one, f"inbox {n}")
            await api.publish({"topic": "log"}, f"topic {n}")

        for n in range(10):
            await publish(n)
        await one.shows(20)
        await api.is_empty("killed")
        await asyncio.to_thread(own.kill)
        await until("the loss is noticed", lambda: one.client.state.state != "connected")
        await asyncio.to_thread(own.spawn)
        for n in range(10, 20):
            await publish(n)
        await one.connected(transports[0])
        await one.shows(40)
        await publish(20)
        await one.shows(42)
        assert topic == [f"topic {n}" for n in range(21)]
        assert [data for data in one.shown if data.startswith("inbox")] == [f"inbox {n}" for n in range(21)]
        assert one.recovered[-1].complete is (True if transports[0] == "websocket" else None)


@scenario
async def nothing_is_lost_after_kill_9(_: Node) -> None:
    await after_kill_9(("websocket", "sse"))


@scenario
async def nothing_is_lost_after_kill_9_with_a_stream(_: Node) -> None:
    await after_kill_9(("sse",))


@scenario
async def a_drain_moves_the_client(_: Node) -> None:
    async with own_node() as own, api_of(own) as api, Device(own.url, "drained") as one:
        await one.connected()
        for n in range(20):
            await api.send(one, n)
        await one.shows(1)
        await asyncio.to_thread(own.drain)
        await asyncio.to_thread(own.spawn)
        for n in range(20, 41):
            await api.send(one, n)
        await one.shows(41)
        assert one.shown == list(range(41))
        assert "drain" in [state.reason for state in one.states]


@scenario
async def a_newer_connection_replaces_the_client(node: Node) -> None:
    async with api_of(node) as api, Device(node.url, "replaced") as one:
        await one.connected()
        async with Device(node.url, "replaced") as two:
            await two.connected()
            await until("the first one is closed", lambda: one.client.state.state == "closed")
            assert one.client.state.reason == "replaced"
            await api.send(two, "here")
            await two.shows(1)
            assert one.shown == []


@scenario
async def a_revoked_device_asks_for_another_token(node: Node) -> None:
    async with api_of(node) as api, Device(node.url, "revoked") as one:
        await one.connected()
        await asyncio.sleep(1.1)  # A JWT of the second of the revocation stays rejected.
        await api.call("POST", "/v1/devices/revoked/revoke")
        await until("another token", lambda: "rejected" in one.asked)
        await one.connected()
        await api.send(one, "again")
        await one.shows(1)
        assert {"revoked", "unauthorized"} & {state.reason for state in one.states}


@scenario
async def a_token_is_renewed_on_the_open_connection(node: Node) -> None:
    async with api_of(node) as api, Device(node.url, "renewed", lifetime=4) as one:
        await one.connected()
        await until("two renewals", lambda: one.asked.count("expiring") >= 2)
        await api.send(one, "same session")
        await one.shows(1)
        assert [state.state for state in one.states] == ["connecting", "connected"]
        assert one.errors == []


@scenario
async def a_token_that_expires_without_a_renewal_is_replaced(node: Node) -> None:
    asked = 0

    async def get_token(request: Any) -> str:
        nonlocal asked
        asked += 1
        if request.reason == "expiring":
            raise RuntimeError("away")
        return jwt("expired", 2 if asked == 1 else 600)

    async with api_of(node) as api, Device(node.url, "expired", get_token=get_token) as one:
        await one.connected()
        await until("the expiry", lambda: "expired" in [state.reason for state in one.states])
        await one.connected()
        await api.send(one, "with the new token")
        await one.shows(1)
        assert {error.code for error in one.errors} <= {"token_failed"}


@scenario
async def a_stalled_network_is_noticed(node: Node) -> None:
    proxy = await Proxy(node.http_port).start()
    async with api_of(node) as api, Device(proxy.url, "stalled", ping_interval=1) as one:
        await one.connected()
        await api.send(one, 0)
        await one.shows(1)
        await api.is_empty("stalled")
        proxy.freeze()
        await api.send(one, 1)
        await until("the loss is noticed", lambda: "connection_lost" in [state.reason for state in one.states])
        await proxy.heal()
        await api.send(one, 2)
        await one.shows(3)
        await one.connected()
        assert one.shown == [0, 1, 2]
    await proxy.stop()


@scenario
async def a_handler_that_fails_gets_the_message_again(node: Node) -> None:
    async with api_of(node) as api:
        failures = 0

        async def fail(_: Message) -> None:
            nonlocal failures
            failures += 1
            raise RuntimeError("not now")

        async with Device(node.url, "failing") as one:
            one.client.on("message", fail)
            await one.connected()
            await api.send(one, "again")
            await until("the failure", lambda: [error.code for error in one.errors] == ["listener_failed"])
            assert failures == 1
            assert isinstance(one.errors[0].__cause__, RuntimeError)
        assert await api.inbox("failing") == 1
        async with Device(node.url, "failing") as two:
            await two.shows(1)
            await api.is_empty("failing")


@scenario
async def async_for(node: Node) -> None:
    async with api_of(node) as api:
        # Registers the device.
        async with Noroshi(node.url, lambda _: jwt("looped")) as noroshi:
            await noroshi.connected()
        for n in range(6):
            await api.publish({"devices": ["looped"]}, n)

        async with Noroshi(node.url, lambda _: jwt("looped")) as noroshi:
            taken = []
            async for message in noroshi.messages():
                taken.append(message.data)
                if len(taken) == 3:
                    break
        # The message of the `break` was not acknowledged.
        await api.has("looped", 4)

        with pytest.raises(RuntimeError):
            async with Noroshi(node.url, lambda _: jwt("looped")) as noroshi, noroshi.messages() as messages:
                async for message in messages:
                    taken.append(message.data)
                    raise RuntimeError("the body failed")
        await api.has("looped", 4)

        async with Noroshi(node.url, lambda _: jwt("looped")) as noroshi, noroshi.messages() as messages:
            async for message in messages:
                taken.append(message.data)
                if message.data == 5:
                    break
            # The end of the block acknowledges it.
        assert taken == [0, 1, 2, 2, 2, 3, 4, 5]
        await api.is_empty("looped")


@scenario
async def items_opened_preferences_me_and_a_variant(node: Node) -> None:
    async with api_of(node) as api, Device(node.url, "centre") as one:
        experiment = {"variants": [{"name": "green", "weight": 1, "data": {"colour": "#0a0"}}]}
        await api.call("PUT", "/v1/apps/dev/experiments/sdk-checkout", experiment)
        counts: list[int] = []
        inbox = one.client.inbox
        one.client.on("unread", lambda event: counts.append(event.unread))
        await one.connected()
        await until("the first count", lambda: len(counts) == 1)
        ids = [await api.send(one, n, notification={"title": f"{n}"}, item={"category": "orders"}) for n in range(3)]
        await until("three unread", lambda: inbox.unread == 3)
        assert inbox.counts is not None
        assert inbox.counts.categories == {"orders": 3}
        assert [item["id"] for item in (await inbox.list(limit=2))["items"]] == [ids[2], ids[1]]
        assert [item["id"] async for item in inbox.items(limit=1)] == ids[::-1]
        assert (await inbox.mark_read(ids[0]))["changed"] == 1
        assert inbox.unread == 2
        assert (await inbox.mark_read(up_to=ids[2], category="orders"))["changed"] == 2
        assert (await inbox.archive([ids[0], ids[1]]))["changed"] == 2
        assert (await inbox.unarchive(ids[0]))["changed"] == 1
        assert (await inbox.mark_unread(ids[0]))["unread"] == 1

        one.client.opened(ids[0])

        async def opened() -> bool:
            trace = await api.call("GET", f"/v1/notifications/{ids[0]}/devices/centre")
            return "opened" in [step["outcome"] for step in trace["steps"]]

        await until("the report", opened)

        preferences = one.client.preferences
        assert await preferences.set({"muted_topics": ["x"]}) == {"muted_topics": ["x"]}
        assert await preferences.get() == {"muted_topics": ["x"]}
        await preferences.delete()
        assert await one.client.user_preferences.get() == {}
        with pytest.raises(ProblemError) as caught:
            await preferences.set({"colour": "red"})  # type: ignore[typeddict-unknown-key]
        assert (caught.value.status, caught.value.code) == (400, "unknown_field")
        assert caught.value.request_id

        assert (await one.client.me())["device"] == "centre"
        await api.is_empty("centre")
        fresh = await one.client.me()
        assert await one.client.me() is fresh, "the same object: 304"
        assert await one.client.variant("sdk-checkout") == {"variant": "green", "data": {"colour": "#0a0"}}
        assert await one.client.variant("another") is None
        one.client.presence = "idle"

        async def idle() -> bool:
            answer = await api.call("POST", "/v1/presence", {"users": [one.user]})
            return bool(answer["users"][one.user]["presence"] == "idle")

        await until("the presence", idle)
        assert one.errors == []


@scenario
async def reports_survive_the_process(node: Node) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = FileStorage(f"{folder}/reports.json")
        async with api_of(node) as api, Device(node.url, "reporting") as one:
            await one.connected()
            id_ = await api.send(one, "opened later")
            await one.shows(1)
        async with Device("http://127.0.0.1:1", "reporting", storage=storage) as offline:
            offline.client.opened(id_)
            await until("the failure", lambda: "waiting" in [state.state for state in offline.states])
        assert id_ in (storage.load() or "")
        async with api_of(node) as api, Device(node.url, "reporting", storage=storage):

            async def opened() -> bool:
                trace = await api.call("GET", f"/v1/notifications/{id_}/devices/reporting")
                return "opened" in [step["outcome"] for step in trace["steps"]]

            await until("the report", opened)
            await until("an empty storage", lambda: storage.load() == "[]")


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, results: dict[str, BaseException | None]) -> None:
    if (error := results[name]) is not None:
        raise error


def test_nothing_is_left_behind(node: Node) -> None:
    async def run() -> None:
        before = asyncio.all_tasks()
        for transports in (("websocket",), ("sse",)):
            async with Device(node.url, "tidy", transports=transports) as one:
                await one.connected(transports[0])
        await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == before

    asyncio.run(run())
