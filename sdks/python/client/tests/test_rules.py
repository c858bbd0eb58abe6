"""Rules of sdks/CONTRACT.md that no vector tests, without a node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from clock import FakeClock, settle
from noroshi_client import Message, Noroshi, NoroshiError, Position, Recovered
from noroshi_client._core import frames
from noroshi_client._core.connection import Close, Connection, Deliver, End, Open, Report, Send
from noroshi_client._core.outbox import Outbox
from noroshi_client._core.recent import Recent
from noroshi_client._core.tokens import TokenBook
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

# A node of the service, as far as these tests need it.


class Service:
    def __init__(self) -> None:
        self.url = ""
        self.sockets: list[ServerConnection] = []
        self.received: list[dict[str, Any]] = []
        self.refused_with: dict[str, str] | None = None

    def refuse(self, socket: ServerConnection, _: Request) -> Response | None:
        if self.refused_with is None:
            return None
        response = socket.respond(HTTPStatus.SERVICE_UNAVAILABLE, "")
        for name, value in self.refused_with.items():
            response.headers[name] = value
        return response

    async def serve(self, socket: ServerConnection) -> None:
        self.sockets.append(socket)
        await socket.recv()
        await socket.send(json.dumps({"t": "ready", "device": "d", "ping_s": 240}))
        async for text in socket:
            self.received.append(json.loads(text))

    async def send(self, **frame: Any) -> None:
        await self.sockets[-1].send(json.dumps(frame))

    def acked(self) -> list[str]:
        return [one for frame in self.received if frame["t"] == "ack" for one in frame["ids"]]


@asynccontextmanager
async def service() -> AsyncIterator[Service]:
    service = Service()
    async with serve(
        service.serve, "127.0.0.1", 0, subprotocols=[Subprotocol("noroshi.v1")], process_request=service.refuse
    ) as server:
        service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield service


async def until(is_true: Callable[[], object]) -> None:
    while not is_true():  # `run` has a deadline.
        await asyncio.sleep(0.005)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


# A8, S4: loops.


@pytest.mark.parametrize("how", ["break", "error", "next"])
def test_a_loop_that_is_left_has_not_handled_its_message(how: str) -> None:
    """Also if a handler has handled it, since the message would not arrive again."""

    async def test() -> None:
        async with service() as node, Noroshi(node.url, lambda _: "t") as noroshi:
            errors: list[NoroshiError] = []
            seen: list[str] = []
            noroshi.on("error", errors.append)
            noroshi.on("message", lambda message: seen.append(message.id))
            await noroshi.connected()

            async def loop() -> None:
                async for _ in noroshi.messages():
                    if how == "break":
                        break
                    if how == "error":
                        raise RuntimeError("the body failed")

            looping = asyncio.ensure_future(loop())
            await settle()
            await node.send(t="msg", id="m1", ack=True)
            if how == "next":
                await until(node.acked)
                looping.cancel()
            await asyncio.wait([looping])
            if how == "error":
                assert isinstance(looping.exception(), RuntimeError)
            # The next message is passed on, so the first one is settled.
            await node.send(t="msg", id="m2", ack=True)
            await until(lambda: "m2" in node.acked())
            assert node.acked() == (["m1", "m2"] if how == "next" else ["m2"])
            assert seen == ["m1", "m2"]
            assert errors == [], "the caller of the loop knows its error"

    run(test)


def test_a_block_tells_an_error_from_a_break() -> None:
    async def test() -> None:
        async with service() as node, Noroshi(node.url, lambda _: "t") as noroshi:
            await noroshi.connected()
            for id_, error in (("m1", None), ("m2", RuntimeError("the body failed"))):
                try:
                    async with noroshi.messages() as messages:
                        await node.send(t="msg", id=id_, ack=True)
                        async for _ in messages:
                            if error is not None:
                                raise error
                            break
                except RuntimeError:
                    pass
            await until(node.acked)
            await noroshi.close()
            assert node.acked() == ["m1"]

    run(test)


@pytest.mark.parametrize("reason", ["closed", "signed_out", "replaced", "quota_exceeded"])
def test_how_loops_end(reason: str) -> None:
    async def test() -> None:
        async with service() as node:
            tokens = iter(["t", None])
            noroshi = Noroshi(node.url, lambda _: next(tokens))
            topic = noroshi.topic("news")
            noroshi.connect()
            await noroshi.connected()

            async def loop(messages: AsyncIterator[Message]) -> list[str]:
                return [message.id async for message in messages]

            loops = [asyncio.ensure_future(loop(aiter(one))) for one in (noroshi.messages(), topic)]
            await settle()
            match reason:
                case "closed":
                    await noroshi.close()
                case "signed_out":
                    await node.send(t="close", reason="expired", reconnect=False)
                    await node.sockets[-1].close(4002)
                case _:
                    await node.send(t="close", reason=reason, reconnect=False)
                    await node.sockets[-1].close(4001)
            results = await asyncio.gather(*loops, return_exceptions=True)
            assert noroshi.state.reason == reason
            later = await asyncio.gather(loop(aiter(noroshi.messages())), return_exceptions=True)
            for result in (*results, *later):
                if reason in ("closed", "signed_out"):
                    assert result == []
                else:
                    assert isinstance(result, NoroshiError)
                    assert result.code == reason
            await noroshi.close()

    run(test)


def test_a_loop_finishes_its_message_after_close() -> None:
    async def test() -> None:
        async with service() as node:
            noroshi = Noroshi(node.url, lambda _: "t")
            noroshi.connect()
            await noroshi.connected()
            begun: list[str] = []
            goes_on = asyncio.Event()

            async def loop() -> None:
                async for message in noroshi.messages():
                    begun.append(message.id)
                    await goes_on.wait()

            looping = asyncio.ensure_future(loop())
            await settle()
            await node.send(t="msg", id="m1", ack=True)
            await node.send(t="msg", id="m2", ack=True)
            await until(lambda: begun)
            await noroshi.close()
            goes_on.set()
            await looping
            assert begun == ["m1"], "m2 was dropped"
            assert node.acked() == []
            noroshi.connect()
            await until(lambda: node.acked() == ["m1"])
            looping = asyncio.ensure_future(loop())
            await settle()
            await node.send(t="msg", id="m1", ack=True)
            await node.send(t="msg", id="m2", ack=True)
            await until(lambda: "m2" in node.acked())
            assert begun == ["m1", "m2"]
            await noroshi.close()
            await looping

    run(test)


# B3


@pytest.mark.parametrize(("header", "low", "high"), [({"Retry-After": "7"}, 7_000, 7_000), ({}, 250, 500)])
def test_retry_after_of_a_refused_websocket(header: dict[str, str], low: int, high: int) -> None:
    async def test() -> None:
        async with service() as node:
            node.refused_with = header
            waits: list[int] = []
            noroshi = Noroshi(node.url, lambda _: "t", transports=("websocket",))
            noroshi.on("state", lambda state: waits.append(state.retry_in_ms) if state.retry_in_ms else None)
            async with noroshi:
                await until(lambda: waits)
                assert low <= waits[0] <= high

    run(test)


# U


class Api:
    """Answers requests one by one."""

    def __init__(self, *answers: httpx.Response, tokens: tuple[str, ...] = ("t1",)) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, str]] = []
        self.clock = FakeClock([])
        self.before_answer: Callable[[], Coroutine[Any, Any, None]] | None = None
        names = iter(tokens)
        self.client = Noroshi(
            "http://service.test",
            lambda _: next(names),
            clock=self.clock,
            http_client=httpx.AsyncClient(transport=httpx.MockTransport(self.answer), timeout=None),
        )

    async def answer(self, request: httpx.Request) -> httpx.Response:
        token = request.headers["authorization"].removeprefix("Bearer ")
        self.asked.append((request.method, request.url.path, token))
        answer = self.answers.pop(0)
        if self.before_answer is not None:
            work, self.before_answer = self.before_answer, None
            await work()
        return answer


def me(user: str, **variants: str) -> httpx.Response:
    experiments = {name: {"variant": variant} for name, variant in variants.items()}
    return httpx.Response(200, json={"device": "d", "user": user, "experiments": experiments})


def test_a_variant_is_asked_for_again_if_the_token_changed_during_the_request() -> None:
    async def test() -> None:
        api = Api(
            me("u1", colour="green"),
            httpx.Response(401, json={"code": "revoked"}),
            httpx.Response(200, json={"unread": 0, "categories": {}}),
            me("u2", colour="blue"),
            httpx.Response(200, json={"exposed": {}}),
            tokens=("t1", "t2"),
        )

        async def other_request() -> None:
            await api.client.inbox.refresh()

        api.before_answer = other_request
        found = await api.client.variant("colour")
        assert found is not None
        assert found["variant"] == "blue"
        await settle()
        assert [token for _, path, token in api.asked if path == "/v1/me"] == ["t1", "t2"]
        assert api.asked[-1] == ("POST", "/v1/me/exposures", "t2")
        await api.client.close()

    run(test)


def test_a_read_that_waits_can_be_cancelled() -> None:
    async def test() -> None:
        api = Api(httpx.Response(503, headers={"retry-after": "20"}))
        reading = asyncio.ensure_future(api.client.me())
        await settle()
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        await api.clock.advance(60_000)
        assert len(api.asked) == 1

    run(test)


def test_counts_are_not_read_after_close() -> None:
    async def test() -> None:
        async with service() as node:
            counted: list[str] = []

            def answer(request: httpx.Request) -> httpx.Response:
                counted.append(request.url.path)
                return httpx.Response(503, headers={"retry-after": "1"})

            transport = httpx.MockTransport(answer)
            client = httpx.AsyncClient(transport=transport, timeout=None)
            async with Noroshi(node.url, lambda _: "t", http_client=client) as noroshi:
                noroshi.on("unread", lambda _: None)
                await until(lambda: counted)
            await asyncio.sleep(1.2)
            assert counted == ["/v1/me/items/counts"]

    run(test)


# O4, X7: reports.


def test_a_rejected_request_is_split_until_one_entry_is_dropped() -> None:
    for status in (400, 413, 422):
        outbox = Outbox(batch=1_000, limit=1_000)
        entries = [f"e{n}" for n in range(1_000)]
        bad = {"e0", "e617", "e999"}
        outbox.add(entries)
        succeeded: list[str] = []
        dropped: list[str] = []
        requests = 0
        while (taken := outbox.take()) is not None:
            requests += 1
            if not bad & set(taken):
                outbox.succeeded(taken)
                succeeded += taken
            elif outbox.rejected(taken, status):
                dropped += taken
        assert set(dropped) == bad
        assert succeeded == [entry for entry in entries if entry not in bad]
        assert requests < 60

    outbox = Outbox(batch=10, limit=10)
    outbox.add(["a", "b"])
    assert outbox.rejected(outbox.take() or [], 403)
    assert outbox.take() is None


def test_a_presence_that_the_service_rejects_is_dropped() -> None:
    async def test() -> None:
        api = Api(httpx.Response(400, json={"code": "invalid_field"}), httpx.Response(200, json={}))
        errors: list[str] = []
        api.client.on("error", lambda error: errors.append(error.code))
        presence = api.client._stream_presence

        async def newer() -> None:
            presence.add(["active"])
            presence.add(["idle"])
            presence.add(["active"])

        api.before_answer = newer
        presence.add(["idle"])
        for _ in range(4):
            await settle()
        assert errors == ["invalid_field"], "states replace each other without an error"
        assert api.asked == [("PUT", "/v1/me/presence", "t1")] * 2
        await api.client.close()

    run(test)


# The core.


def connected(transport: str = "websocket", topics: tuple[str, ...] = ()) -> Connection:
    core = Connection(TokenBook(), lambda: 0, transports=("sse",) if transport == "sse" else ("websocket", "sse"))
    for topic in topics:
        core.subscribe(0, topic, recover=True)
    core.connect(0)
    log_in(core, 0)
    core.effects.clear()
    return core


def log_in(core: Connection, now: int) -> None:
    core.token(now, core.attempt, "t")
    core.opened(now, core.attempt)
    if not core._is_stream:
        core.frame(now, core.attempt, '{"t":"ready","ping_s":240}')


def message(core: Connection, now: int, id_: str, **fields: Any) -> None:
    core.frame(now, core.attempt, json.dumps({"t": "msg", "id": id_, "ack": True, **fields}))


def delivered(core: Connection) -> list[str]:
    return [effect.message.id for effect in core.effects if isinstance(effect, Deliver)]


def sent(core: Connection, kind: str) -> list[dict[str, Any]]:
    return [effect.frame for effect in core.effects if isinstance(effect, Send) and effect.frame["t"] == kind]


def test_closed_drops_recoveries_that_wait_too() -> None:
    core = connected(topics=("a",))
    message(core, 1, "m1", topic="a", epoch="e", offset=1)
    message(core, 1, "m2", topic="a", epoch="e", offset=2)
    core.frame(1, core.attempt, '{"t":"recovered","topic":"a","complete":false,"epoch":"e","offset":9}')
    core.close(2)
    core.settle(3, handled=True)
    assert delivered(core) == ["m1"]
    assert not [effect for effect in core.effects if isinstance(effect, Report) and isinstance(effect.event, Recovered)]
    core.connect(4)
    log_in(core, 4)
    assert sent(core, "sub")[-1]["since"] == {"a": {"epoch": "e", "offset": 1}}
    assert [frame["ids"] for frame in sent(core, "ack")] == [["m1"]]
    message(core, 5, "m2", topic="a", epoch="e", offset=2)
    assert delivered(core) == ["m1", "m2"]


def test_a_message_behind_a_failed_one_counts_in_no_later_session() -> None:
    core = connected(topics=("a",))
    for n in (1, 2):
        message(core, 1, f"m{n}", topic="a", epoch="e", offset=n)
    core.settle(2, handled=False)
    core.ended(3, core.attempt, End())
    core.tick(10_000)
    log_in(core, 10_000)
    core.settle(10_001, handled=True)
    core.flush(10_200, core.attempt)
    assert sent(core, "ack") == []
    assert core.positions == {}
    for n in (1, 2):
        message(core, 10_300, f"m{n}", topic="a", epoch="e", offset=n)
    assert delivered(core) == ["m1", "m2", "m1"]
    core.flush(10_400, core.attempt)
    assert sent(core, "ack") == [], "m2 was handled, but its acknowledgement would be that of m1"
    core.settle(10_500, handled=True)
    core.flush(10_600, core.attempt)
    assert [frame["ids"] for frame in sent(core, "ack")] == [["m1", "m2"]]
    assert core.positions["a"].offset == 2


def test_a_topic_with_a_comma_moves_between_transports() -> None:
    core = connected(topics=("a,b", "c"))
    message(core, 1, "m1", topic="a,b", epoch="e", offset=1)
    core.settle(1, handled=True)
    for _ in range(3):
        core.ended(core._now, core.attempt, End())
        core.tick(core._now + 30_000)
        core.token(core._now, core.attempt, "t")
    opened = [effect for effect in core.effects if isinstance(effect, Open)][-1]
    assert (opened.transport, opened.topics) == ("sse", ("c",))
    core.opened(core._now, core.attempt)
    errors = [effect.event for effect in core.effects if isinstance(effect, Report)]
    assert [(error.code, error.topic) for error in errors if isinstance(error, NoroshiError)] == [("bad_topic", "a,b")]
    core.effects.clear()
    core.unsubscribe(core._now + 200, "a,b")
    core.flush(core._now + 200, core.attempt)
    assert not any(isinstance(effect, Open | Close) for effect in core.effects), "the stream has the same topics"
    core.subscribe(core._now + 200, "a,b", recover=True)
    core.flush(core._now + 200, core.attempt)
    core.heard(core._now + 299_000, core.attempt)
    core.tick(core._now + 1_000)
    log_in(core, core._now)
    assert sent(core, "sub")[-1]["topics"] == ["c", "a,b"]


def test_frames_stay_below_the_limit() -> None:
    for text in ("é", "雪", "😀", "x"):
        topics = [f"{n:04}" + text * 120 for n in range(300)]
        core = connected(topics=tuple(topics))
        for topic in topics:
            core.subscribe(1, topic, recover=True)
            core._inflow.reach(topic, Position("ccaa8904", 2**53))
        core.ended(2, core.attempt, End())
        core.tick(20_000)
        log_in(core, 20_000)
        parts = sent(core, "sub")
        assert [topic for part in parts for topic in part["topics"]] == topics
        assert len(parts) > 1
        assert max(len(frames.encode(part).encode()) for part in parts) < 65_536
    assert [len(part) for part in frames.parts(["x"] * 2_500)] == [857, 857, 786]
    with pytest.raises(ValueError, match="surrogates"):
        Noroshi("http://service.test", lambda _: "t").topic("\ud800")


def test_how_many_ids_are_remembered() -> None:
    recent = Recent(128)
    for n in range(10_000):
        recent.add(f"{n}")
        assert all(f"{last}" in recent for last in (n, max(0, n - 127)))
    assert sum(f"{n}" in recent for n in range(10_000)) <= 256

    # Other messages do not displace stored ones.
    core = connected()
    message(core, 1, "stored")
    core.settle(1, handled=True)
    for n in range(5_000):
        core.frame(1, core.attempt, json.dumps({"t": "msg", "id": f"x{n}"}))
        core.settle(1, handled=True)
    core.effects.clear()
    message(core, 2, "stored")
    assert delivered(core) == []
