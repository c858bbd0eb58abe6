"""Socket.IO with the Python package `python-socketio`, over a WebSocket and over long polling."""

import threading

import pytest
import socketio

from node import DEADLINE_S, Node, until


class Client:
    """Collects a client's messages; its handler's return value is the acknowledgement."""

    def __init__(self, base: str, auth: dict, transports: list[str], namespace: str = "/") -> None:
        self.received, self.closes, self.ended = [], [], threading.Event()
        self.io = socketio.Client(reconnection=False)
        self.io.on("notification", self._hear)
        self.io.on("close", self.closes.append)
        self.io.on("disconnect", lambda *_: self.ended.set())
        self.io.connect(base, auth=auth, transports=transports, namespaces=[namespace], wait_timeout=DEADLINE_S)

    def _hear(self, message: dict, *_offset: str) -> None:
        self.received.append(message)

    def receives(self, count: int) -> list:
        until(f"{count} notifications", lambda: len(self.received) >= count)
        return [message["data"] for message in self.received]


TRANSPORTS = {"websocket": ["websocket"], "polling": ["polling"], "upgrade": ["polling", "websocket"]}


def waiting(node, token: str) -> list:
    answer = node.provider.get("/v1/me/inbox", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    return answer.json()["messages"]


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_device_receives_stored_and_live_messages_and_acknowledges_them(node, name):
    user = f"py-sio-{name}"
    token = node.register(user=user)["token"]
    node.publish(to={"users": [user]}, notification={"title": "狼煙"}, data="waited")
    client = Client(node.http, {"token": token, "topics": ["py-sio-own"]}, TRANSPORTS[name])
    assert client.receives(1) == ["waited"]
    assert client.io.transport() == ("websocket" if name == "upgrade" else name)
    node.publish(to={"topic": "py-sio-own"}, data={"n": 1})
    assert client.receives(2)[1] == {"n": 1}
    node.publish(to={"users": [user]}, when="connected", data="live")
    assert client.receives(3)[2] == "live"
    until("both to be acknowledged", lambda: not waiting(node, token))
    client.io.disconnect()


@pytest.mark.parametrize("name", TRANSPORTS)
def test_calls_are_answered(node, name):
    user = f"py-sio-calls-{name}"
    client = Client(node.http, {"token": node.register(user=user)["token"]}, TRANSPORTS[name])
    topic = f"py-sio-topic-{name}"
    assert client.io.call("subscribe", [topic], timeout=DEADLINE_S) == {"ok": True}
    node.publish(to={"topic": topic}, data="received")
    assert client.receives(1) == ["received"]
    assert client.io.call("presence", "idle", timeout=DEADLINE_S) == {"ok": True}
    assert node.provider.post("/v1/presence", json={"users": [user]}).json()["users"][user]["presence"] == "idle"
    assert client.io.call("unsubscribe", topic, timeout=DEADLINE_S) == {"ok": True}
    assert client.io.call("shout", "x", timeout=DEADLINE_S)["code"] == "unknown_event"
    client.io.disconnect()


@pytest.mark.parametrize("name", TRANSPORTS)
def test_the_newer_connection_of_a_device_replaces_the_older(node, name):
    token = node.register()["token"]
    first = Client(node.http, {"token": token}, TRANSPORTS[name])
    second = Client(node.http, {"token": token}, TRANSPORTS[name])
    assert first.ended.wait(DEADLINE_S)
    assert first.closes == [{"reason": "replaced", "reconnect": False, "after_ms": 0}]
    assert second.io.connected
    second.io.disconnect()


def test_a_wrong_token_is_rejected(node):
    with pytest.raises(socketio.exceptions.ConnectionError):
        Client(node.http, {"token": "not one"}, ["websocket"])


def test_other_namespaces_are_rejected(node):
    with pytest.raises(socketio.exceptions.ConnectionError):
        Client(node.http, {"token": node.register()["token"]}, ["websocket"], namespace="/admin")


@pytest.mark.parametrize("name", TRANSPORTS)
def test_the_conformance_echo_carries_binary(name):
    echo = Node("--conformance")
    try:
        client = socketio.Client(reconnection=False)
        back = []
        client.on("message-back", lambda *args: back.append(list(args)))
        client.connect(echo.http, transports=TRANSPORTS[name], wait_timeout=DEADLINE_S)
        args = ("text", b"\x04\x05\x06", {"deep": [b"x" * 70_000, 1]})
        client.emit("message", args)
        until("an echo", lambda: back)
        assert back == [list(args)]
        assert tuple(client.call("message-with-ack", args, timeout=DEADLINE_S)) == args
        client.disconnect()
    finally:
        echo.stop()
