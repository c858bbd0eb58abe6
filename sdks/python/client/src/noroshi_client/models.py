"""What the client reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

TransportName = Literal["websocket", "sse"]
"""How the client is connected."""

Presence = Literal["active", "idle"]
"""Whether the app is in use."""

Acknowledge = Literal["handled", "received", "manual"]
"""When a stored message is acknowledged."""

TokenReason = Literal["first", "expiring", "rejected"]
"""Why a token is requested."""


@dataclass(frozen=True, slots=True)
class Position:
    """The place of a message in the log of its topic."""

    epoch: str
    offset: int


@dataclass(frozen=True, slots=True)
class Message:
    """A message from a provider."""

    id: str
    notification: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The visible part: `title`, `body`, `image`, `url` and others. Empty if there is none."""
    data: Any = None
    """JSON of the provider."""
    sent_at: str = ""
    """RFC 3339, by the clock of the service."""
    topic: str | None = None
    epoch: str | None = None
    offset: int | None = None
    ack: bool = False
    """The service stores the message until the device acknowledges it."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of the connection.

    `idle`: not started. `connecting`: until the service accepts the log-in. `connected`. `waiting`: until the next
    attempt. `closed`: ended, until `connect` is called again.
    """

    state: Literal["idle", "connecting", "connected", "waiting", "closed"]
    reason: str | None = None
    """`waiting`, `closed`: why the last connection ended."""
    retry_in_ms: int | None = None
    """`waiting`: until the next attempt."""
    transport: TransportName | None = None
    """`connected`: which transport."""
    device: str | None = None
    """`connected`: the id of the device. Server-sent events do not report it."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Everything that was missed on a topic has arrived, except what `complete` denies."""

    topic: str
    complete: bool | None
    """`False`: messages are missing. `None`: the service did not report it (server-sent events)."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A subscription was refused, or ended because topic rules changed. The client does not try it again."""

    topic: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Unread items of the user, in all and by category."""

    unread: int
    categories: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class ItemsChange:
    """Items of the user's notification centre changed."""

    event: str
    """`added`, `read`, `unread`, `archived`, `unarchived` or `deleted`."""
    ids: tuple[str, ...]
    """At most 100."""
    more: bool
    """Other items changed too: list them again."""
    counts: Counts
    """The counts afterwards."""


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request for a token. Do not return a cached token for `expiring` and `rejected`."""

    reason: TokenReason
    previous: str | None = None
    """The token that expires or was rejected."""
