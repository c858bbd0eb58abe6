"""Messages on their way to the application: each id once, in order, acknowledged after it was handled. Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..models import Message, Position

QUEUE_MAX = 1_000
_SEEN_MAX = 4_096


@dataclass(slots=True)
class _Entry:
    session: int
    message: Message | None
    then: Callable[[], None] | None


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
        # Oldest first; the value is whether the message was handled.
        self._seen: dict[str, bool] = {}
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
        self._blocked.clear()
        self._has_failed = False

    def receive(self, message: Message) -> bool:
        """False if the queue is full: the message was dropped and has to arrive again."""
        handled = self._seen.get(message.id)
        if handled is not None:
            if handled:
                self._done(message, self.session)  # D2
            return True
        if len(self._queue) >= QUEUE_MAX:
            return False
        self._seen[message.id] = False
        if len(self._seen) > _SEEN_MAX:
            oldest = next((one for one, was_handled in self._seen.items() if was_handled), None)
            if oldest is not None:
                del self._seen[oldest]
        self._queue.append(_Entry(self.session, message, None))
        self._pump()
        return True

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
        if handled:
            self._seen[message.id] = True
            self._done(message, entry.session)
        else:
            self._seen.pop(message.id, None)
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
