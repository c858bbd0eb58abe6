"""Frames of the protocol `noroshi.v1`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from ..models import Counts, ItemsChange, Message

Frame = dict[str, Any]

_REASONS = (
    "drain",
    "replaced",
    "expired",
    "revoked",
    "unauthorized",
    "auth_timeout",
    "ping_timeout",
    "slow_consumer",
    "rate_limited",
    "bad_message",
    "overloaded",
    "internal",
    "quota_exceeded",
    "rules_changed",
)
_CODES = {1002: "protocol_error", 1007: "invalid_utf8", 1009: "too_big"} | {
    4_000 + n: r for n, r in enumerate(_REASONS)
}
_MANDATORY = {"msg": "id", "recovered": "topic", "close": "reason"}
# Of JSON, in the worst case: below the 64 KiB of `limits.client_message`.
_FRAME_BYTES_MAX = 60_000
_ENTRIES_MAX = 1_000


def reason_of(code: int | None) -> str | None:
    """The reason that a WebSocket close code stands for."""
    return None if code is None else _CODES.get(code)


def parse(data: str | bytes) -> Frame:
    """F4: raises `ValueError` if the message is not a frame."""
    if isinstance(data, bytes):
        raise ValueError("a binary message")
    try:
        value: object = json.loads(data)
    except RecursionError as error:
        raise ValueError("the nesting is too deep") from error
    if not isinstance(value, dict):
        raise ValueError("not an object")
    frame = cast("Frame", value)
    kind = frame.get("t")
    if not isinstance(kind, str):
        raise ValueError("the field t is missing")
    field = _MANDATORY.get(kind)
    if field and not isinstance(frame.get(field), str):
        raise ValueError(f"the field {field} is missing")
    return frame


def encode(frame: Frame) -> str:
    # An escape would take six bytes of a code unit, twice as many as `parts` allows for.
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


def text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == value and abs(value) < 2**63 else None


def message(frame: Frame) -> Message:
    notification = frame.get("notification")
    return Message(
        id=frame["id"],
        notification=cast("dict[str, Any]", notification) if isinstance(notification, dict) else {},
        data=frame.get("data"),
        sent_at=text(frame.get("sent_at")) or "",
        topic=text(frame.get("topic")),
        epoch=text(frame.get("epoch")),
        offset=number(frame.get("offset")),
        ack=frame.get("ack") is True,
    )


def counts(body: object) -> Counts:
    fields = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    categories = fields.get("categories")
    by_category = cast("dict[str, Any]", categories) if isinstance(categories, dict) else {}
    return Counts(number(fields.get("unread")) or 0, {name: number(count) or 0 for name, count in by_category.items()})


def items(frame: Frame) -> ItemsChange:
    ids = frame.get("ids")
    listed = cast("list[object]", ids) if isinstance(ids, list) else []
    return ItemsChange(
        event=text(frame.get("event")) or "",
        ids=tuple(one for one in listed if isinstance(one, str)),
        more=frame.get("more") is True,
        counts=counts(frame),
    )


def parts(texts: Iterable[str]) -> Iterator[list[str]]:
    """L1: at most 1,000 texts and 64 KiB in a frame."""
    part: list[str] = []
    size = 0
    for one in texts:
        # Three bytes of UTF-8 for a code unit, once more in `since` with its position.
        cost = 6 * (len(one.encode("utf-16-le", "surrogatepass")) // 2) + 64
        if part and (len(part) >= _ENTRIES_MAX or size + cost > _FRAME_BYTES_MAX):
            yield part
            part = []
            size = 0
        part.append(one)
        size += cost
    if part:
        yield part
