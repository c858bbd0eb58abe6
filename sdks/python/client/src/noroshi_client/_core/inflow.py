"""Messages on their way to the application: each id once, in order, acknowledged after it was handled. Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..models import Message, Position
from .recent import Recent

QUEUE_MAX = 1_000
# D4
_HANDLED_MIN = 2_048
_RETAINED_MIN = 128


@dataclass(slots=True)
class _Entry:
    session: int
    message: Message | None
    then: Callable[[], None] | None
    is_behind_failure: bool = False
    """An earlier message of its topic failed in its session, which has ended."""


class Inflow:
    """A, D, and the positions of R and X5."""

    def __init__(
        self,
        *,
        deliver: Callable[[Message], None],
        acknowledge: Callable[[Message], None],
        is_subscribed: Callable[[str], bool],
        drained: Callable[[], None],
    ) -> None:
        self._deliver = deliver
        self._acknowledge = acknowledge
        self._is_subscribed = is_subscribed
        self._drained = drained
        self._queue: deque[_Entry] = deque()
        self._is_busy = False
        # Ids of the queue.
        self._waiting: set[str] = set()
        self._handled = Recent(_HANDLED_MIN)
        # Messages that are not stored repeat only if they are retained, at the next log-in.
        self._shown = Recent(_RETAINED_MIN)
        # Topics with a message that was not handled: acknowledging a later one would acknowledge it too (A3).
        self._blocked: set[str] = set()
        self.positions: dict[str, Position] = {}
        """Of topics: everything up to here was handled."""
        self.last_id: str | None = None
        """X5: the last handled stored message of a stream, while none failed."""
        self.session = 0
        self._is_stream = False
        self._has_failed = False

    def restart(self, *, is_stream: bool) -> None:
        """A new session: unhandled messages arrive again."""
        self.session += 1
        self._is_stream = is_stream
        if not is_stream:
            self.last_id = None
        for entry in self._queue:
            if entry.message is not None and entry.message.topic in self._blocked:
                entry.is_behind_failure = True
        self._blocked.clear()
        self._has_failed = False

    def receive(self, message: Message) -> bool:
        """False if the queue is full: the message was dropped and has to arrive again."""
        if message.id in self._waiting:
            return True  # D3
        if len(self._queue) >= QUEUE_MAX:
            return False
        if message.id in self._handled or message.id in self._shown:
            session = self.session
            # D2, but A3: its acknowledgement would be that of earlier ones too.
            self.after(lambda: self._done(message, session) if session == self.session else None)
            return True
        self._waiting.add(message.id)
        self._queue.append(_Entry(self.session, message, None))
        self._pump()
        return True

    def clear(self) -> None:
        """Drops everything behind the message that the application is handling (S4)."""
        handling = self._queue.popleft() if self._is_busy else None
        self._queue.clear()
        self._waiting.clear()
        if handling is not None and handling.message is not None:
            self._queue.append(handling)
            self._waiting.add(handling.message.id)

    def reach(self, topic: str, position: Position) -> None:
        """Everything up to here was handled, unless a message of the topic was not (R7)."""
        if topic in self._blocked:
            return
        known = self.positions.get(topic)
        if known is None or known.epoch != position.epoch or known.offset < position.offset:  # R5
            self.positions[topic] = position

    def after(self, then: Callable[[], None]) -> None:
        """Calls `then` after all earlier messages are settled."""
        if not self._queue:
            then()
            return
        self._queue.append(_Entry(self.session, None, then))

    def settle(self, *, handled: bool) -> None:
        """The application has finished with the message that was delivered last."""
        entry = self._queue.popleft()
        self._is_busy = False
        message = entry.message
        assert message is not None
        self._waiting.discard(message.id)
        if handled:
            (self._handled if message.ack else self._shown).add(message.id)
            if not entry.is_behind_failure:  # A3
                self._done(message, entry.session)
        else:
            self._has_failed = True
            if message.topic is not None:
                self._blocked.add(message.topic)
        self._pump()
        if not self._queue:
            self._drained()

    def _pump(self) -> None:
        while self._queue and not self._is_busy:
            entry = self._queue[0]
            if entry.message is not None:
                self._is_busy = True
                self._deliver(entry.message)
                return
            self._queue.popleft()
            assert entry.then is not None
            entry.then()

    def _done(self, message: Message, session: int) -> None:
        topic = message.topic
        if topic is not None:
            if topic in self._blocked:
                return
            if message.epoch is not None and message.offset is not None and self._is_subscribed(topic):
                self.reach(topic, Position(message.epoch, message.offset))
        if not message.ack:
            return
        if self._is_stream and session == self.session and not self._has_failed:
            self.last_id = message.id
        self._acknowledge(message)
