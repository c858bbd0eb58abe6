"""The API of Noroshi for backends.

`Noroshi` is the client, `AsyncNoroshi` is the same with asyncio. `device_jwt` signs a JWT for a device, and `Webhook`
verifies requests of Noroshi. Bodies are the types of `noroshi_server.types`, which are dictionaries.
"""

from __future__ import annotations

from . import types
from ._async import (
    AsyncActivities,
    AsyncApp,
    AsyncCampaigns,
    AsyncChannels,
    AsyncDevices,
    AsyncNoroshi,
    AsyncNotifications,
    AsyncPager,
    AsyncTopics,
    AsyncUsers,
)
from ._calls import NO_RETRY, LineResult, Page, Retry
from ._sync import Activities, App, Campaigns, Channels, Devices, Noroshi, Notifications, Pager, Topics, Users
from ._version import VERSION as __version__
from .errors import (
    BadRequestError,
    BatchError,
    ConflictError,
    DeadlineError,
    ForbiddenError,
    InvalidAnswerError,
    NetworkError,
    NoroshiError,
    NotFoundError,
    ProblemError,
    TooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
    WebhookVerificationError,
)
from .jwt import device_jwt
from .webhooks import Webhook

__all__ = [
    "NO_RETRY",
    "Activities",
    "App",
    "AsyncActivities",
    "AsyncApp",
    "AsyncCampaigns",
    "AsyncChannels",
    "AsyncDevices",
    "AsyncNoroshi",
    "AsyncNotifications",
    "AsyncPager",
    "AsyncTopics",
    "AsyncUsers",
    "BadRequestError",
    "BatchError",
    "Campaigns",
    "Channels",
    "ConflictError",
    "DeadlineError",
    "Devices",
    "ForbiddenError",
    "InvalidAnswerError",
    "LineResult",
    "NetworkError",
    "Noroshi",
    "NoroshiError",
    "NotFoundError",
    "Notifications",
    "Page",
    "Pager",
    "ProblemError",
    "Retry",
    "TooLargeError",
    "TooManyRequestsError",
    "Topics",
    "UnauthorizedError",
    "UnavailableError",
    "Users",
    "Webhook",
    "WebhookVerificationError",
    "__version__",
    "device_jwt",
    "types",
]
