"""The session of a device: connects, reconnects, subscribes, recovers and acknowledges.

`Connection` has no input and output. A driver calls its methods with the time in milliseconds, carries out the effects
that they append to `effects`, and calls `tick` at `deadline`. Numbers in comments are those of sdks/CONTRACT.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ..errors import NoroshiError
from ..models import Acknowledge, Denied, ItemsChange, Message, Position, Presence, Recovered, State, TransportName
from . import frames
from .backoff import backoff
from .frames import Frame
from .inflow import QUEUE_MAX, Inflow
from .recent import Recent
from .tokens import TokenBook

_CONNECT_TIMEOUT_MS = 15_000
_PONG_TIMEOUT_MS = 10_000
_STABLE_MS = 5_000
_FLUSH_MS = 100
_IDLE_MS = 10_000
_WEBSOCKET_AGAIN_MS = 300_000
_ACKS_MAX = 10_000
_REMEMBERED_MIN = 2_048
# Four minutes between comments of a stream, which has no `ping_s`, and half a minute for them to arrive.
_STREAM_SILENCE_MS = 270_000
_PING_S_DEFAULT = 240
_PING_MIN_MS = 100
_REJECTIONS_MAX = 5
# Of topics in the query of a stream.
_SEPARATOR = ","
_TOKEN_REJECTED = ("expired", "revoked", "unauthorized")


@dataclass(frozen=True, slots=True)
class End:
    """Why a transport ended."""

    code: int | None = None
    """A WebSocket close code."""
    status: int | None = None
    """The HTTP status of a stream that did not begin."""
    problem: str | None = None
    """The code of its problem document."""
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NeedToken:
    """Get a token, then call `token` or `no_token`."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RenewToken:
    """Get another token, or the current one again, then call `renewed` or `not_renewed`."""

    attempt: int
    current: bool


@dataclass(frozen=True, slots=True)
class Open:
    """Open a connection, and report what happens with `opened`, `heard`, `frame` and `ended`."""

    attempt: int
    transport: TransportName
    token: str
    topics: tuple[str, ...]
    """Of a stream."""
    last_id: str | None


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame on the open connection; for a stream, send it by the HTTP API."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection after the frames before. Nothing of it matters any more."""

    attempt: int


