"""The core without input and output."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from noroshi_client import FileStorage, NoroshiError, State
from noroshi_client._core import frames
from noroshi_client._core.backoff import backoff, retry_after
from noroshi_client._core.connection import Connection, Deliver, End, NeedToken, Open, RenewToken, Report, Send
from noroshi_client._core.outbox import Outbox, is_retried
from noroshi_client._core.sse import EventParser
from noroshi_client._core.tokens import TokenBook


def test_backoff() -> None:
    assert [backoff(n, 0) for n in range(8)] == [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]
    assert [backoff(n, 0.999999) for n in (0, 6, 10_000)] == [500, 30_000, 30_000]


def test_retry_after() -> None:
    assert retry_after("7", 0) == 7_000
    assert retry_after("86400", 0) == 3_600_000
    assert retry_after("9" * 40, 0) == 3_600_000
    assert retry_after("Thu, 01 Jan 2026 00:00:20 GMT", 1_767_225_600_000) == 20_000
    for text in (None, "", "soon", "-5", "\u0663"):
        assert retry_after(text, 0) is None


def test_events_of_a_stream_in_any_parts() -> None:
    text = ': comment\n\nevent: msg\nid: 1\ndata: {"a":"é\u2028"}\n\ndata: x\ndata:y\n\n'.encode()
    for size in (1, 2, 3, 7, 1_000):
        parser = EventParser()
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        assert [event for part in parts for event in parser.feed(part)] == ['{"a":"é\u2028"}', "x\ny"]
    with pytest.raises(ValueError, match="too large"):
        EventParser().feed(b"data: " + b"x" * (17 << 20))


def test_frames_that_are_none() -> None:
    for data in ("", "{", "[]", "1", "null", '{"t":1}', '{"t":"msg","id":1}', '{"t":"close"}', "[" * 200_000, b"{}"):
        with pytest.raises(ValueError):
            frames.parse(data)
    message = frames.message(frames.parse('{"t":"msg","id":"a","notification":1,"offset":"x","epoch":2,"topic":[]}'))
    assert (message.notification, message.offset, message.epoch, message.topic) == ({}, None, None, None)
    for value in (True, "1", None, float("nan"), float("inf"), 1e300):
        assert frames.number(value) is None


def test_tokens_that_are_odd() -> None:
    def jwt(claims: object) -> str:
        return f"x.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.y"

    for token in ("opaque", "a.b.c", "..", jwt([]), jwt({"exp": "1"}), jwt({"exp": 1e300}), jwt({"exp": True})):
        book = TokenBook()
        assert book.accept(token, 0, 0, lambda: 0) == token
        assert book.renew_at is None
    for value in (None, "", 7, b"x"):
        with pytest.raises(ValueError, match="no text"):
            TokenBook().accept(value, 0, 0, lambda: 0)


def test_an_outbox_is_bounded() -> None:
    outbox = Outbox(batch=2, limit=3)
    assert outbox.add(["a", "b", "c", "d", "d"]) == 1
    entries = outbox.take()
    assert entries == ["b", "c"]
    assert outbox.take() is None
    assert outbox.failed(5_000, 0) == 5_000
    assert outbox.take() == ["b", "c"]
    outbox.succeeded(["b", "c"])
    assert outbox.take() == ["d"]
    assert outbox.rejected(["d"], 400)
    assert outbox.take() is None
    assert [is_retried(status) for status in (None, 401, 408, 429, 500, 400, 404)] == [True] * 5 + [False] * 2


def test_reports_survive_the_process(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "reports.json")
    assert storage.load() is None
    storage.save('["a"]')
    storage.save('["b"]')
    assert FileStorage(str(tmp_path / "reports.json")).load() == '["b"]'
    assert [path.name for path in tmp_path.iterdir()] == ["reports.json"]


def test_a_stream_with_other_topics_is_not_opened_again_at_the_end() -> None:
    for last in ("close", "frame"):
        core = Connection(TokenBook(), lambda: 0, transports=("sse",))
        core.connect(0)
        core.token(0, core.attempt, "t")
        core.opened(0, core.attempt)
        core.effects.clear()
        core.subscribe(50, "a", recover=False)
        if last == "close":
            core.close(60)
            states = ["closed"]
        else:
            core.frame(60, core.attempt, '{"t":"close","reason":"drain","reconnect":true,"after_ms":9000}')
            core.ended(61, core.attempt, End())
            states = ["waiting"]
            assert core.state.retry_in_ms == 9_000
        reported = [effect.event for effect in core.effects if isinstance(effect, Report)]
        assert [event.state for event in reported if isinstance(event, State)] == states


class Machine:
    """Random inputs, and what must hold whatever happens."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self.book = TokenBook()
        transports: Any = self.random.choice([("websocket", "sse"), ("sse",), ("websocket",)])
        self.core = Connection(self.book, self.random.random, transports=transports)
        self.open: Open | None = None
        self.is_opened = False
        self.is_logged_in = False
        self.is_stream = False
        self.delivered: str | None = None
        self.handled: set[str] = set()
        self.failed: set[str] = set()
        self.acked: set[str] = set()
        self.last: State | None = None

    def effects(self) -> None:
        while self.core.effects:
            effect = self.core.effects.popleft()
            match effect:
                case NeedToken(attempt) if attempt == self.core.attempt:
                    if self.random.random() < 0.1:
                        self.core.no_token(self.now, attempt, NoroshiError("token_failed", "x"))
                    else:
                        token = self.book.current or self.book.accept(
                            f"t{self.random.random()}", self.now, self.now, self.random.random
                        )
                        self.core.token(self.now, attempt, token)
                case RenewToken(attempt, _):
                    self.core.not_renewed(self.now, attempt, NoroshiError("token_failed", "x"))
                case Open():
                    assert not any("," in topic for topic in effect.topics), "X4"
                    self.open = effect
                    self.is_opened = False
                    self.is_logged_in = False
                    self.is_stream = effect.transport == "sse"
                case Send(frame):
                    assert frame["t"] == "connect" or self.is_logged_in, "F2"
                    if frame["t"] == "ack":
                        assert set(frame["ids"]) <= self.handled, "A1"
                        self.acked |= set(frame["ids"])
                case Deliver(message):
                    assert self.delivered is None, "one at a time"
                    assert message.id not in self.handled, "D1"
                    assert self.core.state.state != "closed", "S4"
                    self.delivered = message.id
                case Report(State() as state):
                    assert state != self.last or state.state in ("connecting", "waiting"), "S1"
                    self.last = state
                case _:
                    pass

    def frame(self) -> dict[str, Any]:
        pick = self.random.choice
        message = {"t": "msg", "id": f"m{self.random.randrange(60)}", "ack": self.random.random() < 0.8}
        if self.random.random() < 0.5:
            message |= {"topic": pick("ab"), "epoch": pick(["e1", "e2"]), "offset": self.random.randrange(50)}
        return pick(
            [
                message,
                message,
                message,
                {"t": "ready", "device": "d", "ping_s": pick([1, 240])},
                {"t": "recovered", "topic": pick("ab"), "complete": pick([True, False])},
                {"t": "error", "code": pick(["topic_forbidden", "unauthorized", "x"]), "topic": pick(["a", None])},
                {"t": "close", "reason": pick(["drain", "expired", "x"]), "reconnect": pick([True, True, False])},
                {"t": "pong"},
            ]
        )

    def step(self) -> None:
        core, now, attempt = self.core, self.now, self.core.attempt
        match self.random.randrange(14):
            case 0:
                core.connect(now)
            case 1 if self.random.random() < 0.2:
                core.close(now)
            case 2:
                core.subscribe(now, self.random.choice(["a", "b", "b,c"]), recover=self.random.random() < 0.7)
            case 3:
                core.unsubscribe(now, self.random.choice(["a", "b", "b,c"]))
            case 4:
                core.set_presence(now, self.random.choice(["auto", "active", "idle"]))
            case 5:
                core.app_changed(now, hidden=self.random.choice([True, False, None]), online=self.random.random() < 0.3)
            case 6 | 7 if self.delivered is not None:
                one, self.delivered = self.delivered, None
                is_handled = self.random.random() < 0.8
                (self.handled if is_handled else self.failed).add(one)
                core.settle(now, handled=is_handled)
            case 8 if self.open is not None and not self.is_opened:
                self.is_opened = True
                self.is_logged_in = self.is_stream and self.open.attempt == attempt
                core.opened(now, self.open.attempt)
            case 9 if self.open is not None and self.random.random() < 0.3:
                core.ended(now, self.open.attempt, End(code=self.random.choice([None, 4_000, 4_002, 1_009])))
            case 10:
                core.flush(now, attempt)
            case _ if self.open is not None and self.is_opened:
                frame = self.frame()
                if frame["t"] == "ready":
                    self.is_logged_in = self.open.attempt == attempt
                core.heard(now, self.open.attempt)
                core.frame(now, self.open.attempt, json.dumps(frame))
        self.effects()
        self.now += self.random.choice([0, 0, 1, 50, 100, 1_000, 20_000])
        core.tick(self.now)
        self.effects()
        deadline = core.deadline
        assert deadline is None or deadline > self.now
        if core.state.state in ("connecting", "waiting") and core.state.reason != "queue_full":
            assert deadline is not None, "the client would wait without end"


@pytest.mark.parametrize("seed", range(60))
def test_random_inputs(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(400):
        machine.step()
