#!/usr/bin/env python3
"""Listens as a device of a user, with the Python packages `noroshi-server` and `noroshi-client`.

    pip install ./sdks/python/server ./sdks/python/client
    NOROSHI_KEY=... python3 examples/listen.py u1 news sports

Registers a device, subscribes it to the given topics, prints each message and acknowledges it. It reconnects, and then
receives the messages stored meanwhile.

In an app the backend registers the device (or signs a JWT for it) and gives it the token: the API key never leaves the
backend.
"""

import asyncio
import json
import os
import sys

from noroshi_client import Noroshi as Device
from noroshi_client import NoroshiError, State
from noroshi_server import Noroshi

BASE = os.environ.get("NOROSHI_URL", "http://127.0.0.1:8080")


def register(user: str, topics: list[str]) -> str:
    with Noroshi(BASE, os.environ["NOROSHI_KEY"]) as noroshi:
        # The same id each time: this script is one device, however often it starts.
        device = f"listen-py-{user}"
        return noroshi.devices.register({"device": device, "user": user, "platform": "other", "topics": topics})["token"]


def show(state: State) -> None:
    if state.state == "connected":
        print(f"connected as {state.device}", flush=True)
    elif state.reason:
        print(f"{state.state}: {state.reason}", file=sys.stderr)


async def main() -> None:
    user, *topics = sys.argv[1:]
    noroshi = Device(BASE, lambda request: register(user, topics))
    noroshi.on("state", show)
    async with noroshi:
        # The end of the loop's body acknowledges the message.
        async for message in noroshi.messages():
            fields = {"topic": message.topic, "notification": message.notification, "data": message.data}
            print(json.dumps({name: value for name, value in fields.items() if value}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2 or "NOROSHI_KEY" not in os.environ:
        sys.exit(__doc__)
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
    except NoroshiError as error:
        sys.exit(f"{error.code}: {error}")
