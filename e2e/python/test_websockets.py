"""The native WebSocket with the Python package `websockets`, blocking and asynchronous."""

import asyncio
import json

import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.sync.client import connect

from node import DEADLINE_S, Node


def test_a_device_registers_connects_and_receives(node):
    device = node.register(user="pythonista", platform="other")
    headers = {"Authorization": f"Bearer {device['token']}"}
    with connect(node.ws + "/v1/connect", subprotocols=["noroshi.v1"], additional_headers=headers) as socket:
        assert socket.subprotocol == "noroshi.v1"
        assert json.loads(socket.recv(DEADLINE_S))["device"] == device["device"]
        sent = node.publish(to={"users": ["pythonista"]}, notification={"title": "狼煙"}, data={"n": 1})
        msg = json.loads(socket.recv(DEADLINE_S))
        assert (msg["t"], msg["id"], msg["notification"], msg["data"]) == ("msg", sent["id"], {"title": "狼煙"}, {"n": 1})
        socket.send(json.dumps({"t": "ack", "ids": [msg["id"]]}))
        socket.send(json.dumps({"t": "ping"}))
        assert json.loads(socket.recv(DEADLINE_S)) == {"t": "pong"}


def test_the_token_in_the_first_frame(node):
    device = node.register()
    with connect(node.ws + "/v1/connect", subprotocols=["noroshi.v1"]) as socket:
        socket.send(json.dumps({"t": "connect", "token": device["token"]}))
        assert json.loads(socket.recv(DEADLINE_S))["t"] == "ready"


def test_a_websocket_ping_is_answered(node):
    device = node.register()
    with connect(f"{node.ws}/v1/connect?token={device['token']}") as socket:
        assert socket.ping(b"are you there").wait(DEADLINE_S)


def test_a_takeover_closes_the_older_connection_with_its_code(node):
    url = f"{node.ws}/v1/connect?token={node.register()['token']}"
    with connect(url) as first:
        assert json.loads(first.recv(DEADLINE_S))["t"] == "ready"
        with connect(url) as second:
            assert json.loads(second.recv(DEADLINE_S))["t"] == "ready"
            told = json.loads(first.recv(DEADLINE_S))
            assert (told["t"], told["reason"], told["reconnect"]) == ("close", "replaced", False)
            with pytest.raises(ConnectionClosed) as closed:
                first.recv(DEADLINE_S)
            assert closed.value.rcvd.code == 4001


def test_a_hundred_devices_receive_a_topic_message_once(node):
    async def listen(token: str, ready: asyncio.Semaphore) -> list:
        async with connect_async(f"{node.ws}/v1/connect?token={token}", subprotocols=["noroshi.v1"]) as socket:
            assert json.loads(await socket.recv())["t"] == "ready"
            await socket.send(json.dumps({"t": "sub", "topics": ["crowd"]}))
            await socket.send(json.dumps({"t": "ping"}))
            assert json.loads(await socket.recv())["t"] == "pong"
            ready.release()
            received = []
            while not received or received[-1]["data"] != "end":
                received.append(json.loads(await socket.recv()))
            return received

    async def crowd() -> list:
        ready = asyncio.Semaphore(0)
        tokens = [node.register()["token"] for _ in range(100)]
        tasks = [asyncio.create_task(listen(token, ready)) for token in tokens]
        for _ in tokens:
            await ready.acquire()
        for data in ["one", "two", "end"]:
            await asyncio.to_thread(node.publish, to={"topic": "crowd"}, data=data)
        return await asyncio.gather(*tasks)

    every = asyncio.run(asyncio.wait_for(crowd(), 60))
    assert all([msg["data"] for msg in received] == ["one", "two", "end"] for received in every)
    assert len({tuple(msg["id"] for msg in received) for received in every}) == 1
    assert len({tuple(msg["offset"] for msg in received) for received in every}) == 1


@pytest.mark.parametrize("bits", [None, 12, 9])
def test_messages_are_compressed_within_the_window_of_the_client(deflating, bits):
    token = deflating.register(user=f"compressed-{bits}")["token"]
    offer = ClientPerMessageDeflateFactory(server_max_window_bits=bits, client_max_window_bits=bits or True)
    with connect(f"{deflating.ws}/v1/connect?token={token}", compression=None, extensions=[offer]) as socket:
        [extension] = socket.protocol.extensions
        assert (extension.name, extension.remote_max_window_bits) == ("permessage-deflate", bits or 15)
        assert extension.remote_no_context_takeover and extension.local_no_context_takeover
        assert json.loads(socket.recv(DEADLINE_S))["t"] == "ready"
        for length in [10, 300, 700, 3_000, 4_000, 60_000]:
            data = ("nothing new under the sun, " * 3_000)[:length]
            # A message longer than its window is not compressed.
            deflating.publish(to={"users": [f"compressed-{bits}"]}, data=data[:4_000])
            assert json.loads(socket.recv(DEADLINE_S))["data"] == data[:4_000]
            # The library compresses every message it sends.
            socket.send(json.dumps({"t": "nonsense", "text": data}))
            assert json.loads(socket.recv(DEADLINE_S))["t"] == "error"


@pytest.fixture(scope="module")
def deflating():
    node = Node("--set", "gateway.websocket_deflate=true")
    yield node
    node.stop()
