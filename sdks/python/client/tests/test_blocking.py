"""The client without asyncio against a real node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from device import jwt
from node import KEY, Node
from noroshi_client import Message, NoroshiError
from noroshi_client.blocking import Noroshi


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


def publish(node: Node, device: str, data: object) -> None:
    body = {"to": {"devices": [device]}, "data": data, "notification": {"title": "x"}, "item": {}}
    httpx.post(f"{node.url}/v1/notifications", json=body, headers={"authorization": f"Bearer {KEY}"}).raise_for_status()


def inbox(node: Node, device: str) -> int:
    answer = httpx.get(f"{node.url}/v1/me/inbox", headers={"authorization": f"Bearer {jwt(device)}"})
    return int(answer.json()["total"])


def until(is_true: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_messages_are_acknowledged_after_the_body_of_the_loop(node: Node) -> None:
    threads = threading.active_count()
    with Noroshi(node.url, lambda _: jwt("b1")) as noroshi, noroshi.messages() as messages:
        noroshi.connected()
        assert noroshi.me()["device"] == "b1"
        for n in range(3):
            publish(node, "b1", n)
        taken = []
        for message in messages:
            if message.data == 2:
                assert inbox(node, "b1") >= 1
            taken.append(message.data)
            if len(taken) == 3:
                break
    assert taken == [0, 1, 2]
    until(lambda: inbox(node, "b1") == 0)
    assert threading.active_count() == threads


def test_handlers_inbox_and_preferences(node: Node) -> None:
    with Noroshi(node.url, lambda _: jwt("b2")) as noroshi:
        seen: list[object] = []
        refused: list[Exception] = []

        def handler(message: Message) -> None:
            seen.append(message.data)
            noroshi.opened(message.id)
            try:
                noroshi.me()
            except RuntimeError as error:
                refused.append(error)

        remove = noroshi.on("message", handler)
        noroshi.connected()
        publish(node, "b2", "here")
        until(lambda: seen == ["here"] and refused)
        remove()
        items = list(noroshi.inbox.items(limit=1))
        assert len(items) == 1
        assert noroshi.inbox.mark_read(items[0]["id"])["changed"] == 1
        assert noroshi.inbox.refresh().unread == 0
        assert noroshi.set_preferences({"muted_topics": ["x"]}) == noroshi.get_preferences()
        assert noroshi.variant("none") is None
        noroshi.presence = "idle"
        assert noroshi.presence == "idle"


def test_a_loop_ends_with_its_client(node: Node) -> None:
    with Noroshi(node.url, lambda _: jwt("b3")) as one:
        one.connected()
        news = one.topic("news").messages()
        with Noroshi(node.url, lambda _: jwt("b3")) as two:
            two.connected()
            with pytest.raises(NoroshiError, match="replaced") as caught:
                list(one.messages() if one.state.state != "closed" else news)
            assert caught.value.code == "replaced"
    one.close()
    with pytest.raises(NoroshiError):
        one.connect()


def test_nobody_is_signed_in(node: Node) -> None:
    with Noroshi(node.url, lambda _: None) as noroshi, pytest.raises(NoroshiError) as caught:
        noroshi.connected()
    assert caught.value.code == "signed_out"
