"""Plays one vector to the client. The form of vectors is in sdks/vectors/README.md."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

from clock import FakeClock, settle
from noroshi_client import Message, Noroshi, NoroshiError, State, TokenRequest
from scripted import ScriptedServer

FOLDER = Path(__file__).resolve().parents[3] / "vectors"
Vector = dict[str, Any]

# Rules that libraries of other languages do not follow yet are in `next`, which may be empty.
FILES = [path for path in sorted(FOLDER.glob("*.json")) if path.stem != "schema"] + sorted(FOLDER.glob("next/*.json"))
VECTORS: dict[str, Vector] = {
    f"{path.relative_to(FOLDER).with_suffix('').as_posix()}: {vector['name']}": vector
    for path in FILES
    for vector in json.loads(path.read_text("utf-8"))["vectors"]
}


def _encode(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


class Run:
    def __init__(self, vector: Vector, server: ScriptedServer) -> None:
        self.vector = vector
        self.server = server
        self.clock = FakeClock(vector.get("random", []))
        self.local: list[dict[str, Any]] = []
        self.tokens: list[dict[str, Any]] = list(vector.get("tokens", [{"name": "t1"}]))
        self.options: dict[str, Any] = vector.get("options", {})
        self.deferred: dict[str, asyncio.Future[None]] = {}
        transports = tuple(self.options.get("transports", ("websocket", "sse")))
        if self.options.get("websocket") is False:
            transports = ("sse",)
        self.client = Noroshi(
            server.url,
            self.get_token,
            app=self.options.get("app"),
            acknowledge=self.options.get("acknowledge", "handled"),
            ping_interval=self.options.get("ping_interval_s", 60),
            transports=transports,
            clock=self.clock,
        )
        if self.options.get("listener") != "none":
            self.client.on("message", self.message)
        self.client.on("state", self.state)
        self.client.on(
            "recovered", lambda event: self.local.append({"recovered": event.topic, "complete": event.complete})
        )
        self.client.on(
            "denied",
            lambda event: self.local.append({"denied": event.topic, "code": event.code, "reason": event.reason}),
        )
        self.client.on("error", lambda error: self.local.append({"error": error.code}))
        self.client.on("items", lambda change: self.local.append({"items": change.event, "ids": list(change.ids)}))
        self.tasks: set[asyncio.Task[None]] = set()

    async def get_token(self, request: TokenRequest) -> str | None:
        self.local.append({"token": request.reason})
        assert self.tokens, "the vector has no more tokens"
        token = self.tokens.pop(0)
        if token.get("fail"):
            raise RuntimeError("the backend is away")
        if token.get("none"):
            return None
        if token.get("pending"):
            await asyncio.Event().wait()
        if "lifetime_s" not in token:
            return str(token["name"])
        iat = self.clock.now() // 1_000 + token.get("clock_ahead_s", 0)
        claims = {"jti": token["name"], "exp": iat + token["lifetime_s"]}
        if token.get("iat") is not False:
            claims["iat"] = iat
        return f"{_encode({'alg': 'none'})}.{_encode(claims)}.x"

    def message(self, message: Message) -> asyncio.Future[None] | None:
        self.local.append({"message": message.id})
        match self.options.get("listener"):
            case "throws":
                raise RuntimeError("the handler failed")
            case "deferred":
                future = asyncio.get_running_loop().create_future()
                self.deferred[message.id] = future
                return future
        return None

    def state(self, state: State) -> None:
        seen: dict[str, Any] = {"state": state.state}
        if state.reason:
            seen["reason"] = state.reason
        if state.retry_in_ms is not None:
            seen["in_ms"] = state.retry_in_ms
        if state.transport:
            seen["transport"] = state.transport
        self.local.append(seen)

    async def failing(self, work: Any) -> None:
        try:
            result = await work
            self.local.append(result)
        except NoroshiError as error:
            self.local.append({"failed": error.code})

    def call(self, name: str, value: Any) -> None:
        client = self.client

        async def me() -> dict[str, Any]:
            return {"me": (await client.me())["device"]}

        async def variant() -> dict[str, Any]:
            found = await client.variant(value)
            return {"variant": None if found is None else found["variant"]}

        async def mark_read() -> dict[str, Any]:
            return {"changed": (await client.inbox.mark_read(value))["changed"]}

        work: Any = None
        match name:
            case "connect":
                client.connect()
            case "close":
                self.spawn(client.close())
            case "subscribe":
                client.topic(value["topic"], recover=value.get("recover", False))
            case "unsubscribe":
                client.topic(value).unsubscribe()
            case "ack":
                client.ack(*value)
            case "opened":
                client.opened(*value)
            case "presence":
                client.presence = value
            case "page":
                client.app_changed(hidden=value.get("hidden"), online=value.get("online", False))
            case "finish":
                self.deferred[value].set_result(None)
            case "fail":
                self.deferred[value].set_exception(RuntimeError("the handler failed"))
            case "listen_unread":
                client.on(
                    "unread",
                    lambda counts: self.local.append({"unread": counts.unread, "categories": dict(counts.categories)}),
                )
            case "me":
                work = me()
            case "variant":
                work = variant()
            case "mark_read":
                work = mark_read()
            case _:
                raise AssertionError(f"not a call: {name}")
        if work is not None:
            self.spawn(self.failing(work))

    def spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def expect(self, value: dict[str, Any]) -> None:
        await self.server.expect(value.get("wire", []))
        await settle()
        expected = value.get("local", [])
        for _ in range(50):
            if len(self.local) >= len(expected):
                break
            await asyncio.sleep(0.01)
        observed, self.local = self.local, []
        assert observed == expected, f"locally: expected {expected}\nobserved {observed}"

    async def play(self) -> None:
        try:
            for index, step in enumerate([*self.vector["steps"], {"expect": {}}]):
                ((name, value),) = step.items()
                try:
                    match name:
                        case "call":
                            ((call, argument),) = value.items()
                            self.call(call, argument)
                            await settle()
                        case "advance":
                            await self.clock.advance(value)
                        case "expect":
                            await self.expect(value)
                        case _:
                            await self.server.step(step)
                            await settle()
                except Exception as error:
                    raise AssertionError(f"step {index} {json.dumps(step)[:300]}\n{error}") from error
            assert self.clock.unused == [], "random numbers were not used"
            assert self.tokens == [], "tokens were not used"
        finally:
            closing = asyncio.ensure_future(self.client.close())
            await settle()
            await self.server.reset()
            await asyncio.wait([closing], timeout=1)
            for task in [closing, *self.tasks]:
                task.cancel()
