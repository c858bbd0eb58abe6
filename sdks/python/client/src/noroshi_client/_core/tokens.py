"""Which token is in use, why the next one is requested, and when."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, cast

from ..models import TokenReason, TokenRequest


class TokenBook:
    """T1 to T4, T8, K1 to K3."""

    def __init__(self) -> None:
        self.current: str | None = None
        self.renew_at: int | None = None
        """By the client's clock: when to ask for the next token. `None`: never."""
        self._reason: TokenReason = "first"
        self._previous: str | None = None

    def request(self) -> TokenRequest:
        return TokenRequest(self._reason, self._previous)

    def expire(self) -> None:
        """The next request is for the token after the current one, which stays in use until then."""
        if self.current is not None:
            self._reason = "expiring"
            self._previous = self.current

    def reject(self, token: str | None) -> None:
        """The service rejected this token."""
        if token is None or token != self.current:
            return
        self._reason = "rejected"
        self._previous = token
        self.current = None
        self.renew_at = None

    def accept(self, token: object, now: int, wall: int, random: Callable[[], float]) -> str:
        """A token of the application. Raises `ValueError` if it is none, or the previous one."""
        if not isinstance(token, str) or not token:
            raise ValueError("get_token returned no text")
        if token == self._previous:
            raise ValueError("get_token returned the previous token")  # T3
        self.current = token
        left = _renew_in(token, wall, random)
        self.renew_at = None if left is None else now + left
        return token


def _renew_in(token: str, wall: int, random: Callable[[], float]) -> int | None:
    claims = _claims(token)
    exp = _seconds(claims.get("exp"))
    iat = _seconds(claims.get("iat"))
    if exp is None:
        return None  # T8
    issued = wall if iat is None else iat
    # K2: the local clock is wrong if it contradicts a token that the application has just obtained.
    left = exp - issued if wall < issued or wall >= exp else exp - wall
    if left <= 0:
        return None  # K3
    margin = min(60_000, left / 5)
    return round(max(left - margin * (1 + random() / 2), min(1_000, left / 2)))


def _seconds(value: object) -> float | None:
    """As milliseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        return None
    return value * 1_000


def _claims(token: str) -> dict[str, Any]:
    """Of a JWT, without verification. A device token has none."""
    parts = token.split(".")
    if len(parts) < 2:
        return {}
    try:
        value: object = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