@dataclass(frozen=True, slots=True)
class FlushSoon:
    """Call `flush` once the application returns."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass the message on, then call `settle`."""

    message: Message


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the application."""

    event: State | Recovered | Denied | ItemsChange | NoroshiError


Effect = NeedToken | RenewToken | Open | Send | Close | FlushSoon | Deliver | Report
_Timer = Literal["retry", "connect", "pong", "beat", "renew", "websocket", "flush", "idle"]
_OF_CONNECTION: tuple[_Timer, ...] = ("connect", "pong", "beat", "renew", "websocket", "flush", "retry")


class Connection:
    def __init__(
        self,
        tokens: TokenBook,
        random: Callable[[], float],
        *,
        transports: tuple[TransportName, ...] = ("websocket", "sse"),
        acknowledge: Acknowledge = "handled",
        ping_interval_ms: int = 60_000,
    ) -> None:
        self.state = State("idle")
        self.effects: deque[Effect] = deque()
        self.attempt = 0
        """Driver and core compare it to recognise what belongs to an earlier connection."""
        self._tokens = tokens
        self._random = random
        self._transports = transports
        self._acknowledge = acknowledge
        self._ping_interval_ms = ping_interval_ms
        self._now = 0
        self._timers: dict[_Timer, int] = {}
        self._inflow = Inflow(
            deliver=lambda message: self.effects.append(Deliver(message)),
            acknowledge=self._handled,
            is_subscribed=lambda topic: topic in self._topics,
            drained=self._caught_up,
        )
        self._transport: TransportName = transports[0]
        self._linked: int | None = None
        self._is_open = False
        self._failures = 0
        self._rejections = 0
        # Attempts in a row of the WebSocket that found no server.
        self._unopened = 0
        # X3: streams in between do not postpone it.
        self._websocket_at: int | None = None
        self._ready_at: int | None = None
        self._closing: Frame | None = None
        self._waits_for_hint = False
        self._is_too_slow = False
        self._heard_at = 0
        self._beat_ms = 0
        self._flushed_at: int | None = None
        self._will_flush = False
        self._renewals = 0
        self._renews_current = False
        # The token of the last frame `token`, until its answer would have come.
        self._sent_token: str | None = None
        # The token of the session; requests may have got a newer one.
        self._token: str | None = None
        # The topics in the request of a stream.
        self._dialed: list[str] = []
        # The value is whether to recover.
        self._topics: dict[str, bool] = {}
        # Topics that a session had: without a position a gap cannot be excluded.
        self._joined: set[str] = set()
        # Topics whose position the service was asked for.
        self._asked: set[str] = set()
        self._to_sub: dict[str, None] = {}
        self._to_unsub: dict[str, None] = {}
        self._acks: dict[str, None] = {}
        # What the application acknowledged itself, for the case that it arrives again (D2).
        self._acked = Recent(_REMEMBERED_MIN)
        self._presence: Presence = "active"
        self._sent_presence: Presence = "active"
        self._preference: Literal["auto", "active", "idle"] = "auto"
        self._is_hidden = False

    @property
    def positions(self) -> dict[str, Position]:
        """The last position of each topic."""
        return self._inflow.positions

    @property
    def presence(self) -> Literal["auto", "active", "idle"]:
        return self._preference

    @property
    def deadline(self) -> int | None:
        """When `tick` has to be called."""
        return min(self._timers.values(), default=None)

    # Calls of the application.

    def connect(self, now: int) -> None:
        self._now = now
        if self.state.state not in ("idle", "closed"):
            return  # S5
        self._failures = self._rejections = self._unopened = 0
        self._open()

    def close(self, now: int) -> None:
        self._now = now
        if self.state.state in ("idle", "closed"):
            return
        self._flush(is_last=True)
        self._stop("closed")

    def subscribe(self, now: int, topic: str, *, recover: bool) -> None:
        self._now = now
        is_known = topic in self._topics
        self._topics[topic] = recover
        if is_known:
            return
        self._to_unsub.pop(topic, None)
        self._to_sub[topic] = None
        self._soon()

    def unsubscribe(self, now: int, topic: str) -> None:
        self._now = now
        if self._topics.pop(topic, None) is None:
            return
        self._forget(topic)
        self._to_unsub[topic] = None
        self._soon()

    def ack(self, now: int, ids: Iterable[str]) -> None:
        self._now = now
        self._ack(ids)

    def set_presence(self, now: int, presence: Literal["auto", "active", "idle"]) -> None:
        self._now = now
        self._preference = presence
        self._update_presence()

    def app_changed(self, now: int, *, hidden: bool | None = None, online: bool = False) -> None:
        """The app moved to the background or returned, or the network returned."""
        self._now = now
        is_hidden = self._is_hidden if hidden is None else hidden
        appeared = self._is_hidden and not is_hidden
        if is_hidden != self._is_hidden:
            self._is_hidden = is_hidden
            if is_hidden:
                self._set("idle", _IDLE_MS)  # P1
            else:
                self._update_presence()
        if not appeared and not online:
            return
        if self.state.state == "waiting" and not self._waits_for_hint:
            self._open()  # B5
        elif self.state.state == "connected":
            self._ping()  # H3

    def settle(self, now: int, *, handled: bool) -> None:
        """The application finished with the message that was delivered last."""
        self._now = now
        self._inflow.settle(handled=handled)

    # Reports of the driver.

    def token(self, now: int, attempt: int, token: str) -> None:
        self._now = now
        if attempt == self.attempt and self.state.state == "connecting" and self._linked is None:
            self._dial(token)

    def no_token(self, now: int, attempt: int, error: NoroshiError) -> None:
        self._now = now
        if attempt != self.attempt:
            return
        if error.code == "signed_out":
            self._stop("signed_out")  # T7
            return
        self._report(error)
        self._retry("connection_lost", self._backoff(), is_hint=False)

    def renewed(self, now: int, attempt: int, token: str) -> None:
        """T4: over an open connection; the session continues."""
        self._now = now
        if attempt != self.attempt or self.state.state != "connected":
            return
        if self._is_stream:
            self._reopen()  # X8
            return
        self.effects.append(Send({"t": "token", "token": token}))
        self._schedule_renewal()
        self._sent_token = self._token = token

    def not_renewed(self, now: int, attempt: int, error: NoroshiError) -> None:
        self._now = now
        if attempt != self.attempt:
            return
        if error.code == "signed_out":
            self._stop("signed_out")
            return
        self._report(error)
        self._renew_later(current=False)

    def opened(self, now: int, attempt: int) -> None:
        self._now = now
        if attempt != self.attempt:
            return
        self._is_open = True
        self._unopened = 2 if self._is_stream else 0
        if self._is_stream:
            self._ready({"t": "ready"})  # X6
        else:
            self.effects.append(Send({"t": "connect", "token": self._token}))  # F1

    def heard(self, now: int, attempt: int) -> None:
        """Bytes arrived."""
        self._now = now
        if attempt != self.attempt:
            return
        self._heard_at = now
        self._timers.pop("pong", None)

    def frame(self, now: int, attempt: int, data: str | bytes) -> None:
        self._now = now
        if attempt != self.attempt:
            return
        try:
            frame = frames.parse(data)
        except ValueError as error:
            self._report(NoroshiError("bad_frame", f"not a frame of the service: {error}"))  # F4
            return
        match frame["t"]:
            case "msg":
                self._message(frames.message(frame))
            case "ready":
                self._ready(frame)
            case "recovered":
                self._recovered(frame)
            case "items":
                self._report(frames.items(frame))
            case "error":
                self._error(frame)
            case "close":
                self._closing = frame
                self._set("connect", _PONG_TIMEOUT_MS)  # C5
                self._flush()  # A5: a draining node accepts acknowledgements until the connection ends.
            case _:
                pass  # F5

    def ended(self, now: int, attempt: int, end: End) -> None:
        self._now = now
        if attempt == self.attempt:
            self._end(end)

    def flush(self, now: int, attempt: int) -> None:
        self._now = now
        if attempt == self.attempt:
            self._flush()

    def tick(self, now: int) -> None:
        """Calls every timer that is due, in order."""
        self._now = now
        while self._timers:
            name = min(self._timers, key=self._timers.__getitem__)
            at = self._timers[name]
            if at > now:
                return
            del self._timers[name]
            match name:
                case "retry":
                    self._open()
                case "connect" if self._closing is None:
                    self._end(End())
                case "connect":
                    self._lost(End())  # C5
                case "pong":
                    self._lost(End())  # H2
                case "beat":
                    self._beat()
                case "renew":
                    self._renew()
                case "websocket":
                    self._try_websocket()
                case "flush":
                    self._flush()
                case "idle":
                    self._update_presence()

    # Transitions.

    @property
    def _is_stream(self) -> bool:
        return self._transport == "sse"

    @property
    def _stream_topics(self) -> list[str]:
        return [topic for topic in self._topics if _SEPARATOR not in topic]  # X4

    def _set(self, name: _Timer, ms: int) -> None:
        # Of two timers that are due at the same time the older one comes first.
        self._timers.pop(name, None)
        self._timers[name] = self._now + ms

    def _report(self, event: State | Recovered | Denied | ItemsChange | NoroshiError) -> None:
        self.effects.append(Report(event))

    def _become(self, state: State) -> None:
        self.state = state
        self._report(state)

    def _backoff(self) -> int:
        wait = backoff(self._failures, self._random())
        self._failures += 1
        return wait

    def _open(self) -> None:
        self._timers.pop("retry", None)
        self.attempt += 1
        self._closing = None
        self._ready_at = None
        self._become(State("connecting"))
        self.effects.append(NeedToken(self.attempt))

    def _dial(self, token: str) -> None:
        # X1: another transport after two attempts that found no server.
        self._transport = self._transports[1 if self._unopened >= 2 and len(self._transports) > 1 else 0]
        self._is_open = False
        self._set("connect", _CONNECT_TIMEOUT_MS)  # S3
        self._dialed = self._stream_topics
        self._token = token
        self._linked = self.attempt
        topics = tuple(self._dialed) if self._is_stream else ()
        self.effects.append(Open(self.attempt, self._transport, token, topics, self._inflow.last_id))

    def _end(self, end: End) -> None:
        if not self._is_open:
            self._unopened = 0 if self._is_stream else self._unopened + 1  # X2
        self._lost(end)

    def _ready(self, frame: Frame) -> None:
        if self._ready_at is not None:
            return
        now = self._now
        self._timers.pop("connect", None)
        self._ready_at = self._heard_at = now
        self._rejections = 0
        self._inflow.restart(is_stream=self._is_stream)
        self._sent_presence = "active"  # P2
        self._flushed_at = None
        self._to_unsub.clear()
        self._asked.clear()
        for topic, recover in self._topics.items():
            self._to_sub[topic] = None  # R1
            if not recover or topic not in self._joined:
                continue
            if self._is_stream:
                # X6
                self._report(Recovered(topic, None if self._inflow.last_id else False))
            elif topic not in self.positions:
                self._report(Recovered(topic, False))  # R3: nobody knows what was missed.
        ping_ms = (frames.number(frame.get("ping_s")) or _PING_S_DEFAULT) * 1_000
        interval = max(_PING_MIN_MS, min(ping_ms, self._ping_interval_ms))  # H1
        self._beat_ms = _STREAM_SILENCE_MS if self._is_stream else interval  # X8
        self._set("beat", self._beat_ms)
        self._schedule_renewal()
        if self._is_stream:
            if self._websocket_at is None:
                self._websocket_at = now + _WEBSOCKET_AGAIN_MS
            self._set("websocket", max(0, self._websocket_at - now))
        else:
            self._websocket_at = None
        self._become(State("connected", transport=self._transport, device=frames.text(frame.get("device"))))  # S2
        self._flush()

    def _message(self, message: Message) -> None:
        if self._acknowledge == "received" and message.ack:
            self._ack([message.id])  # A6
        if self._inflow.receive(message):
            return
        # L2: unhandled messages arrive again after the application has caught up.
        self._is_too_slow = True
        self._detach()
        self._waits_for_hint = True
        self._report(NoroshiError("queue_full", f"{QUEUE_MAX} messages wait for the application"))
        self._become(State("waiting", reason="queue_full"))

    def _caught_up(self) -> None:
        if not self._is_too_slow:
            return
        self._is_too_slow = False
        if self.state.state == "waiting" and self.state.reason == "queue_full":
            self._open()

    def _handled(self, message: Message) -> None:
        if self._acknowledge == "handled" or message.id in self._acked:
            self._ack([message.id])

    def _ack(self, ids: Iterable[str]) -> None:
        for one in ids:
            self._acks[one] = None
            if self._acknowledge == "manual":
                self._acked.add(one)
            # O1: a message whose acknowledgement was dropped arrives again, and is acknowledged then.
            if len(self._acks) > _ACKS_MAX:
                del self._acks[next(iter(self._acks))]
        self._soon()

    def _error(self, frame: Frame) -> None:
        code = frames.text(frame.get("code")) or "bad_frame"
        topic = frames.text(frame.get("topic"))
        reason = frames.text(frame.get("reason"))
        if topic is not None and code.startswith("topic_"):
            self._topics.pop(topic, None)
            self._forget(topic)
            self._report(Denied(topic, code, reason or ""))  # F8
            return
        token = self._sent_token
        if token is not None and code in ("unauthorized", "expired", "rate_limited", "overloaded"):
            self._sent_token = None
            is_rejected = code in ("unauthorized", "expired")
            if is_rejected:
                self._tokens.reject(token)
            self._renew_later(current=not is_rejected)  # T5
        self._report(NoroshiError(code, frames.text(frame.get("message")) or code, topic=topic, reason=reason))

    def _recovered(self, frame: Frame) -> None:
        topic: str = frame["topic"]
        epoch, offset = frames.text(frame.get("epoch")), frames.number(frame.get("offset"))
        is_asked = topic in self._asked
        self._asked.discard(topic)
        event = Recovered(topic, frame.get("complete") is True)
        session = self._inflow.session

        def settled() -> None:
            if not self._topics.get(topic):
                return
            if epoch is not None and offset is not None and session == self._inflow.session:
                self._inflow.reach(topic, Position(epoch, offset))  # R7
            if not is_asked:
                self._report(event)

        self._inflow.after(settled)  # R4

    def _forget(self, topic: str) -> None:
        self._asked.discard(topic)
        self._joined.discard(topic)
        self._to_sub.pop(topic, None)
        self.positions.pop(topic, None)  # R6

    def _beat(self) -> None:
        left = self._heard_at + self._beat_ms - self._now
        if left > 0:
            self._set("beat", left)
        elif self._is_stream:
            self._lost(End())
        else:
            self._ping()
            self._set("beat", self._beat_ms)

    def _ping(self) -> None:
        if self._is_stream or "pong" in self._timers:
            return
        self.effects.append(Send({"t": "ping"}))
        self._set("pong", _PONG_TIMEOUT_MS)

    def _update_presence(self) -> None:
        self._timers.pop("idle", None)
        if self._preference == "auto":
            self._presence = "idle" if self._is_hidden else "active"
        else:
            self._presence = self._preference
        self._soon()

    def _try_websocket(self) -> None:
        """X3"""
        self._websocket_at = None
        if len(self._transports) > 1:
            self._unopened = 0
            self._reopen()

    def _reopen(self) -> None:
        self._detach()
        self._open()

    def _schedule_renewal(self) -> None:
        self._sent_token = None
        at = self._tokens.renew_at
        if at is not None:
            self._renews_current = False
            self._set("renew", max(0, at - self._now))

    def _renew_later(self, *, current: bool) -> None:
        """T5"""
        self._renews_current = current
        self._set("renew", backoff(3 + self._renewals, self._random()))
        self._renewals += 1

    def _renew(self) -> None:
        self.effects.append(RenewToken(self.attempt, self._renews_current))

    def _detach(self) -> None:
        """The connection is dead to this client: no event of it is processed."""
        self.attempt += 1
        for name in _OF_CONNECTION:
            self._timers.pop(name, None)
        self._will_flush = False
        self._renewals = 0
        self._ready_at = None
        if self._linked is not None:
            self.effects.append(Close(self._linked))
            self._linked = None

    def _stop(self, reason: str) -> None:
        self._detach()
        self._timers.pop("idle", None)
        self._is_too_slow = False
        self._inflow.clear()  # S4
        self._become(State("closed", reason=reason))

    def _lost(self, end: End) -> None:
        closing = self._closing
        ready_at = self._ready_at
        token = self._token
        reason = closing["reason"] if closing else frames.reason_of(end.code)
        if reason is None:
            reason = (end.problem or "unauthorized") if end.status == 401 else "connection_lost"
        self._detach()
        if ready_at is not None and self._now - ready_at >= _STABLE_MS:
            self._failures = 0  # B2
        if reason in _TOKEN_REJECTED or end.status == 401:
            self._rejected(reason, token)
            return
        if reason == "replaced" or (closing is not None and closing.get("reconnect") is False):
            self._stop(reason)  # C2, C4
            return
        hint = frames.number(closing.get("after_ms")) if closing else end.retry_after_ms
        # B3: a hint counts as it is, and at least as the backoff of earlier failures.
        if hint is None or self._failures > 0:
            own = self._backoff()
        else:
            own = 0
            self._failures += 1
        self._retry(reason, max(hint or 0, own), is_hint=hint is not None and hint >= own)

    def _rejected(self, reason: str, token: str | None) -> None:
        """C3"""
        self._tokens.reject(token)
        self._rejections += 1
        if self._rejections > _REJECTIONS_MAX:
            self._report(NoroshiError("unauthorized", f"the service rejected {_REJECTIONS_MAX} tokens"))
            self._stop("unauthorized")
            return
        if self._rejections > 1:
            wait = self._backoff()
        else:
            self._failures += 1
            # A JWT of the second of the revocation stays rejected.
            wait = round(1_000 + 1_000 * self._random()) if reason == "revoked" else 0
        self._retry(reason, wait, is_hint=False)

    def _retry(self, reason: str, ms: int, *, is_hint: bool) -> None:
        self._waits_for_hint = is_hint
        self._set("retry", ms)
        self._become(State("waiting", reason=reason, retry_in_ms=ms))

    def _soon(self) -> None:
        """F7: at most one flush in 100 ms, so that frames are few and large."""
        if self._ready_at is None or self._will_flush:
            return
        self._will_flush = True
        left = 0 if self._flushed_at is None else self._flushed_at + _FLUSH_MS - self._now
        if left > 0:
            self._set("flush", left)
        else:
            self.effects.append(FlushSoon(self.attempt))

    def _flush(self, *, is_last: bool = False) -> None:
        """F3: the order of what is sent."""
        if self._ready_at is None:
            return
        self._timers.pop("flush", None)
        self._will_flush = False
        if self._presence != self._sent_presence:
            self._sent_presence = self._presence
            self._send({"t": "presence", "state": self._presence})
        topics = list(self._to_sub)
        if not self._is_stream:
            for part in frames.parts(self._to_unsub):
                self._send({"t": "unsub", "topics": part})
        self._to_unsub.clear()
        self._to_sub.clear()
        self._joined.update(topics)
        if self._is_stream:
            for topic in topics:
                if _SEPARATOR in topic:  # X4
                    text = "a stream has no topics with a comma; the client subscribes when it has a WebSocket"
                    self._report(NoroshiError("bad_topic", text, topic=topic))
        if not self._is_stream:
            for part in frames.parts(topics):
                self._send(self._sub(part))
        for ids in frames.parts(self._acks):
            self._send({"t": "ack", "ids": ids})
        self._acks.clear()
        can_reopen = self._is_stream and self._closing is None and not is_last
        if can_reopen and set(self._dialed) != set(self._stream_topics):
            self._reopen()  # X4

    def _sub(self, topics: list[str]) -> Frame:
        since: dict[str, Frame | None] = {}  # R2
        for topic in filter(self._topics.get, topics):
            position = self.positions.get(topic)
            if position is None:
                self._asked.add(topic)
            since[topic] = None if position is None else {"epoch": position.epoch, "offset": position.offset}
        return {"t": "sub", "topics": topics, "since": since} if since else {"t": "sub", "topics": topics}

    def _send(self, frame: Frame) -> None:
        self._flushed_at = self._now
        self.effects.append(Send(frame))
