"""Server-sent events with the Python package `httpx-sse`."""

import json

import httpx
from httpx_sse import connect_sse

from node import DEADLINE_S


def messages(node, token: str, count: int, **headers):
    """The first `count` messages of a new stream, with their SSE ids."""
    with httpx.Client(timeout=DEADLINE_S, headers={"Authorization": f"Bearer {token}", **headers}) as client:
        with connect_sse(client, "GET", node.http + "/v1/events") as source:
            assert source.response.headers["content-type"].startswith("text/event-stream")
            received = []
            for event in source.iter_sse():
                if event.event == "msg":
                    received.append((event.id, json.loads(event.data)))
                if len(received) == count:
                    return received


def test_last_event_id_resumes_after_its_message(node):
    device = node.register()
    for n in range(5):
        node.publish(to={"devices": [device["device"]]}, data=n)
    first = messages(node, device["token"], 5)
    assert [msg["data"] for _, msg in first] == [0, 1, 2, 3, 4]
    assert all(position for position, _ in first)

    again = messages(node, device["token"], 5)
    assert [msg["id"] for _, msg in again] == [msg["id"] for _, msg in first], "nothing was acknowledged"

    resumed = messages(node, device["token"], 2, **{"Last-Event-ID": first[2][0]})
    assert [msg["data"] for _, msg in resumed] == [3, 4]


def test_an_invalid_position_is_rejected_or_ignored_but_never_a_server_error(node):
    device = node.register()
    headers = {"Authorization": f"Bearer {device['token']}", "Last-Event-ID": "../../etc/passwd"}
    with httpx.stream("GET", node.http + "/v1/events", headers=headers, timeout=DEADLINE_S) as answer:
        assert answer.status_code in (200, 400)


def test_retry_is_set(node):
    device = node.register()
    headers = {"Authorization": f"Bearer {device['token']}"}
    with httpx.stream("GET", node.http + "/v1/events", headers=headers, timeout=DEADLINE_S) as answer:
        text = ""
        for chunk in answer.iter_text():
            text += chunk
            if "retry:" in text and "\n\n" in text:
                break
        retry_ms = int(text.split("retry:")[1].split("\n")[0])
        assert 100 <= retry_ms <= 60_000
