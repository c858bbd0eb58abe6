#!/usr/bin/env python3
"""Listens as a device of a user, with the Python package `websockets`.

    pip install websockets
    NOROSHI_KEY=... python3 examples/listen.py u1 news sports

Registers a device, subscribes it to the given topics, prints each message and acknowledges it. It reconnects when the
service asks for it or the connection breaks, and then receives the messages stored meanwhile.

In an app the backend registers the device (or signs a JWT for it) and gives it the token: the API key never leaves the
backend.
"""

import asyncio
import json
import os
import random
import sys
import urllib.request

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

BASE = os.environ.get("NOROSHI_URL", "http://127.0.0.1:8080")


def register(user: str, topics: list[str]) -> dict:
    request = urllib.request.Request(BASE + "/v1/devices", method="POST")
    request.add_header("Authorization", f"Bearer {os.environ['NOROSHI_KEY']}")
    request.add_header("Content-Type", "application/json")
    # The same id each time: this script is one device, however often it starts.
    body = {"device": f"listen-py-{user}", "user": user, "platform": "other", "topics": topics}
    with urllib.request.urlopen(request, json.dumps(body).encode()) as answer:
        return json.load(answer)


async def listen(url: str, token: str) -> float | None:
    """Runs one connection. Returns the seconds to wait before the next, or None if it must not reconnect."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with connect(url, subprotocols=["noroshi.v1"], additional_headers=headers) as socket:
            async for text in socket:
                frame = json.loads(text)
                if frame["t"] == "ready":
                    print(f"connected as {frame['device']}", flush=True)
                elif frame["t"] == "msg":
                    print(json.dumps({k: frame[k] for k in ("topic", "notification", "data") if k in frame}), flush=True)
                    if frame.get("ack"):
                        await socket.send(json.dumps({"t": "ack", "ids": [frame["id"]]}))
                elif frame["t"] == "close":
                    print(f"the service closed the connection: {frame['reason']}", flush=True)
                    return frame["after_ms"] / 1_000 if frame["reconnect"] else None
    except (OSError, ConnectionClosed) as error:
        print(f"not connected: {error}", file=sys.stderr)
    # The service gave no delay: randomise it, so that devices do not reconnect all at once.
    return 1 + random.random() * 4


async def main() -> None:
    device = register(sys.argv[1], sys.argv[2:])
    while (wait_s := await listen(device["connect"]["websocket"], device["token"])) is not None:
        await asyncio.sleep(wait_s)


if __name__ == "__main__":
    if len(sys.argv) < 2 or "NOROSHI_KEY" not in os.environ:
        sys.exit(__doc__)
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
