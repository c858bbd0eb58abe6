"""Verification of requests that Noroshi sends: events, topic permissions, and pushes to providers.

They are signed according to Standard Webhooks. docs/events.md#sinks, docs/authorization.md#webhooks, docs/push.md.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from .errors import WebhookVerificationError

_PREFIX = "whsec_"


class Webhook:
    """Verifies requests.

    - `secret`: `whsec_…`; several while you rotate it.
    - `tolerance`: how many seconds the time of a request may be off. A repeated request has a new time.
    """

    def __init__(self, secret: str | Iterable[str], *, tolerance: float = 300) -> None:
        secrets = [secret] if isinstance(secret, str) else list(secret)
        if not secrets:
            raise ValueError("no secret")
        self._keys = [_key(one) for one in secrets]
        self._tolerance = tolerance

    def verify(self, body: bytes | str, headers: Mapping[str, str], *, now: float | None = None) -> None:
        """Raises `WebhookVerificationError` unless one of the secrets signed the request.

        `body` has to be the body as it arrived, before any parsing.
        """
        data = body.encode() if isinstance(body, str) else body
        lower = {name.lower(): value for name, value in headers.items()}
        try:
            id_, timestamp, signatures = (lower[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        except KeyError as error:
            raise WebhookVerificationError(f"the header {error.args[0]} is missing") from None
        if not re.fullmatch(r"[0-9]{1,12}", timestamp):
            raise WebhookVerificationError("webhook-timestamp is not a number of seconds")
        if abs((time.time() if now is None else now) - int(timestamp)) > self._tolerance:
            raise WebhookVerificationError(f"webhook-timestamp is more than {self._tolerance:g} s off")
        signed = f"{id_}.{timestamp}.".encode() + data
        expected = [hmac.new(key, signed, hashlib.sha256).digest() for key in self._keys]
        is_signed = False
        for signature in _signatures(signatures):
            for one in expected:
                # Compares all of them, each in constant time.
                is_signed |= hmac.compare_digest(one, signature)
        if not is_signed:
            raise WebhookVerificationError("no signature is right")

    def json(self, body: bytes | str, headers: Mapping[str, str], *, now: float | None = None) -> Any:
        """The JSON of a verified request: a topic permission, or a push to a provider."""
        self.verify(body, headers, now=now)
        return _parse(body)

    def events(
        self, body: bytes | str, headers: Mapping[str, str], *, now: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """The lines of a verified request of the event log. `node`, `run` and `n` together identify a line."""
        self.verify(body, headers, now=now)
        data = body.encode() if isinstance(body, str) else body
        return (cast("dict[str, Any]", _parse(line)) for line in data.split(b"\n") if line.strip())


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True) if secret.startswith(_PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not 24 <= len(key) <= 64:
        raise ValueError("a secret is whsec_ and 24 to 64 bytes in base64")
    return key


def _signatures(header: str) -> Iterator[bytes]:
    for one in header.split(" "):
        version, _, signature = one.partition(",")
        if version != "v1":
            continue
        try:
            yield base64.b64decode(signature, validate=True)
        except (binascii.Error, ValueError):
            continue


def _parse(body: bytes | str) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise WebhookVerificationError("the body is not JSON") from error
