"""HTTP/2 by prior knowledge with the Python package `httpx`, whose protocol is `h2` of hyper."""

import asyncio
import json

import httpx
import pytest
from httpx_sse import aconnect_sse, connect_sse

from node import DEADLINE_S, KEY


def client(node, **more):
    return httpx.Client(base_url=node.http, http1=False, http2=True, timeout=DEADLINE_S, **more)


def test_requests_and_errors_on_one_connection(node):
    with client(node) as http:
        for token, status in [("wrong", 401), (KEY, 200), ("", 401), (KEY, 200)]:
            answer = http.get("/v1/topics", headers={"Authorization": f"Bearer {token}"})
            assert (answer.http_version, answer.status_code) == ("HTTP/2", status)
        made = http.post("/v1/devices", json={"user": "py-h2"}, headers={"Authorization": f"Bearer {KEY}"})
        assert made.status_code == 201
        gone = http.get("/nothing")
        assert (gone.status_code, gone.json()["code"]) == (404, "not_found")


def test_a_stream_receives_messages_published_on_its_connection_and_resumes(node):
    device = node.register()

    async def receive(last_event_id, data, count):
        headers = {"Authorization": f"Bearer {device['token']}", **({"Last-Event-ID": last_event_id} if last_event_id else {})}
        async with httpx.AsyncClient(base_url=node.http, http1=False, http2=True, timeout=DEADLINE_S) as http:
            async with aconnect_sse(http, "GET", "/v1/events", headers=headers) as source:
                assert source.response.http_version == "HTTP/2"
                key = {"Authorization": f"Bearer {KEY}"}
                to = {"devices": [device["device"]]}
                answers = await asyncio.gather(
                    *(http.post("/v1/notifications", json={"to": to, "data": one}, headers=key) for one in data)
                )
                assert {answer.status_code for answer in answers} <= {202}
                received = []
                async for event in source.aiter_sse():
                    if event.event == "msg":
                        received.append((event.id, json.loads(event.data)["data"]))
                    if len(received) == count:
                        return received

    first = asyncio.run(receive(None, range(20), 20))
    assert sorted(data for _, data in first) == list(range(20))
    resumed = asyncio.run(receive(first[14][0], [], 5))
    assert resumed == first[15:]


def test_a_websocket_stream_is_reset(node):
    with client(node) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            http.get("/v1/connect")
        assert http.get("/openapi.json").status_code == 200


def test_a_stream_without_a_token_gets_an_error(node):
    with client(node) as http:
        with connect_sse(http, "GET", "/v1/events") as source:
            assert source.response.status_code == 401
        assert http.get("/openapi.json").status_code == 200
