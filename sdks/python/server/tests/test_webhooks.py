"""Webhooks and JWTs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import timedelta

import pytest
from noroshi_server import Webhook, WebhookVerificationError, device_jwt

# The example of Standard Webhooks, which the service tests too.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
BODY = b'{"test": 2432232314}'
NOW = 1_614_265_330
HEADERS = {
    "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(NOW),
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def test_the_example_of_the_specification() -> None:
    assert Webhook(SECRET).json(BODY, HEADERS, now=NOW) == {"test": 2432232314}
    Webhook(SECRET).verify(BODY.decode(), HEADERS, now=NOW)
    Webhook([OTHER, SECRET]).verify(BODY, HEADERS, now=NOW)
    several = {**HEADERS, "webhook-signature": f"v1a,xx v1,AAAA v1,! {HEADERS['webhook-signature']}"}
    Webhook(SECRET).verify(BODY, several, now=NOW)


@pytest.mark.parametrize("now", [NOW - 300, NOW + 300])
def test_times_within_the_tolerance(now: int) -> None:
    Webhook(SECRET).verify(BODY, HEADERS, now=now)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"webhook-signature": "v1,h0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}, "no signature"),
        ({"webhook-signature": ""}, "no signature"),
        ({"webhook-signature": HEADERS["webhook-signature"].replace("v1,", "v2,")}, "no signature"),
        ({"webhook-timestamp": str(NOW + 1)}, "no signature"),
        ({"webhook-timestamp": str(NOW - 301)}, "off"),
        ({"webhook-timestamp": str(NOW + 301)}, "off"),
        ({"webhook-timestamp": "now"}, "number"),
        ({"webhook-timestamp": "-1"}, "number"),
        ({"Webhook-Id": "another"}, "no signature"),
    ],
)
def test_wrong_requests(change: dict[str, str], text: str) -> None:
    with pytest.raises(WebhookVerificationError, match=text):
        Webhook(SECRET).verify(BODY, {**HEADERS, **change}, now=NOW)


def test_wrong_bodies_secrets_and_missing_headers() -> None:
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(BODY + b" ", HEADERS, now=NOW)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, HEADERS, now=NOW)
    for name in HEADERS:
        headers = {key: value for key, value in HEADERS.items() if key != name}
        with pytest.raises(WebhookVerificationError, match=f"{name.lower()} is missing"):
            Webhook(SECRET).verify(BODY, headers, now=NOW)
    for secret in ("", "whsec_", "whsec_!", SECRET.removeprefix("whsec_"), "whsec_AAAA"):
        with pytest.raises(ValueError, match="24 to 64"):
            Webhook(secret)
    with pytest.raises(ValueError, match="no secret"):
        Webhook([])


def test_events() -> None:
    body = b'{"v":1,"n":1,"event":"started"}\n{"v":1,"n":2,"event":"lost","count":3}\n'
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.new(key, f"b1.{NOW}.".encode() + body, hashlib.sha256).digest()).decode()
    headers = {"webhook-id": "b1", "webhook-timestamp": str(NOW), "webhook-signature": f"v1,{signature}"}
    assert [event["event"] for event in Webhook(SECRET).events(body, headers, now=NOW)] == ["started", "lost"]
    # Verified at once, not when the first event is read.
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).events(body, headers, now=NOW + 1_000)


def _claims(token: str) -> dict[str, object]:
    part = token.split(".")[1]
    claims: dict[str, object] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


def test_a_device_jwt() -> None:
    secret = "at least thirty-two bytes of secret"
    token = device_jwt(
        secret,
        user="u",
        device="d",
        expires_in=timedelta(minutes=5),
        topics=["t"],
        issuer="i",
        audience="a",
        claims={"team": "x", "sub": "ignored"},
        now=1_000.9,
    )
    assert _claims(token) == {
        "team": "x",
        "sub": "u",
        "device": "d",
        "iat": 1_000,
        "exp": 1_300,
        "topics": ["t"],
        "iss": "i",
        "aud": "a",
    }
    text, _, signature = token.rpartition(".")
    expected = base64.urlsafe_b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest())
    assert signature == expected.decode().rstrip("=")
    for options in (
        {"user": ""},
        {"user": "é" * 128},
        {"device": "x" * 129},
        {"expires_in": 0},
        {"secret": "short"},
    ):
        with pytest.raises(ValueError):
            device_jwt(**{"secret": secret, "user": "u", "device": "d", **options})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        device_jwt(secret, user="u", device="d", topics="news")
