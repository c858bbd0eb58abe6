"""The lines of an event stream."""

from __future__ import annotations

import codecs

# An event larger than this is not from the service.
_EVENT_MAX = 16 << 20


class EventParser:
    """Takes bytes and returns the data of complete events. The service ends lines with a line feed."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""

    def feed(self, chunk: bytes) -> list[str]:
        """Raises `ValueError` if an event is too large."""
        self._text += self._decoder.decode(chunk)
        events: list[str] = []
        while (end := self._text.find("\n\n")) >= 0:
            lines = self._text[:end].split("\n")
            self._text = self._text[end + 2 :]
            data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
            if data:
                events.append("\n".join(data))
        if len(self._text) > _EVENT_MAX:
            raise ValueError("the event is too large")
        return events
