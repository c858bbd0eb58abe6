"""Waiting times."""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime

RETRY_AFTER_MAX_MS = 3_600_000


def backoff(failures: int, random: float) -> int:
    """B1: half a second, doubled after each failure up to 30 s; the second half of it is random."""
    return math.floor(min(30_000, 500 << min(failures, 16)) * (0.5 + random / 2) + 0.5)


def retry_after(text: str | None, wall_ms: int) -> int | None:
    """B4: the milliseconds of a header `Retry-After`, which states seconds or a date (RFC 9110 §10.2.3)."""
    if not text:
        return None
    if text.isascii() and text.isdigit():
        ms = int(text[:9]) * 1_000
    else:
        try:
            ms = round(parsedate_to_datetime(text).timestamp() * 1_000) - wall_ms
        except (ValueError, OverflowError):
            return None
    return min(max(ms, 0), RETRY_AFTER_MAX_MS)
