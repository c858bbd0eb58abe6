"""Errors of this library. `code` is stable, texts are not."""

from __future__ import annotations

from typing import Any


class NoroshiError(Exception):
    """Every error of this library.

    `code` is a name of this library or of the service. The library's own codes:

    - `token_failed`: `get_token` failed, or took longer than 30 seconds.
    - `unauthorized`: the service rejected several tokens in a row.
    - `signed_out`: `get_token` returned `None`.
    - `network`: a request found no server, or broke.
    - `timeout`: a request took longer than 30 seconds.
    - `bad_frame`: the service sent something that is not a frame of the protocol.
    - `bad_topic`: server-sent events have no topics with a comma. The client subscribes when it has a WebSocket.
    - `listener_failed`: a handler of messages raised an exception, which is the error's `__cause__`.
    - `queue_full`: a bounded queue is full.
    - `closed`: the client was closed while the application waited for it.
    """

    def __init__(self, code: str, message: str, *, topic: str | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        """A stable name."""
        self.topic = topic
        """The topic, if the error is about one."""
        self.reason = reason
        """Why topic rules denied the topic."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(code={self.code!r}, message={str(self)!r})"


class ProblemError(NoroshiError):
    """The service answered a request with a problem document (RFC 9457)."""

    def __init__(
        self,
        status: int,
        problem: dict[str, Any],
        *,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        def text(name: str) -> str | None:
            value = problem.get(name)
            return value if isinstance(value, str) else None

        super().__init__(text("code") or f"http_{status}", text("detail") or text("title") or f"status {status}")
        self.status = status
        """The HTTP status."""
        self.field = text("field")
        """The wrong field or parameter."""
        self.request_id = request_id
        """The id of the request in the logs of the service."""
        self.retry_after = retry_after
        """Seconds to wait before another attempt, if the service stated them."""


class SignedOut(NoroshiError):
    """`get_token` returned `None`: nobody is signed in."""

    def __init__(self) -> None:
        super().__init__("signed_out", "get_token returned None")
