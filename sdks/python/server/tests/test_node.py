"""The library against a real node."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from node import JWT_SECRET, KEY, Node
from noroshi_server import (
    NO_RETRY,
    AsyncNoroshi,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    Noroshi,
    NotFoundError,
    UnauthorizedError,
    device_jwt,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture
def noroshi(node: Node) -> Iterator[Noroshi]:
    with Noroshi(node.url, KEY) as noroshi:
        yield noroshi


def me(node: Node, token: str, path: str = "") -> httpx.Response:
    return httpx.get(f"{node.url}/v1/me{path}", headers={"authorization": f"Bearer {token}"})


def test_publish_and_trace(node: Node, noroshi: Noroshi) -> None:
    token = noroshi.devices.register({"device": "p1", "user": "pu"})["token"]
    receipt = noroshi.publish(
        {"to": {"users": ["pu", "nobody"]}, "notification": {"title": "Hello"}, "data": {"n": 1}},
        traceparent=f"00-{TRACE}-00f067aa0ba902b7-01",
    )
    assert receipt["targets"] == 2
    message = me(node, token, "/inbox").json()["messages"][0]
    assert (message["id"], message["notification"]["title"]) == (receipt["id"], "Hello")
    trace = noroshi.notifications.trace(receipt["id"], "p1")
    assert trace["in_inbox"] is True
    assert trace["targeted_by"] == "user"
    state = noroshi.notifications.get(receipt["id"])
    assert state.get("trace") == TRACE
    assert receipt["id"] in [one["id"] for one in noroshi.notifications.list(user="pu", limit=1)]
    assert noroshi.notifications.cancel(receipt["id"])["removed"] == 1


def test_the_traceparent_of_the_client(node: Node) -> None:
    with Noroshi(node.url, KEY, traceparent=lambda: f"00-{TRACE}-00f067aa0ba902b7-01") as noroshi:
        receipt = noroshi.publish({"to": {"users": ["u"]}, "data": 1})
        assert noroshi.notifications.get(receipt["id"]).get("trace") == TRACE
        (line,) = noroshi.with_retry(NO_RETRY).publish_batch([{"to": {"users": ["u"]}, "data": 1}])
        assert noroshi.notifications.get(line.unwrap()["id"]).get("trace") == TRACE
        other = noroshi.publish({"to": {"users": ["u"]}, "data": 1}, traceparent=f"00-{'a' * 32}-00f067aa0ba902b7-01")
        assert noroshi.notifications.get(other["id"]).get("trace") == "a" * 32


def test_the_same_idempotency_key(noroshi: Noroshi) -> None:
    first = noroshi.publish({"to": {"users": ["i"]}, "data": 1}, idempotency_key="once")
    assert noroshi.publish({"to": {"users": ["i"]}, "data": 1}, idempotency_key="once") == first
    with pytest.raises(ConflictError) as caught:
        noroshi.publish({"to": {"users": ["i"]}, "data": 2}, idempotency_key="once")
    assert caught.value.code == "idempotency_conflict"
    assert caught.value.request_id


def test_errors(node: Node, noroshi: Noroshi) -> None:
    with pytest.raises(BadRequestError) as caught:
        noroshi.publish({"to": {"users": ["u"]}, "tll": 1})  # type: ignore[typeddict-unknown-key]
    assert (caught.value.status, caught.value.code, caught.value.field) == (400, "unknown_field", "tll")
    with pytest.raises(NotFoundError):
        noroshi.devices.get("unknown/device?")
    with pytest.raises(UnauthorizedError), Noroshi(node.url, "nk1.wrong") as wrong:
        wrong.publish({"to": {"users": ["u"]}, "data": 1})
    key = noroshi.app("dev").create_key({"name": "reader", "scopes": ["read"]})
    with pytest.raises(ForbiddenError), Noroshi(node.url, key["key"]) as reader:
        reader.publish({"to": {"users": ["u"]}, "data": 1})
    assert key["id"] in [one["id"] for one in noroshi.app("dev").keys()["keys"]]
    noroshi.app("dev").revoke_key(key["id"])


def test_names_with_any_character(noroshi: Noroshi) -> None:
    device = "a/b?c#d %é+&=;:@"
    noroshi.devices.register({"device": device, "user": "ü/1", "topics": ["x/y z"]})
    assert noroshi.devices.get(device)["user"] == "ü/1"
    assert noroshi.topics.get("x/y z")["subscribers"] == 1
    assert noroshi.devices.topic_permission(device, "x/y z", action="subscribe")["decision"] == "allowed"
    assert noroshi.users.item_counts("ü/1")["unread"] == 0
    noroshi.devices.delete(device)
    with pytest.raises(ValueError, match="cannot be part"):
        noroshi.devices.get("..")


def test_batches(noroshi: Noroshi) -> None:
    seen: list[int] = []

    def devices() -> Iterator[dict[str, str]]:
        for n in range(25):
            seen.append(n)
            yield {"device": f"batch-{n}", "user": f"bu{n % 5}"}

    results = noroshi.devices.register_batch(devices(), lines_per_request=10)  # type: ignore[arg-type]
    first = next(results)
    # Lines are taken as they are sent: ten, and one that begins the next request.
    assert len(seen) == 11
    assert first.unwrap()["device"] == "batch-0"
    assert [result.index for result in results] == list(range(1, 25))

    lines: list[Any] = [{"to": {"users": [f"bu{n % 5}"]}, "data": n} if n != 3 else {"to": {}} for n in range(7)]
    answers = list(noroshi.publish_batch(lines, idempotency_key="batch", lines_per_request=3))
    assert [answer.error is None for answer in answers] == [True, True, True, False, True, True, True]
    error = answers[3].error
    assert isinstance(error, BadRequestError)
    assert error.code == "invalid_field"
    with pytest.raises(BadRequestError):
        answers[3].unwrap()
    again = list(noroshi.publish_batch(lines, idempotency_key="batch", lines_per_request=3))
    assert [one.value for one in again] == [one.value for one in answers]
    assert list(noroshi.publish_batch([])) == []
    # A line separator of Unicode is no end of a line.
    (line,) = noroshi.publish_batch([{"to": {"users": ["\u2028x"]}, "data": "\u2028\u0085\r"}])
    assert line.unwrap()["targets"] == 1


def test_pages(noroshi: Noroshi) -> None:
    for n in range(5):
        noroshi.devices.register({"device": f"page-{n}", "user": "pager"})
    listed = noroshi.devices.list(user="pager", limit=2)
    assert sorted(one["device"] for one in listed) == [f"page-{n}" for n in range(5)]
    assert [len(page.entries) for page in listed.pages()] == [2, 2, 1]
    page = listed.page()
    assert len(page.entries) == 2
    assert page.next is not None
    assert len(listed.page(page.next).entries) == 2


def test_users_items_preferences(noroshi: Noroshi) -> None:
    noroshi.devices.register({"device": "c1", "user": "centre"})
    for n in range(3):
        noroshi.publish(
            {"to": {"users": ["centre"]}, "notification": {"title": f"{n}"}, "item": {}, "category": "orders"}
        )
    titles = [one.get("notification", {}).get("title") for one in noroshi.users.items("centre", limit=2)]
    assert titles == ["2", "1", "0"]
    assert noroshi.users.item_counts("centre") == {"unread": 3, "categories": {"orders": 3}}
    stored = noroshi.users.set_preferences("centre", {"quiet_hours": {"from": "22:00", "to": "07:00"}})
    assert noroshi.users.preferences("centre") == stored
    noroshi.users.clear_preferences("centre")
    assert noroshi.users.preferences("centre") == {}
    assert noroshi.devices.set_preferences("c1", {"muted_topics": ["x"]}) == {"muted_topics": ["x"]}
    noroshi.devices.clear_preferences("c1")
    assert noroshi.users.delete_items("centre")["deleted"] == 3
    noroshi.devices.set_push_token("c1", "webhook", {"provider": "mail", "token": "a@example.com"}, name="mail")
    assert len(noroshi.devices.push_tokens("c1")["push_tokens"]) == 1
    noroshi.devices.remove_push_token("c1", "webhook", name="mail")
    assert noroshi.devices.endpoints("c1")["endpoints"] == []
    assert list(noroshi.invalidations()) == []


def test_topics_and_presence(noroshi: Noroshi) -> None:
    noroshi.devices.register({"device": "t1", "user": "tu", "topics": ["goals"]})
    noroshi.publish({"to": {"topic": "goals"}, "retain": True, "data": {"score": "1:0"}})
    assert noroshi.topics.retained("goals")["data"] == {"score": "1:0"}
    noroshi.topics.delete_retained("goals")
    with pytest.raises(NotFoundError):
        noroshi.topics.retained("goals")
    assert "goals" in [one["topic"] for one in noroshi.topics.list(limit=1)]
    assert noroshi.presence(["tu"])["users"]["tu"]["presence"] == "offline"


def test_campaigns(noroshi: Noroshi) -> None:
    noroshi.devices.register({"device": "k1", "user": "ku"})
    campaign = noroshi.campaigns.create(
        {"name": "spring", "audience": {"upload": True}, "message": {"notification": {"title": "Hi {{name}}"}}}
    )
    assert campaign["state"] == "draft"
    lines = [{"user": "ku", "variables": {"name": "Ana"}}, {"user": ""}]
    uploaded = list(noroshi.campaigns.upload_recipients(campaign["id"], lines))  # type: ignore[arg-type]
    assert (uploaded[0].unwrap()["user"], uploaded[1].error is not None) == ("ku", True)
    assert noroshi.campaigns.recipient(campaign["id"], "ku")["user"] == "ku"
    assert (
        noroshi.campaigns.change(
            campaign["id"], {"revision": noroshi.campaigns.get(campaign["id"])["revision"], "name": "summer"}
        )["name"]
        == "summer"
    )
    assert noroshi.campaigns.estimate(campaign["id"])
    assert noroshi.campaigns.count({"audience": {"everyone": True}, "message": {"data": 1}})["devices"] >= 1
    assert noroshi.campaigns.start(campaign["id"])["state"] in ("running", "done")
    end = time.monotonic() + 20
    while noroshi.campaigns.get(campaign["id"])["state"] != "done":
        assert time.monotonic() < end
        time.sleep(0.05)
    assert [one["name"] for one in noroshi.campaigns.list(name="SUMMER")] == ["summer"]
    noroshi.campaigns.delete(campaign["id"])


def test_app(noroshi: Noroshi) -> None:
    app = noroshi.app("dev")
    assert app.get()["name"] == "dev"
    variants = {"variants": [{"name": "green", "weight": 1}]}
    assert app.put_experiment("checkout", variants)["name"] == "checkout"  # type: ignore[arg-type]
    noroshi.devices.register({"device": "e1", "user": "eu"})
    assert app.experiment_variant("checkout", "e1")["variant"] == "green"
    assert [one["name"] for one in app.experiments()] == ["checkout"]
    app.archive_experiment("checkout")
    rules = {"subscribe": [{"topic": "#", "allow": "anyone"}]}
    app.set_topic_rules(rules)  # type: ignore[arg-type]
    assert app.topic_rules()["subscribe"] == rules["subscribe"]
    app.delete_topic_rules()
    assert app.quotas()["app"] == "dev"
    assert app.push_credentials()["credentials"] == []
    assert list(app.notices()) == []
    assert app.series(step="1m")


def test_a_device_logs_in_with_a_local_jwt(node: Node, noroshi: Noroshi) -> None:
    token = device_jwt(JWT_SECRET, user="ju", device="jd", topics=["news"], claims={"team": "a"})
    body = me(node, token).json()
    assert (body["user"], body["device"], body["topics"]) == ("ju", "jd", ["news"])
    assert me(node, device_jwt("another secret of thirty-two bytes", user="ju", device="jd")).status_code == 401
    expired = device_jwt(JWT_SECRET, user="ju", device="jd", now=time.time() - 7_200)
    assert me(node, expired).status_code == 401
    assert noroshi.devices.revoke("jd")
    assert me(node, token).status_code == 401
    assert noroshi.users.revoke("ju")["user"] == "ju"


def test_asyncio(node: Node) -> None:
    async def run() -> None:
        async with AsyncNoroshi(node.url, KEY) as noroshi:
            device = f"async-{uuid.uuid4()}"
            await noroshi.devices.register({"device": device, "user": "au"})
            receipts = await asyncio.gather(*(noroshi.publish({"to": {"users": ["au"]}, "data": n}) for n in range(20)))
            assert len({receipt["id"] for receipt in receipts}) == 20
            listed = [one["id"] async for one in noroshi.notifications.list(user="au", limit=7)]
            assert {receipt["id"] for receipt in receipts} <= set(listed)

            async def lines() -> AsyncIterator[Any]:
                for n in range(5):
                    await asyncio.sleep(0)
                    yield {"to": {"users": ["au"]}, "data": n}

            results = [result async for result in noroshi.publish_batch(lines(), lines_per_request=2)]
            assert [result.index for result in results] == list(range(5))
            with pytest.raises(NotFoundError):
                await noroshi.devices.get("nothing here")

    asyncio.run(run())
