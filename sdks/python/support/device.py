"""A device client with a record of what it showed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

from node import JWT_SECRET
from noroshi_client import Message, Noroshi, NoroshiError, Recovered, State, TokenRequest


def _encode(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def jwt(device: str, lifetime: float = 3_600) -> str:
    now = int(time.time())
    claims = {"sub": f"user-of-{device}", "device": device, "iat": now, "exp": int(now + lifetime)}
    text = f"{_encode({'alg': 'HS256', 'typ': 'JWT'})}.{_encode(claims)}"
    signature = hmac.new(JWT_SECRET.encode(), text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


async def until(what: str, is_true: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while True:
        result = is_true()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        assert time.monotonic() < end, f"after {seconds} s: {what}"
        await asyncio.sleep(0.02)


class Device:
    def __init__(self, url: str, device: str, *, lifetime: float = 3_600, **options: Any) -> None:
        self.device = device
        self.user = f"user-of-{device}"
        self.shown: list[Any] = []
        self.states: list[State] = []
        self.errors: list[NoroshiError] = []
        self.recovered: list[Recovered] = []
        self.asked: list[str] = []
        self.expected: list[Any] = []

        def get_token(request: TokenRequest) -> str:
            self.asked.append(request.reason)
            return jwt(device, lifetime)

        self.client = Noroshi(url, options.pop("get_token", get_token), **options)
        self.remove = self.client.on("message", self._show)
        self.client.on("state", self.states.append)
        self.client.on("recovered", self.recovered.append)
        self.client.on("error", self.errors.append)

    def _show(self, message: Message) -> None:
        self.shown.append(message.data)

    async def connected(self, transport: str = "websocket") -> None:
        await until(
            f"{self.device} is connected, not {self.client.state}",
            lambda: self.client.state.state == "connected" and self.client.state.transport == transport,
        )

    async def shows(self, count: int) -> None:
        await until(f"{self.device} shows {count} messages, not {len(self.shown)}", lambda: len(self.shown) >= count)

    async def __aenter__(self) -> Device:
        self.client.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
