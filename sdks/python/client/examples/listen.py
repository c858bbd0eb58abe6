"""Prints the messages of a device, and of the topic news: TOKEN=… python listen.py."""

import asyncio
import os

from noroshi_client import Noroshi, NoroshiError, TokenRequest


async def get_token(request: TokenRequest) -> str:
    # An app asks its backend, which registers the device or signs a JWT.
    return os.environ["TOKEN"]


async def main() -> None:
    noroshi = Noroshi(os.environ.get("NOROSHI_URL", "http://127.0.0.1:8080"), get_token)
    noroshi.on("state", lambda state: print(state.state, state.reason or "", flush=True))
    noroshi.topic("news", recover=True).on(
        "recovered", lambda event: print("recovered", event.topic, event.complete, flush=True)
    )
    async with noroshi:
        async for message in noroshi.messages():
            print(message.topic or "direct", message.notification, message.data, flush=True)


try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
except NoroshiError as error:
    raise SystemExit(f"{error.code}: {error}") from None
