"""Client of Noroshi for devices, with asyncio.

`Noroshi` is the client; `noroshi_client.blocking.Noroshi` is the same for programs without asyncio. Bodies of requests
are the types of `noroshi_client.types`.
"""

from __future__ import annotations

from . import types
from ._events import Messages
from ._reports import FileStorage, ReportStorage
from ._tokens import GetToken
from ._version import VERSION as __version__
from .client import Noroshi, Topic, Variant
from .errors import NoroshiError, ProblemError, SignedOut
from .inbox import Inbox
from .models import (
    Counts,
    Denied,
    ItemsChange,
    Message,
    Position,
    Recovered,
    State,
    TokenRequest,
)
from .preferences import Preferences

__all__ = [
    "Counts",
    "Denied",
    "FileStorage",
    "GetToken",
    "Inbox",
    "ItemsChange",
    "Message",
    "Messages",
    "Noroshi",
    "NoroshiError",
    "Position",
    "Preferences",
    "ProblemError",
    "Recovered",
    "ReportStorage",
    "SignedOut",
    "State",
    "TokenRequest",
    "Topic",
    "Variant",
    "__version__",
    "types",
]
