"""Device JWTs, signed locally: a backend needs no request to log a device in. docs/authorization.md#app-jwts."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

_SECRET_BYTES_MIN = 32


def device_jwt(
    secret: str | bytes,
    *,
    user: str,
    device: str,
    expires_in: float | timedelta = 3_600,
    topics: Iterable[str] | None = None,
    issuer: str | None = None,
    audience: str | list[str] | None = None,
    claims: Mapping[str, Any] | None = None,
    now: float | None = None,
) -> str:
    """A JWT with which a device logs in, signed by HS256 with the secret of the app.

    - `expires_in`: seconds, or a `timedelta`. The session of the device ends then, unless the device renews its token.
    - `topics`: durable subscriptions of the device.
    - `issuer`, `audience`: required if the app declares them.
    - `claims`: further claims, for topic rules with `{claim:…}`.

    For RS256 and ES256 use a library such as PyJWT with the same claims.
    """
    key = secret.encode() if isinstance(secret, str) else secret
    if len(key) < _SECRET_BYTES_MIN:
        raise ValueError(f"the secret has to have at least {_SECRET_BYTES_MIN} bytes")
    _check("user", user, 255)
    _check("device", device, 128)
    lifetime = expires_in.total_seconds() if isinstance(expires_in, timedelta) else expires_in
    if lifetime < 1:
        raise ValueError("expires_in has to be at least one second")
    issued = int(time.time() if now is None else now)
    body: dict[str, Any] = {
        **(claims or {}),
        "sub": user,
        "device": device,
        "iat": issued,
        "exp": issued + int(lifetime),
    }
    if topics is not None:
        if isinstance(topics, str):
            raise TypeError("topics is a list of names")
        body["topics"] = list(topics)
    if issuer is not None:
        body["iss"] = issuer
    if audience is not None:
        body["aud"] = audience
    text = f"{_encode({'alg': 'HS256', 'typ': 'JWT'})}.{_encode(body)}"
    signature = hmac.new(key, text.encode(), hashlib.sha256).digest()
    return f"{text}.{_base64(signature)}"


def _check(name: str, value: str, bytes_max: int) -> None:
    if not 1 <= len(value.encode()) <= bytes_max:
        raise ValueError(f"{name} has to have 1 to {bytes_max} bytes")


def _encode(value: Mapping[str, Any]) -> str:
    return _base64(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
